"""system-improve.md and the HTML report."""
