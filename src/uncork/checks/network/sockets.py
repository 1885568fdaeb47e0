"""Sockets: backlogs, ports, connection tracking, buffers, clocks."""

import re
from collections.abc import Iterator

from uncork.checks import (
    INFO,
    NONE,
    P1,
    P2,
    RUNTIME,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
)
from uncork.checks.hosts import known, moved, no_server, one_machine, one_node, seen, spread, whole
from uncork.checks.settings import Setting, at_least, declare_setting, exactly, holds, last_at_least
from uncork.model.facts import Facts
from uncork.model.findings import Change
from uncork.model.unknown import UnknownValue, is_unknown

BUFFER_BYTES = 16 << 20

SETTINGS = (
    Setting(
        id="network.slow-start-after-idle",
        target="net.ipv4.tcp_slow_start_after_idle",
        rule=exactly("0"),
        priority=INFO,
        unless=one_machine,
        planned=False,
        doc="""Connections between machines do not start slowly again after a pause.

        Effect: the first burst after a pause on long lines
        Sure: low
        Fix: sysctl net.ipv4.tcp_slow_start_after_idle=0 where connections idle between bursts over a WAN
        Undo: write the former value back
        Folklore: partly
        Source: Linux networking/ip-sysctl.rst, tcp_slow_start_after_idle
        """,
    ),
    Setting(
        id="network.busy-poll",
        target="net.core.busy_poll",
        rule=exactly("0"),
        priority=INFO,
        planned=False,
        change_class=NONE,
        doc="""Sockets do not poll the adapter busily.

        Effect: burns CPU time that an engine needs
        Sure: low
        Fix: none planned
        Undo: nothing to undo
        Folklore: yes: harmful where CPUs are scarce
        Source: Linux admin-guide/sysctl/net.rst, busy_poll; tuned profiles
        """,
    ),
)
for row in SETTINGS:
    declare_setting("network", row)


@check("network.core-buffers", P2, RUNTIME, unless=one_machine)
def core_buffers(facts: Facts) -> Iterator[Verdict]:
    """Socket buffers are large enough for streams between machines.

    Effect: streams with much data in flight: KV transfer or NCCL over TCP, remote object stores; none on one machine
    Sure: medium
    Fix: at least 16 MiB in net.core.rmem_max, wmem_max and the maxima of tcp_rmem and tcp_wmem
    Undo: write the former values back
    Wrong when: RDMA carries the data
    Folklore: partly: listed everywhere, no effect for HTTP on a LAN
    Source: tuned profiles; azhpc-images; Linux networking/ip-sysctl.rst
    """
    rows = (
        ("net.core.rmem_max", at_least(BUFFER_BYTES)),
        ("net.core.wmem_max", at_least(BUFFER_BYTES)),
        ("net.ipv4.tcp_rmem", last_at_least(BUFFER_BYTES)),
        ("net.ipv4.tcp_wmem", last_at_least(BUFFER_BYTES)),
    )
    changes = []
    for key, rule in rows:
        value = known(facts.network.sysctls[key])
        if not holds(rule, value, key):
            changes.append(Change("sysctl", key, rule.want(value), before=value))
    text = ", ".join(f"{key}={facts.network.sysctls[key]}" for key, _ in rows)
    if changes:
        yield fails(
            f"{len(changes)} socket buffers are below 16 MiB",
            evidence=seen("/proc/sys/net", text),
            changes=changes,
        )
    else:
        yield passes("socket buffers of 16 MiB or more", evidence=seen("/proc/sys/net", text))


@check("network.somaxconn", P2, RUNTIME, unless=no_server)
def backlog(facts: Facts) -> Iterator[Verdict]:
    """The accept queue holds a burst of connections.

    Effect: a connection that finds the queue full is retried after a second
    Sure: high
    Fix: sysctl net.core.somaxconn=4096 and tcp_max_syn_backlog alike; new listening sockets only
    Undo: write the former values back
    Wrong when: the server's own backlog is the lower one (uvicorn: 2048)
    Source: listen(2); Linux networking/ip-sysctl.rst, somaxconn
    """
    queue = known(facts.network.sysctls["net.core.somaxconn"])
    drops = facts.network.listen
    now = 0 if is_unknown(drops) else sum(moved(counter) for counter in drops.values())
    total = "?" if is_unknown(drops) else sum(counter.after for counter in drops.values())
    evidence = seen("net.core.somaxconn, /proc/net/netstat", f"{queue}; {total} drops since boot, +{now} now")
    if whole(queue, "somaxconn") < 4096:
        change = Change("sysctl", "net.core.somaxconn", "4096", before=queue)
        yield fails(f"accept queues hold {queue} connections at most", evidence=evidence, change=change)
    elif now:
        yield fails("accept queues overflow now", evidence=evidence)
    else:
        yield passes("accept queues are long enough", evidence=evidence)


