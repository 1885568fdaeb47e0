"""NUMA nodes and placement."""
