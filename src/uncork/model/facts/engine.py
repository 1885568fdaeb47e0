"""Inference engines that run, and their Python."""

import msgspec


class EngineFacts(msgspec.Struct, frozen=True):
    """Inference engines that run, and their Python."""
