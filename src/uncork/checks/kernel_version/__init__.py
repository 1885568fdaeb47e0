"""Kernel version."""
