"""HTML that holds hostile text: a string is escaped unless it is `Html` already."""

import html
from collections.abc import Iterable, Sequence

from uncork.record.markdown import one_line

LIMIT = 600


class Html(str):
    """Markup that is safe as it stands."""

    __slots__ = ()

    def __add__(self, other: str) -> "Html":
        return Html(str.__add__(self, other if isinstance(other, Html) else text(other)))


def text(value: object, limit: int = LIMIT) -> Html:
    """One escaped line: control characters and direction marks are spelled out, an endless line is cut."""
    whole = str(value)
    before, after = whole[:1].isspace(), whole[1:] and whole[-1:].isspace()
    return Html(f"{' ' if before else ''}{html.escape(one_line(whole, limit))}{' ' if after else ''}")


def tag(name: str, /, *children: str, **attributes: str | int | float | bool | None) -> Html:
    """An element. `class_` and `for_` lose their underscore, `aria_label` becomes aria-label; None is left out."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = key.rstrip("_").replace("_", "-")
        parts.append(shown if value is True else f'{shown}="{html.escape(one_line(str(value)))}"')
    inner = "".join(child if isinstance(child, Html) else text(child) for child in children)
    return Html(f"<{' '.join(parts)}>{inner}</{name}>")


def join(parts: Iterable[str]) -> Html:
    """Pieces one after another, each escaped unless it is markup."""
    return Html("\n".join(part if isinstance(part, Html) else text(part) for part in parts if part))


def table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()
) -> Html:
    """A table whose first column heads its rows; `numbers` are the columns set right. Nothing without rows.

    It stands in a box that scrolls by itself, reachable by keyboard, so that a narrow page never does.
    """
    body = []
    for row in rows:
        cells = [
            tag("th", cell, scope="row")
            if at == 0
            else tag("td", cell, class_="n" if at in numbers else None)
            for at, cell in enumerate(row)
        ]
        body.append(tag("tr", *cells))
    if not body:
        return Html("")
    heads = [
        tag("th", name, scope="col", class_="n" if at in numbers else None) for at, name in enumerate(head)
    ]
    whole = tag(
        "table",
        tag("caption", caption) if caption else Html(""),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *body),
    )
    return tag(
        "div",
        whole,
        class_="scroll",
        tabindex=0,
        role="group",
        aria_label=caption or ", ".join(filter(None, head)),
    )


def fold(summary: str, *body: str, id: str = "", open: bool = False, class_: str = "") -> Html:
    """Something that a reader opens when wanted."""
    if not any(body):
        return Html("")
    return tag("details", tag("summary", summary), *body, id=id or None, open=open, class_=class_ or None)


def section(id: str, title: str, *body: str) -> Html:
    """A part of the page with its heading, which the contents link to."""
    return tag("section", tag("h2", title, id=f"{id}-title"), *body, id=id, aria_labelledby=f"{id}-title")


def items(lines: Iterable[str], class_: str = "") -> Html:
    """A list; nothing where there is none."""
    made = [tag("li", line) for line in lines]
    return tag("ul", *made, class_=class_ or None) if made else Html("")
