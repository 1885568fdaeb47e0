"""What must be equal for two results of the gate to be compared."""

from pathlib import Path

from uncork import __version__
from uncork.model.gate import Fingerprint


def fingerprint(fabric: str, devices: tuple[str, ...], driver: str) -> Fingerprint:
    """The fingerprint of this machine in this boot; `devices` are bus ids or node names in order."""
    return Fingerprint(
        fabric=fabric,
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        kernel=_text("/proc/sys/kernel/osrelease"),
        cmdline=_text("/proc/cmdline"),
        driver=driver,
        devices=devices,
        version=__version__,
    )


def differences(one: Fingerprint, other: Fingerprint) -> tuple[str, ...]:
    """The names of the fields in which two fingerprints differ."""
    return tuple(name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name))


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
