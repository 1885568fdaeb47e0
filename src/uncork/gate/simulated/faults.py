"""Faults that a simulated host can have, each published or reported for a real one."""

from enum import StrEnum

import msgspec

from uncork.errors import BadInput
from uncork.gate.simulated.graph import SimulatedHost


class FaultKind(StrEnum):
    """What goes wrong. `where` of a fault is a pair (0-3), a device (3) or a component (switch1 up)."""

    NO_PEER = "no-peer"
    NO_IPC = "no-ipc"
    NO_VMM = "no-vmm"
    DROPPED_WRITE = "dropped-write"
    DROPPED_INTO = "dropped-into"
    ZEROS = "zeros"
    ONES = "ones"
    BIT_FLIP = "bit-flip"
    ALIAS = "alias-2mib"
    WRONG_SOURCE = "wrong-source"
    GUARD = "guard-overwritten"
    SOURCE_CHANGED = "source-changed"
    CORRUPT_LOADED = "corrupt-under-load"
    FLAG_FIRST = "flag-before-data"
    STAGED = "staged"
    KERNEL_SLOW = "kernel-slow"
    SLOW = "slow"
    IMPOSSIBLE = "impossible-figure"
    COLLAPSE = "collapse"
    LATENCY = "latency"
    ALL_REDUCE = "all-reduce-slow"
    NCCL_SHM = "nccl-shm"
    ERRORS = "errors"
    CORRECTABLE = "correctable"
    COUNTER_UNREADABLE = "counter-unreadable"
    LINK_DOWN = "link-down"
    REGISTER = "register-lost"
    HANG = "hang"
    FAILS = "fails"
    STUCK = "stuck"


class Fault(msgspec.Struct, frozen=True):
    """One fault: its kind, where it sits, and how strong it is (a factor, or a count for counters)."""

    kind: FaultKind
    where: str
    amount: float = 0.5

    def hits(self, host: SimulatedHost, src: int, dst: int) -> bool:
        """Whether a transfer from src to dst meets this fault."""
        return self.where in (f"{src}-{dst}", f"{src}", f"{dst}", *host.path(src, dst).components)

    def is_about(self, device: int) -> bool:
        """Whether `where` names this device."""
        return self.where == str(device)


def parse_fault(text: str) -> Fault:
    """`kind@where` or `kind@where*amount`, as on the command line. Raises `BadInput`."""
    kind, _, rest = text.partition("@")
    where, star, amount = rest.partition("*")
    try:
        return Fault(FaultKind(kind), where, float(amount) if star else 0.5)
    except ValueError:
        kinds = ", ".join(FaultKind)
        says = (
            f"{text!r} is no fault: KIND@WHERE or KIND@WHERE*AMOUNT, as in slow@0-3*0.5 or errors@gpu2 rx*4."
        )
        raise BadInput(says, next=f"kinds: {kinds}") from None
