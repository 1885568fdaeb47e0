"""The one contract of all knobs, held on a fake kernel."""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.knobs import fakekernel as fake

import uncork.knobs
from uncork.knobs import KNOBS, recipes
from uncork.model.unknown import Unknown, is_unknown

CPU = "/sys/devices/system/cpu"
POLICY = f"{CPU}/cpufreq/policy0"
PERF_LEVEL = f"/sys/bus/pci/devices/{fake.FakePci.GPU}/power_dpm_force_performance_level"


@dataclass
class Case:
    """One knob on one fake file: where it is, what it holds, what is wanted."""

    knob: str
    target: str
    path: str
    text: str
    before: str
    want: str
    rule: fake.Rule = fake.plain
    after: str | None = None  # what reads back, where it is not literally what was asked for

    @property
    def id(self) -> str:
        return f"{self.knob}:{self.target}"


FILES = [
    Case("sysctl", "kernel.numa_balancing", "/proc/sys/kernel/numa_balancing", "1\n", "1", "0"),
    Case(
        "sysctl",
        "net.ipv4.tcp_rmem",
        "/proc/sys/net/ipv4/tcp_rmem",
        "4096\t131072\t6291456\n",
        "4096 131072 6291456",
        "4096 131072 16777216",
        fake.tabs,
    ),
    Case("sysctl", "net.core.rmem_max", "/proc/sys/net/core/rmem_max", "212992\n", "212992", "16777216"),
    Case(
        "sysctl",
        "net.core.default_qdisc",
        "/proc/sys/net/core/default_qdisc",
        "pfifo_fast\n",
        "pfifo_fast",
        "fq",
    ),
    Case(
        "sysfs",
        "/sys/block/sda/queue/read_ahead_kb",
        "/sys/block/sda/queue/read_ahead_kb",
        "128\n",
        "128",
        "4096",
    ),
    Case(
        "sysfs",
        "/sys/module/pcie_aspm/parameters/policy",
        "/sys/module/pcie_aspm/parameters/policy",
        "[default] performance powersave\n",
        "default",
        "performance",
        fake.choice,
    ),
    Case(
        "cgroup",
        "/sys/fs/cgroup/llm.slice/cpu.max",
        "/sys/fs/cgroup/llm.slice/cpu.max",
        "400000 100000\n",
        "400000 100000",
        "max",
        lambda was, new: "max 100000\n" if new.strip() == "max" else new,
        "max 100000",
    ),
    Case(
        "thp",
        "defrag",
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "[always] defer defer+madvise madvise never\n",
        "always",
        "madvise",
        fake.choice,
    ),
    Case("cpuidle", "cpu0/state3", f"{CPU}/cpu0/cpuidle/state3/disable", "0\n", "0", "1"),
    Case(
        "cpufreq_governor", "policy0", f"{POLICY}/scaling_governor", "schedutil\n", "schedutil", "performance"
    ),
    Case(
        "cpufreq_epp",
        "policy0",
        f"{POLICY}/energy_performance_preference",
        "balance_performance\n",
        "balance_performance",
        "performance",
    ),
    Case(
        "irq_affinity",
        "33",
        "/proc/irq/33/smp_affinity_list",
        "0-3\n",
        "0-3",
        "2,3",
        lambda was, new: "2-3\n" if new.strip() == "2,3" else new,
        "2-3",
    ),
    Case("amd_perf_level", fake.FakePci.GPU, PERF_LEVEL, "auto\n", "auto", "high"),
]


@pytest.fixture(params=FILES, ids=lambda case: case.id)
def case(request, kernel):
    kernel.file(request.param.path, request.param.text, request.param.rule)
    return request.param


@pytest.fixture
def knob(case, knobs):
    return knobs[case.knob]


def test_reads_the_canonical_value(case, knob):
    assert knob.read(case.target) == case.before


def test_writes_reads_back_and_is_satisfied(case, knob):
    knob.write(case.target, case.want)

    assert knob.read(case.target) == (case.after or case.want)
    assert knob.same(case.want, knob.read(case.target))


def test_writes_the_value_in_one_call(case, knob, kernel):
    knob.write(case.target, case.want)

    assert [path for path, _ in kernel.writes] == [case.path]


def test_before_and_wanted_differ(case, knob):
    assert not knob.same(case.want, case.before)


def test_what_was_read_can_be_written_back(case, knob):
    knob.write(case.target, case.want)
    knob.write(case.target, case.before)

    assert knob.read(case.target) == case.before


def test_an_ignored_write_shows(case, knob, kernel):
    kernel.rules[case.path] = fake.ignore
    knob.write(case.target, case.want)

    assert not knob.same(case.want, knob.read(case.target))


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EINVAL, errno.EPERM, errno.EIO, 524])
def test_a_refusal_keeps_the_kernels_errno_and_the_value(case, knob, kernel, code):
    kernel.rules[case.path] = fake.refuse(code)

    with pytest.raises(OSError) as refused:
        knob.write(case.target, case.want)

    assert (refused.value.errno, knob.read(case.target)) == (code, case.before)


