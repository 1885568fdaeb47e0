"""Load generator, suite, metrics, telemetry, fingerprint, statistics, comparison, importers."""
