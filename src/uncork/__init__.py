"""Find what holds back a host that serves language models, fix it with an undo, prove it, measure it."""

__version__ = "0.1.0"
