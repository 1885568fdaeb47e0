"""The nouns, one file a family. Frozen, no behaviour, no I/O; imports nothing else of uncork."""
