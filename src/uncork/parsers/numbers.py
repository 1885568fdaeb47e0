"""Numbers in other tools' texts."""


def integer(text: str | None) -> int | None:
    """A whole number of at most eleven digits; None where the text is none."""
    return int(text) if text and text.isdecimal() and len(text) < 12 else None
