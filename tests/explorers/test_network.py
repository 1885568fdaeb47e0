"""RDMA ports, interfaces and sockets."""

from tests.hosts import HERE, DictHost, load

from uncork.explorers.network import explore
from uncork.model.facts.container import Counter
from uncork.model.unknown import is_unknown


def test_a_port_has_its_rate_state_and_both_samples_of_its_errors():
    host, _ = load(HERE / "network" / "rdma-bad.json")

    ports = explore(host).ports

    assert not is_unknown(ports)
    assert (ports[0].state, ports[0].physical, ports[0].rate_gbps) == ("ACTIVE", "LinkUp", 400.0)
    assert ports[0].errors["link_downed"] == Counter(3, 4)
    assert ports[0].relaxed_ordering is False


def test_adapters_know_the_gpus_below_their_root_port():
    host, _ = load(HERE / "network" / "rdma.json")

    assert explore(host).gpu_neighbours == {"0000:08:00.0": ("0000:06:00.0", "0000:07:00.0")}


def test_a_machine_without_adapters_has_no_ports_and_a_pile_of_text_does_not_know():
    assert explore(DictHost({"/sys/class/net/lo/mtu": "65536\n"})).ports == ()
    assert is_unknown(explore(DictHost(attached=True)).ports)


def test_virtual_interfaces_are_left_out():
    text = (
        "2: eno1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP\n"
        "3: docker0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue state DOWN\n"
    )
    cards = explore(DictHost(runs={"ip addr": text}, attached=True)).interfaces

    assert not is_unknown(cards)
    assert [(card.name, card.mtu, card.state) for card in cards] == [("eno1", 9000, "up")]


def test_overflows_are_found_by_the_name_of_their_column():
    text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 2 3\nIpExt: InNoRoutes\nIpExt: 9\n"

    assert explore(DictHost({"/proc/net/netstat": text})).listen == {
        "ListenOverflows": Counter(2, 2),
        "ListenDrops": Counter(3, 3),
    }
