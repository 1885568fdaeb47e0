"""Text that people attach to bug reports → structures."""
