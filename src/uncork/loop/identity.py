"""The facts of an audit that decide how fast a server is, one named entry each, for the fingerprint of a run.

A setting that uncork can write is named `knob:target`, as in a plan. A dimension whose explorer failed is one unknown
entry of its own, so that it never passes for equal.
"""

from collections.abc import Callable, Mapping
from typing import Any

from uncork.explorers import engine_argv
from uncork.model.facts import Facts
from uncork.model.facts.driver import DriverFacts
from uncork.model.facts.engine import Server
from uncork.model.facts.kernel import KernelFacts
from uncork.model.facts.kernel_version import KernelVersionFacts
from uncork.model.facts.numa import NumaFacts
from uncork.model.facts.p2p import P2pFacts
from uncork.model.facts.pcie import PcieFacts
from uncork.model.facts.power import PowerFacts
from uncork.model.unknown import Unknown

Entries = dict[str, Any]

# What a change through a knob alters besides the entry of its own name: the same setting as the facts tell it.
_ALTERS = {
    "affinity": ("server cpus",),
    "rlimit": ("server limit *",),
    "nvml": ("gpu [0-9]*",),
    "amd_perf_level": ("gpu [0-9]*",),
    "cpufreq_governor": ("cpufreq *",),
    "cpufreq_epp": ("cpufreq *",),
    "cpuidle": ("idle *",),
    "pm_qos": ("latency request",),
    "module": ("modules", "gpu driver*"),  # a driver that was not loaded has no version
    "pci_acs": ("pci *",),
    "pci_mrrs": ("pci *",),
    "pci_relaxed_ordering": ("pci *",),
    "sysfs": (
        "cpufreq *",
        "idle *",
        "pci *",
        "gpu [0-9]*",
        "clocksource",
        "cpus online",
        "aspm policy",
        "energy bias",
    ),
}
# Where a server answers and what it calls itself does not make it faster.
_NO_MATTER = {"host", "port", "served-model-name", "alias", "uds"}


def altered_by(knob: str, target: str) -> tuple[str, ...]:
    """The entries (patterns) that this change may alter."""
    return (f"{knob}:{target}", *_ALTERS.get(knob, ()))


def host_entries(facts: Facts) -> Entries:
    """The entries of the machine."""
    rooms: tuple[tuple[str, Any, Callable[[Any], Entries]], ...] = (
        ("kernel version", facts.kernel_version, _version),
        ("kernel settings", facts.kernel, _kernel),
        ("gpus and driver", facts.driver, _driver),
        ("power", facts.power, _power),
        ("numa", facts.numa, _numa),
        ("pcie", facts.pcie, _pcie),
        ("p2p", facts.p2p, _p2p),
    )
    found: Entries = {}
    for name, room, read in rooms:
        found |= {name: room} if isinstance(room, Unknown) else read(room)
    return found


def engine_entries(engine: Server | Unknown) -> Entries:
    """The entries of the server: its name, version, every flag and variable (secrets are gone already), its limits."""
    if isinstance(engine, Unknown):
        return {"engine": engine}
    found: Entries = {
        "engine": engine.kind,
        "engine version": engine.version,
        "engine arguments": _loose(engine),
        "server limit memlock": engine.memlock_bytes,
        "server limit nofile": engine.nofile,
        "server cpus": engine.processes[0].cpus_allowed if engine.processes else Unknown("it has no process"),
    }
    found |= {f"flag --{name}": value for name, value in engine.flags.items() if name not in _NO_MATTER}
    return found | _each("environment", engine.environ)


def notes(facts: Facts) -> Entries:
    """Clocks and temperatures as they were when asked: they move by themselves, so they are no identity."""
    found: Entries = {}
    if not isinstance(facts.power, Unknown) and not isinstance(facts.power.policies, Unknown):
        found["cpu clocks kHz"] = tuple(policy.now_khz for policy in facts.power.policies)
    if not isinstance(facts.driver, Unknown) and not isinstance(facts.driver.gpus, Unknown):
        for gpu in facts.driver.gpus:
            for name in (
                "temperature_c",
                "sm_clock_mhz",
                "memory_clock_mhz",
                "power_mw",
                "event_reasons",
                "link_gen",
            ):
                found[f"gpu {gpu.index} {name}"] = getattr(gpu, name)
    return found


def _version(facts: KernelVersionFacts) -> Entries:
    return {
        "kernel": facts.release,
        "kernel build": facts.version,
        "kernel command line": facts.parameters,
        "kernel preemption": facts.preempt,
        "page bytes": facts.page_bytes,
    }


