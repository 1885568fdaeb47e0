"""The writes that GPU findings ask for, and when none is asked for."""

import pytest
from tests.hosts import HERE, load

from uncork.audit import judge
from uncork.explorers import explore
from uncork.model.findings import Answer, Change

GPU = "0000:06:00.0"
CPU = "/sys/devices/system/cpu"


def failures(host: str, id: str):
    recorded, _ = load(HERE / f"{host}.json")
    return [r for r in judge(explore(recorded).facts) if r.id == id and r.answer is Answer.FAIL]


CURES = [
    ("driver/modes", "driver.persistence", [Change("nvml", f"{GPU}:persistence", "1", "0")]),
    ("driver/modes", "driver.compute-mode", [Change("nvml", f"{GPU}:compute_mode", "0", "3")]),
    ("power/limit", "power.gpu-power-limit", [Change("nvml", f"{GPU}:power_limit_mw", "600000", "300000")]),
    (
        "power/locked",
        "power.gpu-clock-lock",
        [Change("nvml", f"{GPU}:application_clocks_mhz", "12481,2430", "12481,1200")],
    ),
    ("pcie/acs", "pcie.acs-redirect", [Change("pci_acs", "0000:03:00.0", "0x00", "0x0c")]),
    ("pcie/read-request", "pcie.max-read-request", [Change("pci_mrrs", GPU, "512", "128")]),
    ("pcie/fast-nic", "pcie.max-read-request-nic", [Change("pci_mrrs", "0000:05:00.0", "4096", "512")]),
    ("pcie/ordering", "pcie.relaxed-ordering", [Change("pci_relaxed_ordering", GPU, "1", "0")]),
    (
        "pcie/sleeping",
        "pcie.aspm-link",
        [Change("sysfs", f"/sys/bus/pci/devices/{GPU}/link/l1_aspm", "0", "1")],
    ),
    (
        "power/powersave",
        "power.governor",
        [
            Change("cpufreq_governor", "policy0", "performance", "powersave epp=performance"),
            Change("cpufreq_governor", "policy1", "performance", "powersave epp=performance"),
        ],
    ),
    ("power/no-boost", "power.boost", [Change("sysfs", f"{CPU}/cpufreq/boost", "1", "0")]),
    ("power/slow-c6", "power.c-state-latency", [Change("pm_qos", "cpu_dma_latency", "50", "none")]),
    ("driver/unbound", "driver.module-not-loaded", [Change("module", "nvidia", "loaded", "absent")]),
    ("driver/amd", "driver.amd-perf-level", [Change("amd_perf_level", "0000:83:00.0", "auto", "low")]),
    (
        "driver/amd",
        "power.gpu-power-limit",
        [Change("sysfs", "/sys/class/drm/card0/device/hwmon/hwmon3/power1_cap", "750000000", "500000000")],
    ),
    ("engine/two-cores", "engine.cpu-core-budget", [Change("affinity", "900", "0-63", "0,1")]),
    ("engine/nice", "engine.oom-score", [Change("process", "900:oom_score_adj", "0", "300")]),
]


@pytest.mark.parametrize(("host", "id", "expected"), CURES, ids=[f"{host}:{id}" for host, id, _ in CURES])
def test_a_finding_asks_for_this_write(host, id, expected):
    found = failures(host, id)[0]

    assert list(found.changes) == expected


VETOES = [
    ("pcie/read-request-perf", "pcie.max-read-request", "pcie_bus_perf"),
    ("pcie/acs-vfio", "pcie.acs-redirect", "vfio"),
]


@pytest.mark.parametrize(("host", "id", "reason"), VETOES, ids=[host for host, _, _ in VETOES])
def test_a_veto_reports_and_writes_nothing(host, id, reason):
    found = failures(host, id)

    assert found
    assert all(reason in result.says and result.changes == () for result in found)


WEIGHTS = [
    ("pcie/acs", "pcie.acs-redirect", "P0"),  # under one switch: it would have carried the traffic
    ("pcie/acs-roots", "pcie.acs-redirect", "P1"),  # between roots, without translation
    ("pcie/acs-vfio", "pcie.acs-redirect", "P2"),
    ("pcie/translated", "pcie.iommu-domain", "P0"),
    ("driver/geforce-stock", "p2p.status-matrix", "P2"),
    ("driver/xid31", "driver.xid-recent", "P2"),
    ("power/brake", "power.gpu-throttle-reasons", "P0"),
    ("driver/modes", "driver.mig-mode", "P0"),
]


@pytest.mark.parametrize(("host", "id", "priority"), WEIGHTS, ids=[f"{host}:{id}" for host, id, _ in WEIGHTS])
def test_the_weight_fits_the_host(host, id, priority):
    assert {str(result.priority) for result in failures(host, id)} == {priority}
