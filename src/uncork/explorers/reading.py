"""What a file says, as a value: a text that is not what it should be is `Unknown` too."""

from collections.abc import Callable
from typing import TypeVar

from uncork.host import Host
from uncork.host.recording import RecordingHost
from uncork.model.unknown import Unknown
from uncork.parsers import cpulist, procfs

Value = TypeVar("Value")


def shared(host: Host, name: str, derive: Callable[[Host], Value]) -> Value:
    """What several explorers work out of the same answers: once for a host that records, anew for any other."""
    if not isinstance(host, RecordingHost):
        return derive(host)
    found: Value = host.derived(name, lambda: derive(host))
    return found


def text(host: Host, path: str) -> str | Unknown:
    """A file's text without surrounding white space."""
    found = host.read(path)
    return found if isinstance(found, Unknown) else found.strip()


def integer(host: Host, path: str) -> int | Unknown:
    """A file that holds one whole number, decimal or 0x…."""
    return number(text(host, path), path)


def number(found: str | Unknown, path: str) -> int | Unknown:
    """A text that is one whole number, decimal or 0x…."""
    if isinstance(found, Unknown):
        return found
    try:
        return int(found, 0) if found[:2] in ("0x", "0X") else int(found)
    except ValueError:
        return Unknown(f"{path}: not a number: {found[:40]!r}")


def cpus(host: Host, path: str) -> tuple[int, ...] | Unknown:
    """A file that holds a list of CPUs or nodes."""
    found = text(host, path)
    if isinstance(found, Unknown):
        return found
    numbers = cpulist.parse("" if found == "(null)" else found)
    return Unknown(f"{path}: not a list: {found[:40]!r}") if numbers is None else numbers


def parsed(host: Host, path: str, parse: Callable[[str], Value], *, sample: int = 1) -> Value | Unknown:
    """A file through a parser."""
    found = host.read(path, sample=sample)
    return found if isinstance(found, Unknown) else parse(found)


def chosen(host: Host, path: str) -> str | Unknown:
    """The bracketed word of a file such as `always [madvise] never`."""
    found = text(host, path)
    if isinstance(found, Unknown):
        return found
    word = procfs.bracketed(found)[0]
    return Unknown(f"{path}: no word chosen in {found[:60]!r}") if word is None else word


def settled_by(found: Value | Unknown, text: str) -> Value | Unknown:
    """The value; of one that was not attached also what text would tell it."""
    if isinstance(found, Unknown) and not found.absent:
        return Unknown(f"{found.reason}; {text} tells")
    return found


def attached(host: Host, kind: str) -> tuple[str, ...]:
    """The texts of one kind that people attached; none on a machine."""
    found = host.query(f"attached:{kind}")
    if isinstance(found, Unknown) or not isinstance(found, list):
        return ()
    return tuple(
        item["text"] for item in found if isinstance(item, dict) and isinstance(item.get("text"), str)
    )


def attached_pieces(host: Host, kind: str) -> tuple[tuple[str, str, str], ...]:
    """File, the command or title above the text, and the text, of each attached piece of one kind."""
    found = host.query(f"attached:{kind}")
    if isinstance(found, Unknown) or not isinstance(found, list):
        return ()
    rows = [item for item in found if isinstance(item, dict) and isinstance(item.get("text"), str)]
    return tuple((str(row.get("name", "")), str(row.get("hint", "")), row["text"]) for row in rows)


def kernel_log(host: Host) -> str | Unknown:
    """The kernel's messages since boot, as dmesg prints them."""
    answer = host.run(("dmesg",))
    if isinstance(answer, Unknown):
        return Unknown(f"the kernel log cannot be read: {answer.reason}")
    if answer.rc != 0:
        return Unknown(f"the kernel log cannot be read: {answer.stderr.strip() or 'dmesg failed'}")
    return answer.stdout