def _kernel(facts: KernelFacts) -> Entries:
    return {
        **{f"sysctl:{key}": value for key, value in facts.sysctls.items()},
        "thp:enabled": facts.thp_enabled,
        "thp:defrag": facts.thp_defrag,
        "thp:khugepaged/defrag": facts.khugepaged_defrag,
        "swap": _map(facts.swaps, lambda one: one.name),
        "zswap": facts.zswap,
        "clocksource": facts.clocksource,
        "cpus online": facts.cpus_online,
        "cpus isolated": facts.cpus_isolated,
        "smt": facts.smt,
        "huge pages": _map(facts.hugepages, lambda one: f"{one.folder}={one.reserved}"),
        "tuned profile": facts.tuned_profile,
        **_each("mitigation", facts.vulnerabilities),
    }


_GPU = (
    *("name", "vbios", "memory_total_bytes", "persistence", "compute_mode", "mig", "ecc", "power_limit_mw"),
    *(
        "app_sm_clock_mhz",
        "app_memory_clock_mhz",
        "max_sm_clock_mhz",
        "link_gen_max",
        "link_width",
        "perf_level",
    ),
)


def _driver(facts: DriverFacts) -> Entries:
    found: Entries = {
        "gpu driver": facts.module_version,
        "gpu driver parameters": _map_dict(facts.params),
        "modules": _map_dict(facts.modules),
    }
    if isinstance(facts.gpus, Unknown):
        return found | {"gpus": facts.gpus}
    found["gpus"] = len(facts.gpus)
    if facts.gpus:
        found["cuda"] = facts.cuda_version
    return found | {f"gpu {gpu.index} {name}": getattr(gpu, name) for gpu in facts.gpus for name in _GPU}


def _power(facts: PowerFacts) -> Entries:
    found: Entries = {
        "cpu boost": facts.boost,
        "cpu max_perf_pct": facts.max_perf_pct,
        "idle driver": facts.idle_driver,
        "idle governor": facts.idle_governor,
        "idle states off": _map(
            facts.idle_states, lambda one: f"{one.name}={'off' if one.disabled else 'on'}"
        ),
        "latency request": facts.latency_us,
        "energy bias": facts.epb,
        "platform profile": facts.platform_profile,
        "power caps": _map(facts.caps, lambda one: f"{one.path}={one.limit_uw}"),
    }
    if isinstance(facts.policies, Unknown):
        return found | {"cpufreq": facts.policies}
    for policy in facts.policies:
        name = policy.path.rpartition("/")[2]
        for field in ("driver", "governor", "epp", "min_khz", "max_khz"):
            found[f"cpufreq {name} {field}"] = getattr(policy, field)
    return found


def _numa(facts: NumaFacts) -> Entries:
    return {"numa nodes": _map(facts.nodes, lambda one: f"{one.number}: cpus {one.cpus} at {one.distances};")}


def _pcie(facts: PcieFacts) -> Entries:
    found: Entries = {"aspm policy": facts.aspm_policy, "iommu": facts.iommu_default}
    if isinstance(facts.devices, Unknown):
        return found | {"pci devices": facts.devices}
    for device in facts.devices:
        if device.kind == "other" or not device.bdf:
            continue
        head = f"pci {device.bdf}"
        found |= {f"{head} width": device.width, f"{head} max speed GT/s": device.max_speed_gt_s}
        found[f"{head} iommu"] = device.iommu_type
        config = device.config
        if isinstance(config, Unknown):
            if not _absent(device.width):  # a function without a link has no such configuration
                found[f"{head} configuration"] = config
            continue
        found[f"{head} payload"] = config.payload_bytes
        found[f"pci_mrrs:{device.bdf}"] = config.read_request_bytes
        found[f"pci_relaxed_ordering:{device.bdf}"] = config.relaxed_ordering
        found[f"pci_acs:{device.bdf}"] = config.acs_control
    return found


def _p2p(facts: P2pFacts) -> Entries:
    return {f"nccl.conf {name}": value for name, value in facts.config.items()} | {"p2p read": facts.read}


def _loose(engine: Server) -> tuple[str, ...] | Unknown:
    """The words of its command line that belong to no flag."""
    found = engine_argv.kind_and_arguments(engine.command)
    if found is None:
        return Unknown("its command line was not seen")
    return engine_argv.parse_flags(*found)[1]


def _absent(value: object) -> bool:
    return isinstance(value, Unknown) and value.absent


def _each(head: str, values: Mapping[str, Any] | Unknown) -> Entries:
    return (
        {head: values}
        if isinstance(values, Unknown)
        else {f"{head} {name}": one for name, one in values.items()}
    )


def _map(values: tuple[Any, ...] | Unknown, show: Callable[[Any], str]) -> tuple[str, ...] | Unknown:
    return values if isinstance(values, Unknown) else tuple(show(one) for one in values)


def _map_dict(values: Mapping[str, Any] | Unknown) -> tuple[str, ...] | Unknown:
    return (
        values
        if isinstance(values, Unknown)
        else tuple(f"{name}={one}" for name, one in sorted(values.items()))
    )
