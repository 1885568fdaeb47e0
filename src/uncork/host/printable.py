"""Text from a host, made safe to show."""


def printable(text: str, keep: str = "\n") -> str:
    """Control characters and direction marks as visible escapes; what is in `keep` stays."""
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)
