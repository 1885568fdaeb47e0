"""A few lines of a kernel log prove a fault, and prove nothing by their silence."""

from collections.abc import Iterable, Iterator

import msgspec

from uncork.model.facts import Facts
from uncork.model.findings import Answer, Result
from uncork.model.unknown import is_unknown

# Checks that pass because the log does not speak of a fault.
OF_SILENCE = frozenset(
    (
        *(
            "driver.xid-recent",
            "driver.gsp-mode",
            "pcie.bar-unassigned",
            "pcie.iommu-faults",
            "pcie.slot-power",
        ),
        *("nvlink.nvswitch-errors", "kernel.hung-task", "kernel.oom-killed", "kernel.printk-flood"),
        *("kernel.split-lock", "kernel.min-free-kbytes"),
    )
)
_REASON = "only some lines of the kernel log were given, and they do not speak of it: attach `dmesg` from its beginning"


def silent(results: Iterable[Result], facts: Facts) -> Iterator[Result]:
    """The results, where a pass that rests on the silence of an excerpt becomes unknown."""
    excerpt = not is_unknown(facts.driver) and facts.driver.log_excerpt
    titles = _titles() if excerpt else {}
    for one in results:
        if excerpt and one.answer is Answer.PASS and one.id in OF_SILENCE:
            yield msgspec.structs.replace(
                one, answer=Answer.UNKNOWN, says=titles[one.id], reason=_REASON, evidence=()
            )
        else:
            yield one


def _titles() -> dict[str, str]:
    from uncork.checks import CHECKS

    return {id: check.title for id, check in CHECKS.items()}
