"""The audit as a person reads it in a minute: what is wrong, what is right, what could not be seen."""

from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from uncork.cli.show import clean
from uncork.model.findings import Answer, Audit, ChangeClass, Priority, Result

STYLES = {Priority.P0: "bold red", Priority.P1: "yellow", Priority.P2: "cyan", Priority.INFO: "dim"}
LISTED_UNKNOWN = 6


def show(out: Console, audit: Audit, *, everything: bool, left_out: tuple[str, ...], arguments: str) -> None:
    """Print the whole audit; `arguments` are those that `uncork explain` needs to look at the same host."""
    by_answer = {answer: [one for one in audit.results if one.answer is answer] for answer in Answer}
    _head(out, audit, by_answer)
    _findings(out, by_answer[Answer.FAIL], everything)
    _right(out, audit)
    _unseen(out, by_answer[Answer.UNKNOWN], everything)
    if everything:
        _every(out, "Not applicable", by_answer[Answer.NOT_APPLICABLE])
    _endings(out, audit, left_out)
    _next(out, by_answer, arguments)


def _line(out: Console, text: Text) -> None:
    out.print(text, overflow="ellipsis", no_wrap=True, crop=True)


def _head(out: Console, audit: Audit, by_answer: dict[Answer, list[Result]]) -> None:
    found = Counter(priority for _, priority in {(one.id, one.priority) for one in by_answer[Answer.FAIL]})
    counts = ", ".join(f"{found[one]} {one}" for one in Priority if found[one]) or "nothing"
    checks = len({one.id for one in audit.results})
    _line(out, Text(f"{clean(audit.host)}: {checks} checks, found {counts}", style="bold"))


def grouped(results: Iterable[Result]) -> list[tuple[Result, int]]:
    """One line a check, priority and wording: the first result of each, and how many subjects share it."""
    groups: dict[tuple[str, Priority, str], list[Result]] = {}
    for one in results:
        groups.setdefault((one.id, one.priority, one.says), []).append(one)
    return [(several[0], len(several)) for several in groups.values()]


def _findings(out: Console, failed: list[Result], everything: bool) -> None:
    if not failed:
        out.print("Nothing that is known to cost speed or correctness was found.")
        return
    out.print()
    lines = [(one, 1) for one in failed] if everything else grouped(failed)
    width = min(max(len(one.id) for one, _ in lines), 34)
    room = max(out.width - width - 6, 20)
    for one, count in lines:
        subject = (
            f" ({clean(one.subject)}{f' and {count - 1} more' if count > 1 else ''})" if one.subject else ""
        )
        says = clean(one.says)
        text = Text(f"{one.priority:<5}", style=STYLES[one.priority])
        text.append(_fit(says, subject, room).ljust(room), style="default")
        text.append(" " + (one.id if len(one.id) <= width else one.id[: width - 1] + "…"), style="dim")
        _line(out, text)


def _fit(says: str, subject: str, room: int) -> str:
    """The words, cut where they leave no room for the subject, which is cut only where nothing else helps."""
    if len(says) + len(subject) <= room:
        return says + subject
    if len(subject) > room - 20:
        subject = ""
    cut = room - len(subject) - 1
    return (says if len(says) <= cut else says[:cut].rstrip() + "…") + subject


def _right(out: Console, audit: Audit) -> None:
    if not audit.right:
        return
    out.print()
    out.print(Text("Right as it is", style="bold green"))
    for dimension, says in audit.right.items():
        text = Text(f"  {dimension.replace('_', ' '):<15}", style="green")
        _line(out, text.append(clean(says), style="default"))


