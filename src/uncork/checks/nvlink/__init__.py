"""NVLink and NVSwitch."""
