"""What was kept is written as the host's own boot files, and taken away again only where it is still ours."""

import pytest
from plans import apply_step as draft_step
from plans import new_plan, until_approved

from uncork.apply import boot_files, chain, hold, persist
from uncork.apply.transaction import apply_step
from uncork.errors import Conflict, NotPermitted
from uncork.knobs import knobs_at
from uncork.model.plan import PlannedChange
from uncork.plan.store import Store, find

CHANGES = (
    PlannedChange("sysctl", "vm.swappiness", "1", before="60"),
    PlannedChange("sysctl", "net.core.rmem_max", "9", before="2"),
    PlannedChange("thp", "enabled", "always", before="madvise"),
)


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "root"
    for name, text in (
        ("proc/sys/vm/swappiness", "60"),
        ("proc/sys/net/core/rmem_max", "2"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "madvise"),
        ("etc/hostname", "host"),
    ):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text + "\n", encoding="utf-8")
    return made


@pytest.fixture
def store(tmp_path, root):
    """A host on which the three changes are in force and confirmed."""
    (tmp_path / "state").mkdir()
    with Store(tmp_path / "state") as opened:
        until_approved(opened, new_plan(opened, draft_step("apply-kernel", *CHANGES)))
        step = find(opened.read(), "apply-kernel")
        applied = apply_step(opened, step, knobs=knobs_at(str(root)), guard=lambda *_: "none:")
        hold.confirm(opened, applied.txn)
        yield opened
        assert chain.broken(opened.db) == []


def text(root, path):
    return (root / path.lstrip("/")).read_text(encoding="utf-8")


def test_what_is_in_force_becomes_sysctl_and_tmpfiles(store, root):
    draft = persist.draft(store, root=str(root))
    ends = persist.write(store, draft.files, root=str(root))

    assert [end.end for end in ends] == ["written", "written"]
    assert text(root, boot_files.SYSCTL) == boot_files.HEADER + "vm.swappiness = 1\nnet.core.rmem_max = 9\n"
    assert text(root, boot_files.TMPFILES).endswith(
        "w /sys/kernel/mm/transparent_hugepage/enabled - - - - always\n"
    )
    assert [e.end for e in persist.write(store, draft.files, root=str(root))] == ["same", "same"]


def test_what_was_rolled_back_is_not_persisted(store, root):
    from uncork.apply.rollback import rollback

    rollback(store)

    assert persist.kept(store) == []


def test_undo_removes_the_files(store, root):
    persist.write(store, persist.draft(store, root=str(root)).files, root=str(root))
    ends = persist.undo(store, root=str(root))

    assert [end.end for end in ends] == ["removed", "removed"]
    assert not (root / boot_files.SYSCTL.lstrip("/")).exists()
    assert persist.undo(store, root=str(root)) == []


def test_undo_leaves_a_file_that_someone_edited(store, root):
    persist.write(store, persist.draft(store, root=str(root)).files, root=str(root))
    with (root / boot_files.SYSCTL.lstrip("/")).open("a", encoding="utf-8") as file:
        file.write("vm.dirty_ratio = 3\n")
    ends = {end.path: end.end for end in persist.undo(store, root=str(root))}

    assert ends == {boot_files.SYSCTL: "drift", boot_files.TMPFILES: "removed"}
    assert "vm.dirty_ratio" in text(root, boot_files.SYSCTL)


def test_a_file_of_someone_else_is_not_overwritten_and_then_none_is_written(store, root):
    other = root / boot_files.TMPFILES.lstrip("/")
    other.parent.mkdir(parents=True)
    other.write_text("not ours\n", encoding="utf-8")

    with pytest.raises(Conflict):
        persist.write(store, persist.draft(store, root=str(root)).files, root=str(root))
    assert other.read_text(encoding="utf-8") == "not ours\n"
    assert not (root / boot_files.SYSCTL.lstrip("/")).exists()


def test_a_second_persist_keeps_the_image_of_what_was_there_before_the_first(store, root):
    persist.write(store, {"/etc/x.conf": "one\n"}, root=str(root))
    persist.write(store, {"/etc/x.conf": "two\n"}, root=str(root))

    assert [end.end for end in persist.undo(store, root=str(root))] == ["removed"]
    assert not (root / "etc/x.conf").exists()


def test_where_tuned_owns_the_host_its_profile_gets_the_values(store, root):
    process = root / "proc/77"
    process.mkdir(parents=True)
    (process / "comm").write_text("tuned\n", encoding="utf-8")
    (root / "etc/tuned").mkdir(parents=True)
    (root / "etc/tuned/active_profile").write_text("throughput-performance\n", encoding="utf-8")
    draft = persist.draft(store, root=str(root))

    assert list(draft.files) == [boot_files.TUNED]
    assert "include=throughput-performance" in draft.files[boot_files.TUNED]
    assert "[sysctl]\nvm.swappiness = 1\n" in draft.files[boot_files.TUNED]
    assert "tuned-adm profile uncork" in draft.notes


def test_a_file_that_cannot_be_made_is_a_refusal_and_leaves_nothing_to_undo(store, root):
    with pytest.raises(NotPermitted):
        persist.write(store, {"/etc/hostname/y.conf": "one\n"}, root=str(root))  # a file is in the way

    assert persist.undo(store, root=str(root)) == []


def one(change, **more):
    return boot_files.draft([change], **more)


def test_each_kind_of_change_has_its_file_or_its_note(tmp_path):
    limit = PlannedChange("rlimit", "4242@99:memlock", "unlimited", before="65536")
    drop_in = "/etc/systemd/system/vllm.service.d/90-uncork.conf"

    assert (
        one(PlannedChange("module", "nvidia_peermem", "loaded"))
        .files[boot_files.MODULES]
        .endswith("nvidia_peermem\n")
    )
    assert one(limit, service_of=lambda pid: "vllm.service").files[drop_in] == (
        boot_files.HEADER + "[Service]\nLimitMEMLOCK=infinity\n"
    )
    assert one(limit, user_of=lambda pid: "llm").files[boot_files.LIMITS] == (
        boot_files.HEADER + "llm soft memlock unlimited\nllm hard memlock unlimited\n"
    )
    assert one(PlannedChange("shm_size", "/dev/shm", "64")).notes == (
        "/dev/shm = 64: put size=64 into the options of /dev/shm in /etc/fstab",
    )
    unit = one(PlannedChange("nvml", "GPU-1:persistence", "1"))
    assert "ExecStart=nvidia-smi -i GPU-1 -pm 1" in unit.files[boot_files.UNIT]
    assert "systemctl enable uncork-nvidia.service" in unit.notes
    assert one(PlannedChange("vm_nothing", "x", "1")).notes == ("x = 1: uncork knows no file for it",)


def test_a_governor_with_its_preference_is_two_lines():
    change = PlannedChange("cpufreq_governor", "policy0", "powersave epp=performance")
    lines = one(change).files[boot_files.TMPFILES].splitlines()[1:]

    assert [line.split()[-1] for line in lines] == ["powersave", "performance"]
    assert lines[1].split()[1].endswith("/energy_performance_preference")


def test_the_service_of_a_process_is_read_from_its_cgroup(tmp_path):
    (tmp_path / "proc/42").mkdir(parents=True)
    (tmp_path / "proc/42/cgroup").write_text("0::/system.slice/vllm.service\n", encoding="utf-8")

    assert persist.service_of(42, str(tmp_path)) == "vllm.service"
    assert persist.service_of(43, str(tmp_path)) == ""
