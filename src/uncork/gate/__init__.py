"""The P2P verification: one Fabric interface, three fabrics, eleven criteria, localisation.

Interface:

    from uncork.gate import baseline, choose_fabric, verify

    with choose_fabric("auto") as fabric:      # or "host", "cuda", "simulated"
        before = verify(fabric, "full")        # GateResult: .verdict pass | fail | inconclusive, .exit 0 | 1 | 2
        ...                                    # change something
        after = verify(fabric, "quick", baseline=baseline.of(before))

A result is one frozen msgspec struct (`uncork.model.gate`) that survives JSON. `result.tested` says in a sentence
what was tested and whether a GPU was; a quick pass stands for its five criteria only. On the host-memory fabric
`result.figures` holds `read-bandwidth` at every depth: GB/s of all CPUs reading (value, samples, how), which the
bound of a CPU host uses; `hostmem.read_bandwidth()` measures it alone.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uncork.gate.choose import FABRICS, choose_fabric
    from uncork.gate.run import verify


def __getattr__(name: str) -> Any:
    # Lazy: a rank's process imports `uncork.gate.serve` and must not pay for the criteria.
    if name == "verify":
        from uncork.gate.run import verify

        return verify
    if name in ("FABRICS", "choose_fabric"):
        from uncork.gate import choose

        return getattr(choose, name)
    raise AttributeError(name)


__all__ = ["FABRICS", "choose_fabric", "verify"]
