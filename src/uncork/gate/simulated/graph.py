"""Simulated hosts: which GPU hangs off which switch, root and socket, and what each component carries."""

import msgspec

from uncork.gate.fabric import Device, Path


class SimulatedHost(msgspec.Struct, frozen=True):
    """A host of `sockets` with `switches_per_socket` switches (0: GPUs at the root) of `gpus_per_switch` GPUs.

    Rates in GB/s, one direction. `link_raw` is the line rate of a GPU's link, `efficiency` what large copies reach
    of it alone; `cross_gb_s` what one flow reaches over the socket link; `socket_gb_s` what that link carries.
    """

    name: str
    model: str
    says: str
    sockets: int
    switches_per_socket: int
    gpus_per_switch: int
    platform: str
    generation: int = 5
    width: int = 16
    link_raw: float = 63.02
    payload_bytes: int = 256
    efficiency: float = 0.89
    cross_gb_s: float = 50.5
    socket_gb_s: float = 150.0
    nvlink_raw: float = 0.0

    @property
    def count(self) -> int:
        """How many GPUs."""
        return self.sockets * max(1, self.switches_per_socket) * self.gpus_per_switch

    def socket(self, gpu: int) -> int:
        """The socket of a GPU."""
        return gpu * self.sockets // self.count

    def switch(self, gpu: int) -> int | None:
        """The switch of a GPU, None where it sits at the root."""
        return gpu // self.gpus_per_switch if self.switches_per_socket else None

    def devices(self) -> tuple[Device, ...]:
        """The GPUs in topology order."""
        return tuple(
            Device(i, f"gpu{i}", f"0000:{0x10 + 0x10 * i:02x}:00.0", self.model) for i in range(self.count)
        )

    def path(self, src: int, dst: int) -> Path:
        """What lies between two GPUs, sender first."""
        if self.nvlink_raw:
            return Path("nvlink", (f"gpu{src} tx", f"gpu{dst} rx"), self.nvlink_raw)
        kind, middle = self._between(src, dst)
        components = (f"gpu{src} tx", *middle, f"gpu{dst} rx")
        return Path(kind, components, self.link_raw, self.generation, self.payload_bytes, self.platform)

    def _between(self, src: int, dst: int) -> tuple[str, list[str]]:
        one, other = self.switch(src), self.switch(dst)
        here, there = self.socket(src), self.socket(dst)
        if one is not None and one == other:
            return "same-switch", [f"switch{one} crossbar"]
        up = [f"switch{one} up"] if one is not None else []
        down = [f"switch{other} down"] if other is not None else []
        if here == there:
            return "same-socket", [*up, f"root{here}", *down]
        link = f"socket link {here}→{there}"
        return "cross-socket", [*up, f"root{here}", link, f"root{there}", *down]

    def components(self) -> tuple[str, ...]:
        """Everything that can be at fault, each once."""
        pairs = ((i, j) for i in range(self.count) for j in range(self.count) if i != j)
        return tuple(dict.fromkeys(name for pair in pairs for name in self.path(*pair).components))

    def capacity_gb_s(self, component: str) -> float:
        """What a component carries in one direction."""
        if self.nvlink_raw:
            return self.nvlink_raw * self.efficiency
        if component.startswith("socket link"):
            return self.socket_gb_s
        if component.startswith("root") or "crossbar" in component:
            return self.link_raw * self.efficiency * 4
        return self.link_raw * self.efficiency

    def alone_gb_s(self, src: int, dst: int) -> float:
        """What one flow reaches when nothing else moves."""
        path = self.path(src, dst)
        most = min(self.capacity_gb_s(component) for component in path.components)
        return min(most, self.cross_gb_s) if path.kind == "cross-socket" else most

    def flag_ns(self, src: int, dst: int) -> float:
        """One-way flag latency: 0.63-0.73 us in one switch, 1.06-1.08 across (published for RTX PRO 6000)."""
        return {"nvlink": 550.0, "same-switch": 680.0, "same-socket": 1070.0, "cross-socket": 1310.0}[
            self.path(src, dst).kind
        ]


HOSTS = {
    host.name: host
    for host in (
        SimulatedHost(
            "pro6000-8x",
            "RTX PRO 6000",
            "8× RTX PRO 6000, two Turin sockets, four switches",
            sockets=2,
            switches_per_socket=2,
            gpus_per_switch=2,
            platform="turin",
        ),
        SimulatedHost(
            "pro6000-8x-direct",
            "RTX PRO 6000",
            "8× RTX PRO 6000 at the roots of two Genoa sockets",
            sockets=2,
            switches_per_socket=0,
            gpus_per_switch=4,
            platform="genoa",
            cross_gb_s=39.0,
            socket_gb_s=64.0,
        ),
        SimulatedHost(
            "h200-8x",
            "H200",
            "8× H200 on NVLink",
            sockets=2,
            switches_per_socket=0,
            gpus_per_switch=4,
            platform="intel",
            nvlink_raw=450.0,
            efficiency=0.85,
        ),
    )
}
