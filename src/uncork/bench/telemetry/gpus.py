"""Clocks, temperature, power, throttle reasons, PCIe traffic and replays of every GPU, through NVML.

A host without NVML, or a value that a GPU does not give, leaves the figure out.
"""

from collections.abc import Callable
from typing import Any

# nvmlClocksEventReasons: what is not a disturbance is idle, application clocks, sync boost and display.
REASONS = {
    0x0000000000000004: "software power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "hardware power brake",
}
POWER_CAP = 0x4  # under load many cards sit at their cap by design: a figure, not a disturbance


class Gpus:
    """All GPUs that NVML shows."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._seen: list[dict[str, list[float]]] = []
        self._reasons: list[int] = []
        self._replays: list[float | None] = []

    def begin(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        except Exception:  # NVMLError of any kind, or no library: this host has no figures of this kind
            self._handles = []
        self._seen = [{} for _ in self._handles]
        self._reasons = [0] * len(self._handles)
        self._replays = [self._ask("nvmlDeviceGetPcieReplayCounter", one) for one in self._handles]

    def sample(self) -> None:
        for seen, index, handle in zip(self._seen, range(len(self._handles)), self._handles, strict=True):
            for name, function, arguments in _FIGURES:
                value = self._ask(function, handle, *arguments)
                if value is not None:
                    seen.setdefault(name, []).append(value)
            self._reasons[index] |= int(self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0)

    def end(self) -> tuple[dict[str, Any], list[str]]:
        figures: dict[str, Any] = {}
        said = []
        for index, handle in enumerate(self._handles):
            one: dict[str, Any] = {
                f"{name}_{part}": value
                for name, values in self._seen[index].items()
                for part, value in (
                    ("mean", sum(values) / len(values)),
                    ("max", max(values)),
                    ("min", min(values)),
                )
            }
            one["throttle_reasons"] = [word for bit, word in REASONS.items() if self._reasons[index] & bit]
            after, before = self._ask("nvmlDeviceGetPcieReplayCounter", handle), self._replays[index]
            if after is not None and before is not None:
                one["pcie_replays"] = after - before
                if after > before:
                    said.append(f"GPU {index}: {after - before:.0f} PCIe replays")
            bits = self._reasons[index] & ~POWER_CAP
            said += [f"GPU {index}: {word}" for bit, word in REASONS.items() if bits & bit]
            figures[str(index)] = one
        return figures, said

    def _ask(self, function: str, *arguments: Any) -> float | None:
        call: Callable[..., Any] | None = getattr(self._nvml, function, None)
        if call is None:
            return None
        try:
            return float(call(*arguments))
        except Exception:  # NVMLError_NotSupported and its kin
            return None


_FIGURES: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("sm_clock_mhz", "nvmlDeviceGetClockInfo", (1,)),
    ("memory_clock_mhz", "nvmlDeviceGetClockInfo", (2,)),
    ("temperature_c", "nvmlDeviceGetTemperature", (0,)),
    ("power_mw", "nvmlDeviceGetPowerUsage", ()),
    ("pcie_tx_kb_s", "nvmlDeviceGetPcieThroughput", (0,)),
    ("pcie_rx_kb_s", "nvmlDeviceGetPcieThroughput", (1,)),
)
