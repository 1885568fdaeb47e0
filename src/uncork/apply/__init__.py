"""Journal, transaction, hold, recovery, and revert.py, which runs alone on the standard library."""
