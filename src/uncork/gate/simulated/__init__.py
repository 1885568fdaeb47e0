"""A simulated host: a graph of GPUs, switches, roots and sockets with a virtual clock and faults on any component.

It proves the gate's logic, statistics and localisation; it says nothing about any real machine.
"""

from uncork.gate.simulated.fabric import SimulatedFabric
from uncork.gate.simulated.faults import Fault, FaultKind, parse_fault
from uncork.gate.simulated.graph import HOSTS, SimulatedHost

__all__ = ["HOSTS", "Fault", "FaultKind", "SimulatedFabric", "SimulatedHost", "parse_fault"]
