"""Run a command in a terminal of 80 columns and draw what it printed: picture.py OUT.svg TITLE -- COMMAND...

The text goes to OUT.txt beside it, as it stood when the command ended (moving lines are resolved).
"""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS, ROWS = 80, 50
# Rich's own template names a font server; a picture that loads nothing is the point here.
TEMPLATE = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}</style>
<rect fill="#0d1117" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
<defs>{lines}</defs></svg>"""


def record(command: list[str]) -> tuple[str, int]:
    """What the command printed on a terminal, and its exit status."""
    parent, child = pty.openpty()
    os.set_blocking(parent, True)
    env = os.environ | {"COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "xterm-256color"}
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=child, stderr=child, env=env)
    os.close(child)
    data = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # EIO: the other side has closed
            break
        if not piece:
            break
        data += piece
    return data.decode("utf-8", "replace"), running.wait()


def settle(raw: str) -> str:
    """The lines as they stand at the end: what a carriage return overwrote is gone."""
    lines = [line.replace("\x1b[2K", "").split("\r")[-1] for line in raw.replace("\r\n", "\n").split("\n")]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def main() -> None:
    """Record, draw, save."""
    out, title, command = Path(sys.argv[1]), sys.argv[2], sys.argv[sys.argv.index("--") + 1 :]
    raw, status = record(command)
    text = Text.from_ansi(settle(raw))
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ {title}", style="bold"))
    console.print(text)
    out.write_text(console.export_svg(title=title, theme=MONOKAI, code_format=TEMPLATE), encoding="utf-8")
    out.with_suffix(".txt").write_text(f"$ {title}\n{text.plain}\n", encoding="utf-8")
    print(f"{out}: exit {status}")


if __name__ == "__main__":
    main()
