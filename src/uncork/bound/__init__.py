"""The theoretical maximum: GPU table, model bytes, decode and prefill bounds, waterfall."""
