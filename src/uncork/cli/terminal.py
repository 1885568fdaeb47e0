"""What `uncork run` shows: one line a step, a moving line while it works, one question."""

import sys
import time
from typing import Any

from uncork.cli.show import clean, console
from uncork.model.plan import Plan, Step

MARKS = {
    "completed": "✓",
    "failed": "✗",
    "reverted": "↩",
    "skipped": "–",
    "cancelled": "–",
    "pending": "·",
    "in_progress": "…",
}
SHOWN_CHANGES = 12


class Terminal:
    """Tells a person at a terminal or a log: progress goes to stderr, so that a pipe gets only results."""

    def __init__(self) -> None:
        self._out = console(stderr=True)
        self._moving = sys.stderr.isatty() and not self._out.is_dumb_terminal
        self._last = ""
        self._drawn_s = 0.0
        self._broken: dict[str, str] = {}

    def step(self, step: Step, state: str) -> None:
        if state == "running":
            self._line(f"  … {step.title}")
            return
        self._line("")
        mark = MARKS.get(state, "·")
        self._out.print(f"  {mark} {step.title}" + ("" if state == "completed" else f" ({state})"))

    def explorer(self, name: str, state: str) -> None:
        if state not in ("running", "ok"):
            self._broken[name] = state
            self._line("")
            self._out.print(f"  ! {clean(state)}")
        else:
            self._line(f"  … Look at the host: {name.replace('_', ' ')} {state}")

    def bench(self, progress: Any) -> None:
        now_s = time.monotonic()
        if now_s - self._drawn_s < 0.2:
            return
        self._drawn_s = now_s
        left = "" if progress.left_s is None else f", about {progress.left_s:.0f} s left"
        self._line(
            f"  … Benchmark {progress.level} #{progress.repeat + 1} of {progress.repeats}:"
            f" {progress.requests_done}/{progress.requests} requests, level {progress.done + 1} of"
            f" {progress.total}{left}"
        )

    def gate(self, text: str) -> None:
        self._line(f"  … {clean(text)}")

    def note(self, text: str) -> None:
        self._line("")
        self._out.print(f"    {clean(text)}")

    def approve(self, plan: Plan) -> bool:
        from uncork.loop.attribute import is_toggle, repeats_words

        waiting = [step for step in plan.steps if step.status == "pending" and not is_toggle(step)]
        changes = [change for step in waiting for change in step.changes]
        self._line("")
        self._out.print(f"\nThese {len(changes)} values will be changed, each with a way back:\n")
        for change in changes[:SHOWN_CHANGES]:
            before = "?" if change.before is None else change.before
            self._out.print(f"  {clean(change.target)}: {clean(before)} → {clean(change.want)}")
        if len(changes) > SHOWN_CHANGES:
            self._out.print(f"  … and {len(changes) - SHOWN_CHANGES} more (uncork plan shows all)")
        if words := repeats_words(plan):
            self._out.print(f"\n{clean(words)}")
        return self._yes("\nChange them now? [y/N] ")

    def revert_worse(self, says: str) -> bool:
        self._line("")
        return self._yes(f"\nThe run after the change was {clean(says)}\nPut the changes back? [y/N] ")

    def _yes(self, question: str) -> bool:
        if not sys.stdin.isatty():
            return False
        sys.stderr.write(question)
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def _line(self, text: str) -> None:
        """Redraw the moving line; nothing moves in a log or on a dumb terminal."""
        if self._moving and text != self._last:
            width = self._out.width - 1
            sys.stderr.write("\r\x1b[2K" + text[:width])
            sys.stderr.flush()
        self._last = text
