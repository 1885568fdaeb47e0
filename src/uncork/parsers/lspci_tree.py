"""lspci -t and -tv: the drawing of buses."""

import re

import msgspec

_ROOT = re.compile(
    r"^[ |]*[-+\\]-?[-+]?-?\[(?P<domain>[0-9a-f]{4,8}:)?(?P<first>[0-9a-f]{2})(?:-(?P<last>[0-9a-f]{2}))?\]"
)
_TOKEN = re.compile(r"(?P<slot>[0-9a-f]{2}\.[0-7])|\[(?P<first>[0-9a-f]{2})(?:-(?P<last>[0-9a-f]{2}))?\]")


class Node(msgspec.Struct, frozen=True):
    """One function: `below` is the bus range of a bridge (secondary, subordinate), `parent` the bridge above."""

    bdf: str
    name: str = ""
    below: tuple[int, int] | None = None
    parent: str = ""


class Tree(msgspec.Struct, frozen=True):
    """The functions in the order drawn, and the root buses (`00`, or `0000:00` where a domain is drawn)."""

    nodes: tuple[Node, ...] = ()
    root_buses: tuple[str, ...] = ()


def parse(text: str) -> Tree:
    """Read the drawing; columns say which bus a line continues. A cut last line costs only itself."""
    nodes: list[Node] = []
    roots: list[str] = []
    open_buses: list[tuple[int, str, int, str]] = []  # column, domain, bus, bridge
    for line in text.split("\n"):
        line = line[:2000].rstrip()
        start = 0
        if found := _ROOT.match(line):
            domain = (found["domain"] or "0000:").rstrip(":")
            roots.append(found["first"])
            open_buses = [(found.end(), domain, int(found["first"], 16), "")]
            start = found.end()
        if open_buses:
            _line(line, start, open_buses, nodes)
    return Tree(tuple(nodes), tuple(roots))


def _line(line: str, start: int, open_buses: list[tuple[int, str, int, str]], nodes: list[Node]) -> None:
    position = start
    while found := _TOKEN.search(line, position):
        between = line[position : found.start()]
        if found["slot"]:
            if between.strip("-+\\| "):
                return  # a name that happens to hold something like a slot
            while len(open_buses) > 1 and open_buses[-1][0] > found.start():
                open_buses.pop()
            _, domain, bus, bridge = open_buses[-1]
            rest = line[found.end() :]
            name = rest.strip() if rest[:2] == "  " else ""
            nodes.append(Node(f"{domain}:{bus:02x}:{found['slot']}", name, None, bridge))
            if name:
                return
        elif nodes and not between.strip("-"):
            first = int(found["first"], 16)
            last = int(found["last"], 16) if found["last"] else first
            nodes[-1] = msgspec.structs.replace(nodes[-1], below=(first, last))
            open_buses.append((found.end(), open_buses[-1][1], first, nodes[-1].bdf))
        else:
            return
        position = found.end()
