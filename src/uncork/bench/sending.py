"""What the loop is given: jobs, and how to send them."""

from collections.abc import Callable

import msgspec

Job = tuple[int, bytes, int, int]  # index, body, input tokens aimed at, output tokens asked for
Progress = Callable[[int, int, int], None]  # ended, failed so far, in flight


class LoopPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How the jobs are sent: closed loop over `concurrency` slots, or at `arrivals_ns` after the start."""

    concurrency: int
    arrivals_ns: tuple[int, ...] | None = None
    ramp_ns: int = 0
    limit_s: float = 600.0
    request_timeout_s: float = 600.0
    stall_timeout_s: float = 120.0
    start_at_ns: int = 0