def _unseen(out: Console, unknown: list[Result], everything: bool) -> None:
    if not unknown:
        return
    out.print()
    counts = Counter(one.dimension.replace("_", " ") for one in unknown)
    by_dimension = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    out.print(Text(f"Not seen from here: {len(unknown)} answers", style="bold"))
    _line(out, Text(f"  {by_dimension}", style="dim"))
    if everything:
        _every(out, "", unknown)
        return
    if texts := missing_texts(unknown):
        out.print("  `uncork snapshot` on that host would answer nearly all. Of single texts, most:")
        _line(out, Text("  " + ", ".join(f"{name} {count}" for name, count in texts), style="default"))
        return
    weighty = [pair for pair in grouped(unknown) if pair[0].priority is Priority.P0]
    reasons: dict[str, list[str]] = {}
    for one, _ in weighty:
        reasons.setdefault(one.reason, []).append(one.id)
    for reason, ids in list(reasons.items())[:LISTED_UNKNOWN]:
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        _line(out, Text(f"  P0  {ids[0]}{more}: {clean(reason)}"))
    if len(reasons) > LISTED_UNKNOWN:
        out.print(f"  … and {len(reasons) - LISTED_UNKNOWN} more reasons for P0 checks: uncork audit --all")


# What to attach where a reason says that a source was not: (how the reason starts, the text people can send).
_TEXTS = (
    ("nvml", "nvidia-smi -q"),
    ("nvidia-smi", "nvidia-smi -q"),
    ("nothing that was read", "nvidia-smi -q"),
    ("/sys/bus/pci", "lspci -vvv (root)"),
    ("lspci", "lspci -vvv (root)"),
    ("/proc/sys/", "sysctl -a"),
    ("dmesg", "dmesg"),
    ("/proc/modules", "lsmod"),
    ("/sys/devices/system/cpu/cpufreq", "cpupower -c all frequency-info"),
    ("no command line, unit file or log", "the server's command line and log"),
    ("/proc/cmdline", "/proc/cmdline"),
    ("/sys/class/infiniband", "ibstat"),
    ("/sys/devices/system/node", "numactl -H"),
)


def missing_texts(unknown: Iterable[Result]) -> list[tuple[str, int]]:
    """The texts whose absence leaves most answers open, most first; none on a machine, which is asked itself."""
    reasons = [one.reason for one in unknown]
    if not any("not among the attached files" in reason for reason in reasons):
        return []
    counts = Counter(text for reason in reasons for start, text in _TEXTS if reason.startswith(start))
    return counts.most_common(3)


def _every(out: Console, title: str, results: list[Result]) -> None:
    if title and results:
        out.print()
        out.print(Text(title, style="bold"))
    for one in results:
        subject = f" ({clean(one.subject)})" if one.subject else ""
        out.print(Text(f"  {one.priority:<4}{one.id}{subject}: {clean(one.reason)}", style="dim"))


def _endings(out: Console, audit: Audit, left_out: tuple[str, ...]) -> None:
    broken = {name: ending for name, ending in audit.explorers.items() if ending != "ok"}
    for name, ending in broken.items():
        out.print(Text(f"The {name.replace('_', ' ')} part is missing: {clean(ending)}", style="yellow"))
    for line in left_out[:5]:
        out.print(Text(f"Not read: {clean(line)}", style="yellow"))
    if len(left_out) > 5:
        out.print(Text(f"Not read: {len(left_out) - 5} more", style="yellow"))


def _next(out: Console, by_answer: dict[Answer, list[Result]], arguments: str) -> None:
    out.print()
    failed = by_answer[Answer.FAIL]
    if failed:
        out.print(f"Next: uncork explain {failed[0].id}{arguments}", soft_wrap=True)
        host_only = [one for one in failed if one.changes and one.change_class is ChangeClass.HOST_ONLY]
        if not arguments and any(one.changes for one in failed if one not in host_only):
            out.print("      uncork run --dry-run   shows what it would change, from what to what")
        if not arguments and host_only:
            out.print("      uncork audit --host-script FILE   writes what only the host's administrator can")
    elif by_answer[Answer.UNKNOWN]:
        out.print(f"Next: uncork audit --all{arguments}   says what would settle each answer", soft_wrap=True)
    else:
        out.print("Next: uncork bench   measures the server that runs here")
