"""Power, clocks and C-states."""
