"""What explorers read, one file a dimension; every field may be `Unknown`."""

import msgspec

from uncork.model.facts.container import ContainerFacts
from uncork.model.facts.cuda_memory import CudaMemoryFacts
from uncork.model.facts.driver import DriverFacts
from uncork.model.facts.engine import EngineFacts
from uncork.model.facts.firmware import FirmwareFacts
from uncork.model.facts.kernel import KernelFacts
from uncork.model.facts.kernel_version import KernelVersionFacts
from uncork.model.facts.network import NetworkFacts
from uncork.model.facts.numa import NumaFacts
from uncork.model.facts.nvlink import NvlinkFacts
from uncork.model.facts.p2p import P2pFacts
from uncork.model.facts.pcie import PcieFacts
from uncork.model.facts.power import PowerFacts
from uncork.model.facts.storage import StorageFacts
from uncork.model.unknown import Unknown


class Facts(msgspec.Struct, frozen=True):
    """All facts of a host: one struct a dimension, or `Unknown` where its explorer failed."""

    firmware: FirmwareFacts | Unknown
    container: ContainerFacts | Unknown
    driver: DriverFacts | Unknown
    kernel: KernelFacts | Unknown
    kernel_version: KernelVersionFacts | Unknown
    cuda_memory: CudaMemoryFacts | Unknown
    pcie: PcieFacts | Unknown
    power: PowerFacts | Unknown
    p2p: P2pFacts | Unknown
    numa: NumaFacts | Unknown
    engine: EngineFacts | Unknown
    nvlink: NvlinkFacts | Unknown
    network: NetworkFacts | Unknown
    storage: StorageFacts | Unknown
