"""What `uncork audit` writes for other programs: Prometheus text, a difference, a script for the host."""

import re
import shlex
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from uncork.errors import BadInput
from uncork.model.findings import Answer, Audit, Change, ChangeClass, Priority, Result
from uncork.state import write_whole


def write(to: Path, text: str, *, mode: int = 0o644) -> None:
    """Write the file whole or not at all. Raises `BadInput`."""
    try:
        write_whole(to, text.encode(), mode=mode)
    except OSError as error:
        raise BadInput(
            f"{to} cannot be written ({error.strerror}); it is as it was before.",
            next="choose a folder that you may write",
        ) from error


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def prometheus(audit: Audit) -> str:
    """The exposition format of node_exporter's textfile collector: one series a finding, counts, and when."""
    failed = [one for one in audit.results if one.answer is Answer.FAIL]
    lines = [
        "# HELP uncork_audit_info The audit that these figures are of.",
        "# TYPE uncork_audit_info gauge",
        f'uncork_audit_info{{version="{_label(audit.version)}",host="{_label(audit.host)}"}} 1',
        "# HELP uncork_audit_timestamp_seconds When the audit was made.",
        "# TYPE uncork_audit_timestamp_seconds gauge",
        f"uncork_audit_timestamp_seconds {time.time():.0f}",
        "# HELP uncork_audit_answers Answers of the checks.",
        "# TYPE uncork_audit_answers gauge",
    ]
    answers = Counter(one.answer for one in audit.results)
    lines += [f'uncork_audit_answers{{answer="{answer}"}} {answers[answer]}' for answer in Answer]
    lines += ["# HELP uncork_audit_findings Findings by priority.", "# TYPE uncork_audit_findings gauge"]
    priorities = Counter(one.priority for one in failed)
    lines += [f'uncork_audit_findings{{priority="{one}"}} {priorities[one]}' for one in Priority]
    lines += ["# HELP uncork_audit_finding A finding that is present.", "# TYPE uncork_audit_finding gauge"]
    seen = dict.fromkeys(
        (one.id, one.priority, one.change_class, one.dimension, one.subject) for one in failed
    )
    lines += [
        f'uncork_audit_finding{{id="{_label(id)}",priority="{priority}",class="{change_class}",'
        f'dimension="{dimension}",subject="{_label(subject)}"}} 1'
        for id, priority, change_class, dimension, subject in seen
    ]
    lines += [
        "# HELP uncork_audit_explorer_ok Whether a part of the host was seen.",
        "# TYPE uncork_audit_explorer_ok gauge",
    ]
    lines += [
        f'uncork_audit_explorer_ok{{explorer="{name}"}} {int(ending == "ok")}'
        for name, ending in audit.explorers.items()
    ]
    return "\n".join(lines) + "\n"


class Moved(msgspec.Struct, frozen=True):
    """A check and subject whose answer differs: `before` and `after` are answers, empty where it was not asked."""

    id: str
    subject: str
    priority: Priority
    before: str
    after: str
    says: str


class Difference(msgspec.Struct, frozen=True):
    """What changed between two audits: findings that appeared, findings that are gone, other changes of answer."""

    old_host: str
    new_host: str
    appeared: tuple[Result, ...]
    gone: tuple[Moved, ...]
    changed: tuple[Moved, ...]


def read_old(path: Path) -> Audit:
    """An audit that `--json` printed before. Raises `BadInput`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Audit)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}).", next="name a file written by uncork audit --json"
        ) from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadInput(
            f"{path} is not an audit ({error}).", next="write one with: uncork audit --json > old.json"
        ) from error


def difference(old: Audit, new: Audit) -> Difference:
    """Compare by check and subject."""
    before = {(one.id, one.subject): one for one in old.results}
    after = {(one.id, one.subject): one for one in new.results}
    appeared = tuple(
        one
        for key, one in after.items()
        if one.answer is Answer.FAIL and (key not in before or before[key].answer is not Answer.FAIL)
    )
    gone, changed = [], []
    for key in dict.fromkeys((*before, *after)):
        was, now = before.get(key), after.get(key)
        if (was and was.answer) == (now and now.answer):
            continue
        shown = now or was
        assert shown is not None
        moved = Moved(
            *key,
            shown.priority,
            was.answer if was else "",
            now.answer if now else "",
            (now.reason or now.says) if now else "no longer asked of this subject",
        )
        if was and was.answer is Answer.FAIL:
            gone.append(moved)
        elif not (now and now.answer is Answer.FAIL):
            changed.append(moved)
    return Difference(old.host, new.host, appeared, tuple(gone), tuple(changed))


_PATHS = {
    "sysfs": "",
    "cgroup": "",
    "thp": "/sys/kernel/mm/transparent_hugepage/",
}


def _command(change: Change) -> tuple[str, str] | None:
    """The shell command that makes a change and the one that shows the present value; None where it takes more."""
    want = shlex.quote(change.want)
    if change.knob == "sysctl":
        key = shlex.quote(change.target.removeprefix("/proc/sys/").replace("/", "."))
        return f"sysctl -w {key}={want}", f"sysctl {key}"
    if change.knob in _PATHS and re.fullmatch(r"[\w./*:\[\]-]+", change.target):
        path = _PATHS[change.knob] + change.target if not change.target.startswith("/") else change.target
        return f'for file in {path}; do echo {want} > "$file"; done', f"grep -H . {path}"
    if change.knob == "cpufreq_governor" and re.fullmatch(r"policy(?:\d+|\*)", change.target):
        path = f"/sys/devices/system/cpu/cpufreq/{change.target}/scaling_governor"
        word = shlex.quote(change.want.split()[0])
        return f'for file in {path}; do echo {word} > "$file"; done', f"grep -H . {path}"
    if change.knob == "module" and change.want == "loaded":
        return (
            f"modprobe {shlex.quote(change.target)}",
            f"lsmod | grep -w {shlex.quote(change.target)} || true",
        )
    return None


def host_script(audit: Audit) -> tuple[str, int]:
    """A shell script of what only the host's administrator can change, and how many changes it makes."""
    parts, count, by_hand = [], 0, []
    for one in audit.results:
        if one.answer is not Answer.FAIL or one.change_class is not ChangeClass.HOST_ONLY:
            continue
        commands = [_command(change) for change in one.changes]
        known = [pair for pair in commands if pair is not None]
        if not known:
            by_hand.append(f"#   {_comment(one.id)}: {_comment(one.says)}")
            continue
        parts.append(f"# {one.priority} {_comment(one.id)}: {_comment(one.says)}")
        for change, pair in zip(one.changes, commands, strict=True):
            if pair is not None:
                parts += [f"{pair[1]}   # was {_comment(change.before or 'not read')}", pair[0]]
                count += 1
        parts.append("")
    head = [
        "#!/bin/sh",
        f"# Written by uncork {audit.version} inside a container that may not change these itself.",
        "# Run it as root on the host. It prints each value before it changes it; nothing survives a reboot.",
        "set -eu",
        "",
    ]
    if by_hand:
        parts += ["# These need hands (uncork explain ID says how):", *by_hand, ""]
    return "\n".join([*head, *parts]), count


def _comment(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", text)


def schema() -> dict[str, Any]:
    """The JSON schema of what `uncork audit --json` prints."""
    return msgspec.json.schema(Audit)
