"""nvidia-smi nvlink -s, -e, -R, nvidia-smi -L, and timed NVML NVLink queries."""

import re

import msgspec

_GPU = re.compile(r"^\s*GPU (\d{1,4}): (.+?)(?: \(UUID: (\S+?)\))?\s*$")
_LINK = re.compile(r"^\s*Link (\d{1,3}): (.*\S)\s*$")
_SPEED = re.compile(r"^([\d.]{1,10}) GB/s$")
_ERRORS = re.compile(r"^(\w[\w ]*?) Errors?: (\d{1,18})$|^(Replay|Recovery|CRC)[\w ]*: (\d{1,18})$")
_REMOTE = re.compile(r"^Remote Device ([0-9A-Fa-f:.]+): Link (\d+)")
_MS = re.compile(r"Elapsed time:\s*(\d{1,12}) ?ms")
_STATED = re.compile(r"(\d{1,6}(?:\.\d+)?) s\b")


class Link(msgspec.Struct, frozen=True):
    """One link: `active` None where only its errors or its peer were printed."""

    number: int
    active: bool | None = None
    speed_gb_s: float | None = None
    errors: dict[str, int] = {}
    remote: str = ""


class Gpu(msgspec.Struct, frozen=True):
    """One GPU's header and its links, in order."""

    index: int
    name: str
    uuid: str = ""
    links: tuple[Link, ...] = ()

    @property
    def active(self) -> int:
        """Links that carry traffic."""
        return sum(link.active is True for link in self.links)

    @property
    def inactive(self) -> int:
        """Links printed as inactive."""
        return sum(link.active is False for link in self.links)


def parse(text: str) -> tuple[Gpu, ...]:
    """Every GPU; several prints (status, errors, remote) of one are put together."""
    gpus: dict[int, Gpu] = {}
    links: dict[int, dict[int, Link]] = {}
    at: int | None = None
    for line in text.split("\n"):
        line = line[:300]
        if found := _GPU.match(line):
            at = int(found[1])
            gpus.setdefault(at, Gpu(at, found[2].strip(), found[3] or ""))
        elif found := _LINK.match(line):
            at = at if at is not None else -1
            gpus.setdefault(at, Gpu(at, ""))
            mine = links.setdefault(at, {})
            number = int(found[1])
            mine[number] = _with(mine.get(number, Link(number)), found[2])
    return tuple(
        msgspec.structs.replace(gpu, links=tuple(links.get(index, {}).values()))
        for index, gpu in gpus.items()
    )


def _with(link: Link, said: str) -> Link:
    if speed := _SPEED.match(said):
        value = float(speed[1]) if speed[1].count(".") < 2 and speed[1] != "." else None
        return msgspec.structs.replace(link, active=bool(value), speed_gb_s=value)
    if said.startswith("<inactive>") or said.lower() == "inactive":
        return msgspec.structs.replace(link, active=False)
    if remote := _REMOTE.match(said):
        return msgspec.structs.replace(link, remote=remote[1].lower())
    if errors := _ERRORS.match(said):
        name, count = (errors[1], errors[2]) if errors[1] else (errors[3], errors[4])
        return msgspec.structs.replace(link, errors={**link.errors, name: int(count)})
    return link


def query_times_s(text: str) -> tuple[float, ...]:
    """Durations of timed NVLink queries, printed in ms or stated in words, in seconds."""
    printed = tuple(int(value) / 1000 for value in _MS.findall(text))
    if printed:
        return printed
    stated = [
        value
        for line in text.split("\n")
        if "NvLink" in line or "NVLINK" in line
        for value in _STATED.findall(line)
    ]
    return tuple(float(value) for value in stated)
