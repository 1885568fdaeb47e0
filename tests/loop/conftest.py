"""A fast real server for the loop, and a host with one setting wrong."""

from tests.wrong_host import endpoint, strict_overcommit

__all__ = ["endpoint", "strict_overcommit"]
