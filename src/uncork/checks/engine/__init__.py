"""Inference engines that run, and their Python."""
