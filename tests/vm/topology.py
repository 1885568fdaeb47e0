"""What the guest is built of: two sockets, four PCIe switches, eight endpoints that carry NVIDIA ids, one NIC."""

from dataclasses import dataclass

NVME = "1b36:0010"  # what the endpoints are in QEMU, before they get another id
DOWNSTREAM, UPSTREAM, ROOT_PORT = "104c:8233", "104c:8232", "1b36:000c"
E1000E = "8086:10d3"
PRO_6000, H100_PCIE = "2bb5", "2331"  # NVIDIA's device ids

# Device Control: MaxPayload 128, relaxed ordering, no snoop, and MaxReadReq in bits 14:12.
READ_REQUEST_WRITABLE = 0x78F0
ACS_AT, ACS_CAPABLE = 0x200, 0x5F
SOURCE_VALIDATION, REDIRECT = 0x11, 0x0C  # ACS control: SV and UF; RR and CR


@dataclass(frozen=True)
class Gpu:
    """One endpoint: what MaxReadReq code it starts with and what its link runs at."""

    read_request: int = 2  # 512 bytes
    link: int = 0x1105  # x16 at 32 GT/s; 0x1101 is x16 at 2.5, 0x1085 is x8 at 32


GPUS = (Gpu(), Gpu(), Gpu(0), Gpu(5), Gpu(), Gpu(), Gpu(link=0x1085), Gpu())


def devices(gpus: tuple[Gpu, ...] = GPUS) -> list[str]:
    """QEMU arguments: a root complex a node, two root ports each, a switch below each, two endpoints on a switch."""
    words = []
    for node, bus in ((0, 0x10), (1, 0x80)):
        words += [f"pxb-pcie,id=complex{node},bus=pcie.0,bus_nr={bus},numa_node={node},addr={4 + node}"]
        for port in range(2):
            at = node * 2 + port
            words += [
                f"pcie-root-port,id=root{at},bus=complex{node},chassis={at + 1},slot={at + 1},addr={port},"
                "x-speed=16,x-width=16,io-reserve=0",
                f"x3130-upstream,id=up{at},bus=root{at}",
            ]
            for lane in range(2):
                gpu = at * 2 + lane
                words += [f"xio3130-downstream,id=down{gpu},bus=up{at},chassis={at + 17},slot={lane}"]
                if gpu < len(gpus):
                    words += [f"nvme,id=gpu{gpu},serial=GPU{gpu},bus=down{gpu},cmb_size_mb=64"]
    words += [
        "pcie-root-port,id=rootnic,bus=pcie.0,chassis=40,slot=40,addr=8,x-speed=16,x-width=16",
        "e1000e,id=nic,bus=rootnic,netdev=net",
    ]
    return [part for word in words for part in ("-device", word)] + ["-netdev", "user,id=net,restrict=on"]


def express(
    gpus: tuple[Gpu, ...] = GPUS, *, redirect: tuple[int, ...] = (0, 1, 2, 3), device: str = PRO_6000
) -> str:
    """Lines for express.c: MaxReadReq writable everywhere, NVIDIA ids, links, ACS on switch ports.

    `redirect` numbers the downstream ports whose ACS sends peer traffic up to the root.
    """
    lines = [f"any * exp+8 10 2810 {READ_REQUEST_WRITABLE:x}"]
    for number, gpu in enumerate(gpus):
        at = f"{NVME} {number}"
        lines += [
            f"{at} 8 20 030200a1 0",  # a 3D controller
            f"{at} 2c 20 204e10de 0",
            f"{at} exp+8 10 {0x0810 | gpu.read_request << 12:x} 0",
            f"{at} exp+c 20 00457905 0",
            f"{at} exp+12 10 {gpu.link:x} 0",
            f"{at} exp+2c 20 0000003e 0",
        ]
    for number in range(8):
        control = SOURCE_VALIDATION | (REDIRECT if number in redirect else 0)
        at = f"{DOWNSTREAM} {number}"
        lines += [
            f"{at} cap 0d 1 {ACS_AT:x}",
            f"{at} {ACS_AT + 4:x} 10 {ACS_CAPABLE:x} 0",
            f"{at} {ACS_AT + 6:x} 10 {control:x} {ACS_CAPABLE:x}",
            f"{at} exp+c 20 00447105 0",
            f"{at} exp+12 10 2105 0",
        ]
    lines += [f"{UPSTREAM} * exp+c 20 00447105 0", f"{UPSTREAM} * exp+12 10 1105 0"]
    # A ConnectX-7 by its id, on hardware that is something else.
    lines += [f"{E1000E} 0 exp+8 10 2810 0", f"{E1000E} 0 0 20 102115b3 0"]
    # The id last: it is what the lines above find the function by.
    lines += [f"{NVME} {number} 0 20 {device}10de 0" for number in range(len(gpus))]
    return "\n".join(lines) + "\n"


def processors(count: int) -> str:
    """ASL that gives every CPU idle states (all of them HLT, with growing latencies) and P-states.

    QEMU gives none, so acpi_idle and acpi-cpufreq would not bind. The P-state port 0xe0 is pc-testdev's scratch.
    """
    idle = ", ".join(
        f"Package () {{ ResourceTemplate () {{ Register (FFixedHW, 0, 0, 0) }}, 1, {latency_us}, {power} }}"
        for latency_us, power in ((1, 1000), (100, 500), (800, 200))
    )
    port = "ResourceTemplate () { Register (SystemIO, 32, 0, 0xE0) }"
    speeds = ", ".join(
        f"Package () {{ {mhz}, {milliwatt}, 10, 10, {code}, {code} }}"
        for code, (mhz, milliwatt) in enumerate(
            ((3600, 150000), (3000, 120000), (2400, 90000), (1200, 40000))
        )
    )
    names = [f"\\_SB.CPUS.C{number:03X}" for number in range(count)]
    bodies = [
        f"Scope ({name}) {{ Name (_CST, Package () {{ 3, {idle} }}) Name (_PCT, Package () {{ {port}, {port} }})"
        f" Name (_PPC, 0) Name (_PSS, Package () {{ {speeds} }}) }}"
        for name in names
    ]
    externals = [f"External ({name}, ProcessorObj)" for name in names]
    return "\n".join(['DefinitionBlock ("", "SSDT", 2, "UNCORK", "CPUS", 1) {', *externals, *bodies, "}"])
