"""GPU driver."""
