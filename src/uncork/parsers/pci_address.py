"""Addresses on the PCI bus, written as sysfs writes them."""


def full(text: str) -> str:
    """`00000000:2E:00.0`, `2E:00.0` and `2e:00` → `0000:2e:00.0`; what is no address comes back in lower case."""
    parts = text.strip().lower().split(":")
    if len(parts) == 2:
        parts = ["0000", *parts]
    if len(parts) != 3:
        return ":".join(parts)
    domain, bus, device = parts
    return f"{domain.lstrip('0').zfill(4)}:{bus}:{device if '.' in device else device + '.0'}"
