"""RDMA ports as ibstat and ibv_devinfo print them."""

from hypothesis import given
from hypothesis import strategies as st

from uncork.parsers.ibstat import Port, parse

IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 10
\t\tLink layer: Ethernet
"""
DEVINFO = """hca_id:\tmlx5_bond_0
\ttransport:\t\t\tInfiniBand (0)
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tactive_mtu:\t\t4096 (5)
\t\t\tlink_layer:\t\tEthernet
"""


def test_ibstat():
    assert parse(IBSTAT) == (
        Port("mlx5_0", 1, "ACTIVE", "LinkUp", 400.0, "InfiniBand"),
        Port("mlx5_1", 1, "DOWN", "Polling", 10.0, "Ethernet"),
    )


def test_ibv_devinfo():
    assert parse(DEVINFO) == (Port("mlx5_bond_0", 1, "ACTIVE", layer="Ethernet"),)


@given(st.text(max_size=300))
def test_any_text_is_ports_or_none(text: str):
    parse(text)
