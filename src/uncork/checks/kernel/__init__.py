"""Kernel knobs."""
