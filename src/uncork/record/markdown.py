"""Small pieces of Markdown that hold hostile text: what a host says is shown, never interpreted."""

from collections.abc import Iterable, Sequence

from uncork.host.printable import printable

LINE_LIMIT = 400


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """One line: control characters and direction marks spelled out, a longer one cut and its length said."""
    length = len(text)
    text = text[: 4 * limit]  # an endless line costs no more than a long one
    line = " ".join(printable(text, keep="\n\t\r").split())
    if len(line) > limit or length > len(text):
        line = f"{line[:limit]} … ({length} characters)"
    return line


def plain(text: str, limit: int = LINE_LIMIT) -> str:
    """One line of text: control characters and direction marks escaped, Markdown and HTML signs inert."""
    line = one_line(text, limit)
    for sign in "\\`*_<>|[]":
        line = line.replace(sign, "\\" + sign if sign != "<" else "&lt;")
    return line


def code(text: str, limit: int = LINE_LIMIT) -> str:
    """Text in a code span that it cannot leave."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())[:limit]
    return f"`{line.replace('`', chr(39)).replace('|', chr(0x2502))}`" if line else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table whose cells are Markdown already; no lines where there are no rows."""
    body = ["| " + " | ".join(row) + " |" for row in rows]
    if not body:
        return []
    return ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head), *body, ""]


def fold(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines that a reader opens when wanted; none where there is nothing."""
    if not lines:
        return []
    return ["<details>", f"<summary>{plain(summary)}</summary>", "", *lines, "", "</details>", ""]


def commands(lines: Iterable[str]) -> list[str]:
    """A block of shell commands to paste."""
    block = [" ".join(line.split("\n")) for line in lines]
    return ["```sh", *block, "```", ""] if block else []