def test_busy_twice_succeeds_the_third_time(case, knob, kernel):
    kernel.rules[case.path] = fake.times(2, errno.EBUSY, case.rule)

    for _ in range(2):
        with pytest.raises(OSError):
            knob.write(case.target, case.want)
    knob.write(case.target, case.want)

    assert knob.same(case.want, knob.read(case.target))


def test_a_vanished_target_is_absent_and_not_made_again(case, knob, kernel):
    kernel.vanish(case.path)

    with pytest.raises(FileNotFoundError):
        knob.write(case.target, case.want)

    found = knob.read(case.target)
    assert isinstance(found, Unknown) and found.absent
    assert not (kernel.root / case.path.lstrip("/")).exists()


def test_a_change_by_someone_else_shows(case, knob, kernel):
    knob.write(case.target, case.want)
    kernel.put(case.path, case.text)

    assert not knob.same(case.want, knob.read(case.target))


def test_a_hanging_write_can_be_abandoned_in_its_child(case, knob, kernel):
    path = kernel.root / case.path.lstrip("/")
    path.unlink()
    os.mkfifo(path)  # opening it for writing waits for a reader that never comes
    writer = os.fork()
    if writer == 0:  # pragma: no cover
        try:
            knob.write(case.target, case.want)
        finally:
            os._exit(0)
    try:
        assert os.waitpid(writer, os.WNOHANG) == (0, 0)
    finally:
        os.kill(writer, 9)
        os.waitpid(writer, 0)


def test_the_command_to_paste_puts_the_value_back(case, knob, kernel):
    if case.knob == "sysctl":
        pytest.skip("sysctl(8) knows only the real /proc/sys; the guest tests paste it")
    knob.write(case.target, case.want)
    command = knob.undo_command(case.target, case.before)
    kernel.put(case.path, "")

    subprocess.run(["sh", "-c", command], check=True, timeout=30)

    assert kernel.text(case.path).strip() == case.before


ALONE = """
import json, os, sys
write = os.write
os.write = lambda handle, data: (os.ftruncate(handle, 0), write(handle, data))[1]  # as a sysfs file takes it
sys.path.insert(0, sys.argv[1])
import recipes
recipe, want, value = json.load(sys.stdin)
print(json.dumps([recipes.read(recipe), recipes.same(recipe, want, recipes.read(recipe))]))
recipes.write(recipe, value)
print(json.dumps(recipes.read(recipe)))
"""


def alone(recipe: dict, want: str, value: str, folder: Path) -> list:
    """Run a copy of the recipes in a bare interpreter: read, compare with `want`, write `value`, read."""
    copy = folder / "copy"
    if not copy.exists():
        shutil.copytree(
            Path(recipes.__file__).parent, copy / "recipes", ignore=shutil.ignore_patterns("__pycache__")
        )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ALONE, str(copy)],
        input=json.dumps([recipe, want, value]),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_recipe_undoes_with_the_standard_library_alone(case, knob, tmp_path):
    knob.write(case.target, case.want)

    said = alone(knob.recipe(case.target), case.want, case.before, tmp_path)

    assert said == [[case.after or case.want, True], case.before]
    assert knob.read(case.target) == case.before


def test_scope_risk_and_owners_are_of_the_protocol(case, knob):
    assert knob.scope(case.target) == "runtime"
    assert knob.risk(case.target) in ("low", "medium", "high")
    assert all(isinstance(owner, str) for owner in knob.owners(case.target))
    assert knob.veto(case.target, case.want) == ""


def test_every_name_of_the_catalogue_imports_and_answers():
    for name in KNOBS:
        methods: list[Callable] = [getattr(KNOBS[name], part) for part in ("read", "same", "write", "recipe")]
        assert all(map(callable, methods)), name


def test_the_catalogue_names_no_knob_twice_and_documents_each():
    listed = [line.split()[0] for line in uncork.knobs.__doc__.splitlines() if line.startswith("    ")]

    assert sorted(listed) == sorted(KNOBS)


def test_a_clamped_value_is_not_what_was_asked_for(kernel, knobs):
    kernel.file("/proc/sys/vm/swappiness", "60\n", fake.clamp(0, 200))

    knobs["sysctl"].write("vm.swappiness", "1000")

    assert knobs["sysctl"].read("vm.swappiness") == "200"
    assert not knobs["sysctl"].same("1000", "200")


def test_an_unreadable_target_is_unknown_with_its_reason(knobs):
    found = knobs["rlimit"].read("999999999:memlock")

    assert is_unknown(found) and "no such process" in found.reason


def test_recipes_of_processes_run_alone(tmp_path):
    child = subprocess.Popen(["sleep", "600"])
    try:
        (target,) = KNOBS["rlimit"].targets(f"{child.pid}:nofile")
        soft, hard = resource.prlimit(child.pid, resource.RLIMIT_NOFILE)
        KNOBS["rlimit"].write(target, str(soft // 2))

        said = alone(KNOBS["rlimit"].recipe(target), str(soft // 2), f"{soft}:{hard}", tmp_path)

        assert said == [[f"{soft // 2}:{hard}", True], f"{soft}:{hard}"]
    finally:
        child.kill()
        child.wait()
