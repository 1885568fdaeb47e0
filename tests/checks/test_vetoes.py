"""What may not be advised: containers, guests, isolation, lockdown, reboots."""

import pytest
from tests.hosts import HERE, DictHost, load, with_base

from uncork.audit import judge
from uncork.checks.vetoes import vetoed
from uncork.explorers import explore
from uncork.model.facts import Facts
from uncork.model.findings import Answer, Change, ChangeClass, Priority, Result

RUNTIME, REBOOT, NONE, HOST_ONLY = (
    ChangeClass.RUNTIME,
    ChangeClass.REBOOT,
    ChangeClass.NONE,
    ChangeClass.HOST_ONLY,
)
ACS = Change("pci_acs", "0000:80:01.0", "0x00", before="0x1d")
READ_REQUEST = Change("pci_mrrs", "0000:81:00.0", "4096", before="512")
SYSCTL = Change("sysctl", "kernel.numa_balancing", "0", before="1")
LIMIT = Change("rlimit", "900:memlock", "unlimited", before="65536")


def failure(*changes: Change, change_class: ChangeClass = RUNTIME, id: str = "x.y") -> Result:
    return Result(
        id=id,
        answer=Answer.FAIL,
        priority=Priority.P1,
        change_class=change_class,
        dimension="pcie",
        says="it is wrong",
        change=changes[0] if changes else None,
        changes=changes,
    )


def facts(name: str = "metal-right", **over: dict[str, object]) -> Facts:
    if not over:
        return explore(load(HERE / f"{name}.json")[0]).facts
    return explore(DictHost(**with_base({"base": "metal", **over}))).facts


def advice(result: Result, host: Facts) -> tuple[ChangeClass, tuple[Change, ...]]:
    (found,) = vetoed((result,), host)
    assert found.answer is Answer.FAIL
    return found.change_class, found.changes


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (failure(SYSCTL), (HOST_ONLY, (SYSCTL,))),
        (failure(LIMIT), (RUNTIME, (LIMIT,))),
        (failure(change_class=REBOOT), (HOST_ONLY, ())),
        (failure(change_class=ChangeClass.FIRMWARE), (HOST_ONLY, ())),
        (failure(change_class=ChangeClass.SERVICE_RESTART), (ChangeClass.SERVICE_RESTART, ())),
        (failure(change_class=NONE), (NONE, ())),
    ],
)
def test_an_unprivileged_container_hands_host_settings_over(result: Result, expected: object):
    assert advice(result, facts("container/lxc-unprivileged")) == expected


FOREIGN = {
    f"/proc/self/ns/{kind}": f"/{kind}:[4026533{number}]" for number, kind in enumerate(("pid", "ipc"))
}
DOCKER = (
    "22 1 0:50 / / rw - overlay overlay rw\n"
    "40 22 0:60 / /proc rw - proc proc rw\n"
    "41 40 0:60 / /proc/sys ro - proc proc rw\n"
    "42 22 0:61 / /sys ro - sysfs sysfs ro\n"
)


def test_a_container_with_read_only_settings_hands_them_over():
    host = facts(links=FOREIGN, files={"/proc/self/mountinfo": DOCKER})

    assert advice(failure(SYSCTL), host) == (HOST_ONLY, (SYSCTL,))


def test_a_privileged_container_may_write_itself():
    host = facts(links=FOREIGN, files={"/proc/self/mountinfo": DOCKER.replace(" ro ", " rw ")})

    assert advice(failure(SYSCTL), host) == (RUNTIME, (SYSCTL,))


def test_a_host_of_its_own_keeps_its_changes():
    host = facts()

    assert advice(failure(SYSCTL, ACS, READ_REQUEST), host) == (RUNTIME, (SYSCTL, ACS, READ_REQUEST))


def test_acs_is_left_alone_where_vfio_holds_a_device():
    host = facts(files={"/sys/bus/pci/drivers/vfio-pci/0000:41:00.0": ""})

    assert advice(failure(ACS), host) == (NONE, ())


def test_acs_is_left_alone_where_virtual_functions_are_active():
    assert advice(failure(ACS), facts("firmware/platform-bad")) == (NONE, ())


def test_acs_is_left_alone_where_virtual_machines_run():
    host = facts(
        files={"/proc/77/cmdline": "/usr/bin/qemu-system-x86_64\0-m\0", "/proc/77/stat": "77 (q) S 1"}
    )

    assert advice(failure(ACS), host) == (NONE, ())


def test_acs_of_a_guest_is_the_hypervisors():
    assert advice(failure(ACS), facts("container/dockerenv-misleads")) == (HOST_ONLY, ())


def test_the_read_request_is_left_alone_under_bus_perf():
    host = facts(files={"/proc/cmdline": "ro pci=realloc,pcie_bus_perf\n"})

    assert advice(failure(READ_REQUEST), host) == (REBOOT, ())


def test_lockdown_turns_writes_to_configuration_space_into_boot_parameters():
    host = facts(files={"/sys/kernel/security/lockdown": "none [integrity] confidentiality\n"})

    assert advice(failure(ACS), host) == (REBOOT, ())
    assert advice(failure(SYSCTL), host) == (RUNTIME, (SYSCTL,))


def test_no_reboot_into_a_kernel_without_a_gpu_module():
    results = judge(facts("kernel_version/no-next-module"))
    reboots = [r for r in results if r.answer is Answer.FAIL and r.change_class is REBOOT]
    (pending,) = [r for r in results if r.id == "kernel-version.pending-reboot"]

    assert reboots == []
    assert pending.change_class is NONE
    assert "no GPU module" in pending.evidence[-1].text


def test_a_fact_that_cannot_be_read_warns_and_leaves_the_change():
    (found,) = vetoed((failure(ACS),), explore(DictHost()).facts)

    assert found.changes == (ACS,)
    assert found.evidence[-1].source == "veto"


def test_answers_other_than_fail_pass_through():
    passing = Result("x.y", Answer.PASS, Priority.P1, RUNTIME, "kernel", "right")

    assert vetoed((passing,), explore(DictHost()).facts) == (passing,)
