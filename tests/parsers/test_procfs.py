"""Texts of /proc and cgroupfs, and arbitrary text in their place."""

from hypothesis import given
from hypothesis import strategies as st

from uncork.parsers import procfs
from uncork.parsers.kernel_events import kernel_events


@given(st.text(max_size=400))
def test_no_text_raises(text: str):
    for parse in (
        procfs.counters,
        procfs.keyed,
        procfs.memory_bytes,
        procfs.limits,
        procfs.pressure,
        procfs.swaps,
        procfs.mounts,
        procfs.character_majors,
        procfs.bracketed,
        procfs.command_line,
        kernel_events,
    ):
        parse(text)


def test_limits_know_unlimited():
    text = (
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max locked memory         8388608              unlimited            bytes\n"
        "Max nice priority         0                    0\n"
    )

    assert procfs.limits(text) == {"Max locked memory": (8388608, None), "Max nice priority": (0, 0)}


def test_the_last_mount_over_a_path_holds_it():
    table = procfs.mounts(
        "25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=64k\n"
        "30 25 0:27 / /dev/shm rw - tmpfs tmpfs rw,size=1g\n"
        "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
    )

    shm = procfs.mount_of("/dev/shm/x", table)
    other = procfs.mount_of("/dev/shmoo", table)

    assert shm is not None and shm.super_options == ("rw", "size=1g")
    assert other is not None and other.point == "/"


def test_what_follows_two_dashes_is_not_the_kernels():
    assert procfs.command_line('ro dyndbg="file x +p" -- --firecracker-init mem=1G') == (
        "ro",
        'dyndbg="file x +p"',
    )


def test_node_meminfo_reads_like_the_machines():
    assert procfs.memory_bytes("Node 0 MemFree:  2 kB\n") == {"MemFree": 2048}


def test_a_log_without_times_has_no_rate():
    assert (
        kernel_events("kernel: INFO: task kcompactd0:1175 blocked for more than 120 seconds.").per_second
        is None
    )


def test_one_line_is_told_once_although_two_words_find_it():
    events = kernel_events("[1.0] Memory cgroup out of memory: Killed process 7 (python3)\n")

    assert events.oom_kills == ("[1.0] Memory cgroup out of memory: Killed process 7 (python3)",)


def test_the_rate_leaves_start_up_out():
    quiet = "".join(f"[    {i / 100:.6f}] boot\n" for i in range(900)) + "[ 1120.000000] one\n"

    assert kernel_events(quiet).per_second == 1 / 1000