@check("network.loopback-tcp-metrics", P2, RUNTIME)
def local_ports(facts: Facts) -> Iterator[Verdict]:
    """Local ports are not used up.

    Effect: connection errors of a load generator or gateway
    Sure: high
    Fix: sysctl net.ipv4.ip_local_port_range="1024 65535", or connections that are kept alive
    Undo: write the former range back
    Source: Linux networking/ip-sysctl.rst, ip_local_port_range and tcp_tw_reuse
    """
    span = known(facts.network.sysctls["net.ipv4.ip_local_port_range"])
    words = span.split()
    if len(words) != 2:
        raise UnknownValue(f"ip_local_port_range holds no range: {span[:40]!r}")
    low, high = (whole(word, "ip_local_port_range") for word in words)
    waiting = known(facts.network.sockets).get("TCP tw", 0)
    evidence = seen("/proc/net/sockstat", f"{waiting} in TIME_WAIT of {high - low + 1} ports")
    if waiting > (high - low + 1) / 2:
        change = Change("sysctl", "net.ipv4.ip_local_port_range", "1024 65535", before=span)
        wide = high - low > 60000
        yield fails(
            "half of the local ports wait to be reused", evidence=evidence, change=None if wide else change
        )
    else:
        yield passes("local ports are free", evidence=evidence)


@check("network.firewall-conntrack", P1, RUNTIME)
def conntrack(facts: Facts) -> Iterator[Verdict]:
    """The table of tracked connections has room.

    Effect: packets are dropped once it is full
    Sure: high
    Fix: a higher net.netfilter.nf_conntrack_max (some 300 bytes an entry)
    Undo: write the former value back
    Source: Linux networking/nf_conntrack-sysctl.rst
    """
    limit = facts.network.sysctls["net.netfilter.nf_conntrack_max"]
    events = facts.kernel.events
    if not is_unknown(events) and events.conntrack_full:
        change = None
        if not is_unknown(limit):
            want = str(whole(limit, "nf_conntrack_max") * 2)
            change = Change("sysctl", "net.netfilter.nf_conntrack_max", want, before=limit)
        yield fails(
            "the table was full: packets were dropped",
            evidence=seen("kernel log", events.conntrack_full[-1]),
            change=change,
        )
        return
    if is_unknown(limit) and limit.absent:
        yield not_applicable("connections are not tracked")
        return
    top = whole(limit, "nf_conntrack_max")
    count = whole(facts.network.sysctls["net.netfilter.nf_conntrack_count"], "nf_conntrack_count")
    evidence = seen("/proc/sys/net/netfilter", f"{count} of {top}")
    if top and count > 0.8 * top:
        change = Change("sysctl", "net.netfilter.nf_conntrack_max", str(top * 2), before=str(top))
        yield fails(f"{count} of {top} connections are tracked", evidence=evidence, change=change)
    else:
        yield passes("the connection table has room", evidence=evidence)


@check("network.irq-rps-xps", P2, RUNTIME, unless=one_node)
def packet_steering(facts: Facts) -> Iterator[Verdict]:
    """Packets are not steered to the CPUs of another node.

    Effect: jitter
    Sure: low
    Fix: masks of the adapter's node in queues/rx-*/rps_cpus
    Undo: write the former masks back
    Folklore: partly
    Source: Linux networking/scaling.rst; mlnx_tune
    """
    cpus = {node.number: known(node.cpus) for node in known(facts.numa.nodes)}
    asked = False
    for card in known(facts.network.interfaces):
        steered = [mask for mask in card.rps if mask.strip("0,") and re.fullmatch(r"[0-9a-f,]+", mask)]
        if not steered or is_unknown(card.numa_node) or card.numa_node not in cpus:
            continue
        asked = True
        local = sum(1 << cpu for cpu in cpus[card.numa_node])
        away = [mask for mask in steered if int(mask.replace(",", ""), 16) & ~local]
        evidence = seen(
            f"/sys/class/net/{card.name}/queues",
            f"{len(away)} of {len(card.rps)} queues steer to another node",
        )
        if away:
            yield fails("packets are steered to another node", card.name, evidence=evidence)
        else:
            yield passes("packet steering stays on the node", card.name, evidence=evidence)
    if not asked:
        yield not_applicable("no packet steering is configured")


@check("network.time-sync", P2, SERVICE_RESTART)
def time_sync(facts: Facts) -> Iterator[Verdict]:
    """Clocks of machines that work together are synchronised.

    Effect: traces and logs that do not line up, tokens that expire early
    Sure: medium
    Fix: start chronyd or systemd-timesyncd
    Undo: stop it
    Wrong when: one machine alone: its clock is its own affair (reported as info)
    Source: adjtimex(2), STA_UNSYNC
    """
    synchronised = facts.network.clock_synchronised
    evidence = seen("adjtimex status", "synchronised" if known(synchronised) else "STA_UNSYNC")
    if known(synchronised):
        yield passes("the clock is synchronised", evidence=evidence)
        return
    servers = facts.engine.servers
    several = not is_unknown(servers) and bool(spread(facts))
    yield fails("the kernel's clock is not synchronised", evidence=evidence, priority=P2 if several else INFO)
