"""CUDA memory."""
