"""modprobe.d lines and /proc/driver/nvidia/params."""

import re

import msgspec

_OPTIONS = re.compile(r"^\s*options\s+([\w-]+)\s+(.*)$")
_BLACKLIST = re.compile(r"^\s*blacklist\s+([\w-]+)")
_OPTION = re.compile(r'(\w+)=("[^"]*"|\S+)')
_PARAM = re.compile(r"^\s*(\w+): ?(.*)$")
_DWORD = re.compile(r"(\w+)\s*=\s*(0x[0-9a-fA-F]+|\d+)")


class Options(msgspec.Struct, frozen=True):
    """Module → option → value, modules that are blacklisted, and NVIDIA's registry keys."""

    options: dict[str, dict[str, str]] = {}
    blacklisted: tuple[str, ...] = ()
    registry: dict[str, str] = {}


def parse(text: str) -> Options:
    """modprobe.d syntax; later lines of one module add to earlier ones, as modprobe does."""
    options: dict[str, dict[str, str]] = {}
    blacklisted = []
    for line in text.split("\n"):
        line = line.partition("#")[0][:4000]
        if found := _OPTIONS.match(line):
            mine = options.setdefault(found[1].replace("-", "_"), {})
            mine.update((name, value.strip('"')) for name, value in _OPTION.findall(found[2]))
        elif found := _BLACKLIST.match(line):
            blacklisted.append(found[1].replace("-", "_"))
    return Options(
        options, tuple(blacklisted), registry(options.get("nvidia", {}).get("NVreg_RegistryDwords", ""))
    )


def parse_params(text: str) -> Options:
    """/proc/driver/nvidia/params: `Name: value` lines, as options of the module nvidia without `NVreg_`."""
    pairs = (found.groups() for line in text.split("\n") if (found := _PARAM.match(line[:4000])))
    mine = {name.removeprefix("NVreg_"): value.strip().strip('"') for name, value in pairs}
    return Options({"nvidia": mine}, (), registry(mine.get("RegistryDwords", "")))


def registry(text: str) -> dict[str, str]:
    """`ForceP2P=0x11;RMForceP2PType=1` → its keys."""
    return dict(_DWORD.findall(text))
