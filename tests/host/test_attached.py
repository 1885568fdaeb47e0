"""Attachments answer like a machine, and what nobody attached is unknown, never absent."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest
import zstandard

from uncork.errors import BadInput
from uncork.host.attached import AttachedHost
from uncork.host.gather import Limits
from uncork.model.unknown import Unknown

MIXED = """Hi, here is what you asked for.

user@node:~$ cat /proc/cmdline
BOOT_IMAGE=/vmlinuz-6.8 ro iommu=pt
user@node:~$ nvidia-smi topo -m
\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPHB\t0-31\t0
GPU1\tPHB\t X \t0-31\t0
[root@node ~]# ulimit -l
64
== sysctl -a ==
kernel.numa_balancing = 1
net.ipv4.conf.eth0/1.forwarding = 0
# uname -a
Linux node 6.8.0-45-generic #45-Ubuntu SMP x86_64 GNU/Linux
==> /sys/kernel/mm/transparent_hugepage/enabled <==
always [madvise] never
"""


def _host(tmp_path, **files):
    for name, content in files.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return AttachedHost([tmp_path])


def _said(value):
    assert not isinstance(value, Unknown), value.reason
    return value


def test_a_paste_of_several_commands_answers_each_of_them(tmp_path):
    host = _host(tmp_path, env=MIXED)

    assert _said(host.read("/proc/cmdline")) == "BOOT_IMAGE=/vmlinuz-6.8 ro iommu=pt\n"
    assert "PHB" in _said(host.run(("nvidia-smi", "topo", "-m"))).stdout
    assert _said(host.read("/proc/sys/kernel/numa_balancing")) == "1\n"
    assert _said(host.read("/proc/sys/net/ipv4/conf/eth0.1/forwarding")) == "0\n"
    assert _said(host.read("/proc/sys/kernel/osrelease")) == "6.8.0-45-generic\n"
    assert _said(host.read("/sys/kernel/mm/transparent_hugepage/enabled")) == "always [madvise] never\n"
    assert _said(host.query("attached:limits")) == [{"name": "env", "hint": "ulimit -l", "text": "64"}]


def test_outputs_without_any_mark_between_them_come_apart(tmp_path):
    text = (
        "Architecture:  x86_64\nCPU(s):  8\nNUMA node0 CPU(s):  0-7\n"
        "available: 1 nodes (0)\nnode 0 cpus: 0 1 2 3 4 5 6 7\nnode 0 size: 100 MB\n"
        "Module                  Size  Used by\nnvidia_peermem         16384  0\n"
        "01:00.0 3D controller: NVIDIA Corporation Device 2bb5 (rev a1)\n\t\tLnkSta:\tSpeed 32GT/s, Width x16\n"
        "[    0.000000] Linux version 6.8.0 (gcc)\n"
        "[    1.000000] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus\n"
    )
    host = _host(tmp_path, all=text)

    assert _said(host.run(("lscpu",))).stdout.startswith("Architecture")
    assert _said(host.run(("numactl", "-H"))).stdout.startswith("available")
    assert _said(host.read("/proc/modules")).startswith("nvidia_peermem 16384 0")
    assert "Width x16" in _said(host.run(("lspci", "-vvv"))).stdout
    assert "Xid" in _said(host.run(("dmesg",))).stdout
    assert _said(host.list("/sys/devices/system/node")) == ("node0", "online")


def test_what_was_not_attached_is_unknown_and_not_absent(tmp_path):
    host = _host(tmp_path, x="driver: 550.90.07")

    answers = [
        host.read("/proc/cmdline"),
        host.list("/sys/bus/pci/devices"),
        host.run(("lspci", "-vvv")),
        host.exists("/dev/nvidia0"),
        host.link("/sys/x"),
        host.query("nvml"),
        host.query("attached:dmesg"),
    ]

    assert [isinstance(one, Unknown) and not one.absent for one in answers] == [True] * len(answers)
    assert host.glob("/sys/bus/pci/devices/*") == ()


def test_a_filtered_output_is_not_taken_for_the_whole(tmp_path):
    host = _host(tmp_path, lsmod="$ lsmod | grep peermem\n$\n")

    assert isinstance(host.run(("lsmod",)), Unknown)
    assert isinstance(host.read("/proc/modules"), Unknown)
    assert _said(host.query("attached:lsmod")) == [
        {"name": "lsmod", "hint": "lsmod | grep peermem", "text": ""}
    ]


def test_the_same_lines_in_a_log_of_many_services_go_to_their_kinds(tmp_path):
    log = (
        "Feb 24 09:28:18 node systemd[1]: Starting NVIDIA fabric manager service...\n"
        "Feb 24 09:28:19 node kernel: NVRM: Xid (PCI:0000:61:00): 119, Timeout\n"
        "Feb 24 09:28:20 node nv-fabricmanager[15]: fabric manager NVIDIA GPU "
        "driver interface version 535.1.2 don't match\n"
    )
    host = _host(tmp_path, journal=log)

    assert "Xid" in _said(host.query("attached:dmesg"))[0]["text"]
    assert _said(host.query("attached:fabricmanager"))[0]["text"].count("\n") == 1


def test_a_peer_matrix_answers_only_for_the_letters_it_was_asked_with(tmp_path):
    matrix = " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n"
    host = _host(tmp_path, **{"nvidia-smi-topo-p2p-rw.txt": matrix})

    assert "OK" in _said(host.run(("nvidia-smi", "topo", "-p2p", "w"))).stdout
    assert isinstance(host.run(("nvidia-smi", "topo", "-p2p", "n")), Unknown)


def test_a_sosreport_tree_is_a_file_system(tmp_path):
    root = "sosreport-node-2026__"
    host = _host(
        tmp_path,
        **{
            root + "proc__cmdline": "ro quiet\n",
            root + "proc__sys__vm__swappiness": "60\n",
            root
            + "sos_commands__pci__lspci_-nnvv": "01:00.0 3D controller [0302]: NVIDIA Corporation X [10de:2bb5]\n",
            root + "sos_commands__kernel__dmesg": "[    0.000000] Linux version 6.8.0\n",
            root + "etc__modprobe.d__nvidia.conf": "options nvidia NVreg_X=1\n",
        },
    )

    assert _said(host.read("/proc/cmdline")) == "ro quiet\n"
    assert _said(host.read("/proc/sys/vm/swappiness")).strip() == "60"
    assert "10de:2bb5" in _said(host.run(("lspci", "-nn"))).stdout
    assert "Linux version" in _said(host.run(("dmesg",))).stdout
    assert _said(host.list("/etc/modprobe.d")) == ("attached.conf", "nvidia.conf")
    assert host.glob("/etc/modprobe.d/*.conf") == (
        "/etc/modprobe.d/attached.conf",
        "/etc/modprobe.d/nvidia.conf",
    )


def test_sections_of_a_bug_report_are_files_and_commands(tmp_path):
    report = (
        "____________________________________________\n\nStart of NVIDIA bug report log file.\n"
        "____________________________________________\n\n*** /proc/driver/nvidia/version\n"
        "*** ls: -r--r--r-- 1 root root 0 x\n"
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.113.01\n"
        "____________________________________________\n\n*** /var/log/nvidia-installer.log does not exist\n"
        "____________________________________________\n\n/usr/bin/lspci -nntv\n\n-[0000:00]-+-00.0  Host\n"
        "____________________________________________\n\n/usr/bin/nvidia-smi --query\n\n"
        "==============NVSMI LOG==============\nDriver Version : 535.113.01\n"
    )
    host = _host(tmp_path, **{"nvidia-bug-report.log.gz": gzip.compress(report.encode())})

    assert "535.113.01" in _said(host.read("/proc/driver/nvidia/version"))
    assert host.read("/var/log/nvidia-installer.log").absent
    assert host.exists("/var/log/nvidia-installer.log") is False
    assert "-00.0" in _said(host.run(("lspci", "-tv"))).stdout
    assert "Driver Version" in _said(host.run(("nvidia-smi", "-q"))).stdout


def test_bare_values_are_told_by_content_and_where_that_cannot_by_name(tmp_path):
    host = _host(
        tmp_path,
        **{
            "cgroup-cpu.max": "600000 100000\n",
            "available_clocksource": "acpi_pm \n",
            "pids.max": "2048\n",
            "note": "2048\n",
        },
    )

    assert _said(host.read("/sys/fs/cgroup/cpu.max")) == "600000 100000\n"
    assert "acpi_pm" in _said(host.read("/sys/devices/system/clocksource/clocksource0/available_clocksource"))
    assert _said(host.read("/sys/fs/cgroup/pids.max")) == "2048\n"


def test_archives_inside_archives_are_opened_and_nothing_is_written(tmp_path):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as tar:
        _add(tar, "logs/lscpu.txt", b"Architecture: x86_64\nCPU(s): 8\n")
    outer = io.BytesIO()
    with tarfile.open(fileobj=outer, mode="w") as tar:
        _add(tar, "deep/inner.tar.gz", inner.getvalue())
    folder = tmp_path / "in"
    host = _host(folder, **{"all.tar.zst": zstandard.ZstdCompressor().compress(outer.getvalue())})

    assert "x86_64" in _said(host.run(("lscpu",))).stdout
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["all.tar.zst", "in"]


def _add(tar, name, data=b"", kind=tarfile.REGTYPE, link=""):
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = len(data), kind, link
    tar.addfile(member, io.BytesIO(data))


def test_a_hostile_archive_neither_escapes_nor_is_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("driver: 999.99\n", encoding="utf-8")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        _add(tar, "/etc/cron.d/evil", b"driver: 111.11\n")
        _add(tar, "../../outside", b"driver: 222.22\n")
        _add(tar, "link", kind=tarfile.SYMTYPE, link=str(secret))
        _add(tar, "hard", kind=tarfile.LNKTYPE, link="../../outside")
        _add(tar, "pipe", kind=tarfile.FIFOTYPE)
        _add(tar, "device", kind=tarfile.CHRTYPE)
    folder = tmp_path / "in"
    host = _host(folder, **{"x.tar": data.getvalue()})

    names = {piece["name"] for piece in _said(host.query("attached:statements"))}
    texts = " ".join(piece["text"] for piece in _said(host.query("attached:statements")))
    assert names <= {"x.tar/etc/cron.d/evil", "x.tar/outside"}
    assert "999.99" not in texts
    assert not (tmp_path / "outside").exists()


def test_links_in_a_folder_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("driver: 999.99\n", encoding="utf-8")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").symlink_to(tmp_path / "secret")
    (folder / "loop").symlink_to(folder)
    (folder / "b").write_text("driver: 550.90\n", encoding="utf-8")

    host = AttachedHost([folder])

    assert [piece["text"] for piece in _said(host.query("attached:statements"))] == ["driver: 550.90"]


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: zstandard.ZstdCompressor().compress(data)])
def test_a_bomb_is_cut_at_the_limit_and_said(tmp_path, pack):
    bomb = tmp_path / "bomb"
    bomb.write_bytes(pack(b"kernel.panic = 1\n" * 600_000))

    host = AttachedHost([bomb], limits=Limits(file_bytes=1 << 20, total_bytes=2 << 20, files=10))

    assert host.left_out == ("bomb: only the first 1048576 bytes were read",)
    assert _said(host.read("/proc/sys/kernel/panic")) == "1\n"


def test_more_files_than_the_limit_are_left_out_and_said(tmp_path):
    for number in range(5):
        (tmp_path / f"f{number}").write_text("driver: 550.90\n", encoding="utf-8")

    host = AttachedHost([tmp_path], limits=Limits(files=3))

    assert host.left_out == ("f3: not read, there is too much", "f4: not read, there is too much")


def test_a_truncated_gzip_gives_what_it_holds(tmp_path):
    whole = gzip.compress(
        "\n".join(f"[ {number}.000000] line {number * 7919 % 1000}" for number in range(20_000)).encode()
    )
    (tmp_path / "dmesg.gz").write_bytes(whole[: len(whole) // 2])

    host = AttachedHost([tmp_path])

    assert _said(host.run(("dmesg",))).stdout.startswith("[ 0.000000] line 0")
    assert host.left_out[0].startswith("dmesg: cut short") or host.left_out[0].startswith(
        "dmesg.gz: cut short"
    )


def test_colours_carriage_returns_and_wrong_bytes_do_not_hide_a_text(tmp_path):
    host = _host(
        tmp_path, topo=b"\x1b[4m\tGPU0\tGPU1\x1b[0m\r\nGPU0\t X \tSYS\t\xff\xfe\r\nGPU1\tSYS\t X \r\n"
    )

    assert "SYS" in _said(host.run(("nvidia-smi", "topo", "-m"))).stdout


def test_thousands_of_lines_of_noise_do_not_hide_a_line(tmp_path):
    noise = "".join(f"step {number} loss 0.{number}\n" for number in range(20_000))
    host = _host(tmp_path, log=noise + "[ 5.0] NVRM: Xid (PCI:0000:01:00): 79, fell\n" + noise)

    assert "Xid" in _said(host.run(("dmesg",))).stdout


def test_nothing_to_read_is_said(tmp_path):
    with pytest.raises(BadInput, match="Nothing to read"):
        AttachedHost([tmp_path])
    with pytest.raises(BadInput, match="cannot be read"):
        AttachedHost([Path(tmp_path / "missing")])
