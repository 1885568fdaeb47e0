"""NCCL and peer-to-peer."""

import msgspec

from uncork.model.unknown import Unknown

Matrix = tuple[tuple[str | Unknown | None, ...], ...]


class NcclLog(msgspec.Struct, frozen=True):
    """What NCCL_DEBUG text says; `transports` counts channels."""

    version: str | None
    warnings: tuple[tuple[str, str], ...]  # source position, text
    transports: dict[str, int]  # P2P, SHM, NET/IB, …
    pairs: dict[tuple[int, int], str]  # ranks → transport
    interfaces: tuple[tuple[str, str], ...]  # name, address
    network: str | None  # IB, Socket, a plugin's name
    environment: dict[str, str]
    ranks: int | None
    no_socket: bool
    gdr: bool | None  # None: it says nothing
    nvls_channels: int | None
    p2p_channels: int | None
    several_hosts: bool
    info: bool  # holds INFO lines, so that their absence means something


class CopyTest(msgspec.Struct, frozen=True):
    """A peer copy or bandwidth test that somebody attached."""

    wrong: tuple[str, ...]  # lines that show data that did not arrive
    passed: bool
    access: dict[tuple[int, int], bool]
    bandwidth: tuple[tuple[str, dict[tuple[int, int], float]], ...]  # title, GB/s (or us) by pair
    pairings: tuple[tuple[tuple[tuple[int, int], ...], float, str], ...]  # pairs at once, GB/s, line
    acs_refused: str  # the line that shows peer access refused while ACS redirects
    names: dict[int, str]


class AmdLink(msgspec.Struct, frozen=True):
    """A KFD link between two GPUs: type 11 is xGMI, 2 PCIe."""

    source: int
    target: int
    kind: int
    weight: int


class P2pFacts(msgspec.Struct, frozen=True):
    """NCCL and peer-to-peer. Rows and columns of a matrix are GPU indices; None on the diagonal."""

    source: str
    levels: Matrix | Unknown  # PIX, PXB, PHB, NODE, SYS, NV#
    read: Matrix | Unknown  # ok, chipset, gpu, topology, regkey, not-supported, unknown
    write: Matrix | Unknown
    nvlink: Matrix | Unknown
    atomics: Matrix | Unknown
    log: NcclLog | Unknown
    test: CopyTest | Unknown
    config: dict[str, str]  # /etc/nccl.conf and ~/.nccl.conf
    interfaces: tuple[str, ...] | Unknown  # network interfaces of the host
    caches: tuple[tuple[str, int | Unknown], ...]  # vLLM's peer access verdicts: path, modification time
    boot_time: int | Unknown
    amd_links: tuple[AmdLink, ...] | Unknown
    topology_file: str | Unknown  # where a cloud left one
    wrong_values: int  # that nccl-tests counted between several ranks; -1 where no test was given
    hung: tuple[str, ...]  # lines in which a reporter says a collective hangs
