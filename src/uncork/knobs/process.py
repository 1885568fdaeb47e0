"""Knobs of a running process: limits, CPUs, /proc files. A process is its number and when it began."""

import errno
import os
import resource
import shlex
from typing import Any

from uncork.knobs import Recipe, Risk
from uncork.knobs.base import RecipeKnob
from uncork.knobs.recipes.process import start_ticks


def _process(text: str) -> dict[str, Any]:
    pid, _, ticks = text.partition("@")
    if not pid.isdigit():
        raise OSError(errno.EINVAL, f"{text}: not a process number")
    return {"pid": int(pid), "start_ticks": int(ticks) if ticks else start_ticks(int(pid))}


def _named(text: str) -> str:
    process = _process(text)
    return f"{process['pid']}@{process['start_ticks']}"


class Limit(RecipeKnob):
    """A resource limit of a running process: `PID:memlock`. Lifting a hard limit needs CAP_SYS_RESOURCE."""

    compare = "limits"

    def targets(self, pattern: str) -> tuple[str, ...]:
        process, _, name = pattern.partition(":")
        try:
            return (f"{_named(process)}:{name}",)
        except ProcessLookupError:
            return ()

    def recipe(self, target: str) -> Recipe:
        process, _, name = target.partition(":")
        number = getattr(resource, f"RLIMIT_{name.upper()}", None)
        if number is None:
            raise OSError(errno.EINVAL, f"{name}: not a limit that this system has", target)
        return {"kind": "limit", **_process(process), "number": number, "compare": "limits"}

    def undo_command(self, target: str, before: str) -> str:
        process, _, name = target.partition(":")
        return f"prlimit --pid {process.partition('@')[0]} --{name.lower()}={shlex.quote(before)}"


class Affinity(RecipeKnob):
    """The CPUs a thread may run on: `PID@STARTTICKS/TID`; a pattern `PID` means all threads it has now."""

    compare = "cpus"

    def targets(self, pattern: str) -> tuple[str, ...]:
        process, _, thread = pattern.partition("/")
        try:
            named = _named(process)
            threads = (
                [thread] if thread else sorted(os.listdir(f"/proc/{int(named.split('@')[0])}/task"), key=int)
            )
        except (ProcessLookupError, FileNotFoundError):
            return ()
        return tuple(f"{named}/{one}" for one in threads)

    def recipe(self, target: str) -> Recipe:
        process, _, thread = target.partition("/")
        who = _process(process)
        return {"kind": "affinity", **who, "tid": int(thread or who["pid"]), "compare": "cpus"}

    def risk(self, target: str) -> Risk:
        return "medium"

    def undo_command(self, target: str, before: str) -> str:
        return f"taskset -pc {shlex.quote(before)} {self.recipe(target)['tid']}"


class ProcessFile(Limit):
    """A writable file of a process: `PID:oom_score_adj`."""

    compare = "words"
    names = ("oom_score_adj", "autogroup", "coredump_filter", "timerslack_ns")

    def recipe(self, target: str) -> Recipe:
        process, _, name = target.partition(":")
        if name not in self.names:
            raise OSError(errno.EINVAL, f"{name}: not one of {', '.join(self.names)}", target)
        who = _process(process)
        return {"kind": "process-file", **who, "path": f"/proc/{who['pid']}/{name}", "compare": "words"}

    def undo_command(self, target: str, before: str) -> str:
        return RecipeKnob.undo_command(self, target, before)
