"""Kernel modules, the CPU latency request, the size of a tmpfs. Standard library only."""

import contextlib
import ctypes
import errno
import glob
import importlib
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from typing import Any

Recipe = dict[str, Any]
_files = importlib.import_module(f"{__package__}.files")
_SBIN = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"
MODPROBE_TIMEOUT_S = 60

# A request is in force as long as the descriptor stays open, so a small process keeps it. It needs nothing.
HOLDER = "import signal\nwhile True: signal.pause()"
MARK = "uncork-latency-request"
NO_REQUEST = 2_000_000_000  # PM_QOS_CPU_LATENCY_DEFAULT_VALUE
HOLDER_END_MS = 5_000

MS_REMOUNT = 0x20
MOUNT_FLAGS = {"ro": 0x1, "nosuid": 0x2, "nodev": 0x4, "noexec": 0x8, "noatime": 0x400, "nodiratime": 0x800}
MOUNT_FLAGS |= {"relatime": 0x200000}


def _read_module(recipe: Recipe) -> str:
    folder = recipe["path"]
    if not os.path.isdir(folder):
        return "absent"
    try:
        state = _files.canonical(_files.text(f"{folder}/initstate"))
    except FileNotFoundError:  # built in, or only its parameters are
        return "loaded"
    return "loaded" if state == "live" else str(state)


def _write_module(recipe: Recipe, value: str) -> None:
    if value == "loaded":
        _kmod("modprobe", recipe["name"])
    elif value == "absent":
        users = _files.canonical(_files.text(f"{recipe['path']}/refcnt"))
        holders = sorted(os.listdir(f"{recipe['path']}/holders"))
        if users != "0" or holders:
            who = ", ".join(holders) or f"{users} users"
            raise OSError(errno.EBUSY, f"{recipe['name']} is in use by {who}", recipe["path"])
        _kmod("rmmod", recipe["name"])
    else:
        raise OSError(errno.EINVAL, f"{value}: loaded or absent", recipe["name"])


def _kmod(program: str, name: str) -> None:
    found = shutil.which(program, path=_SBIN)
    if not found:
        raise FileNotFoundError(errno.ENOENT, f"{program} is not installed", program)
    done = subprocess.run(
        [found, name],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=MODPROBE_TIMEOUT_S,
        env=os.environ | {"LC_ALL": "C", "PATH": _SBIN},
        check=False,
    )
    if done.returncode:
        says = done.stderr.decode("utf-8", "replace").strip()
        codes = [code for code in errno.errorcode if says.endswith(": " + os.strerror(code))]
        code = codes[0] if codes else errno.ENOENT if "not found" in says else errno.EIO
        raise OSError(code, says.splitlines()[-1] if says else f"{program} failed", name)


def holders(path: str) -> list[tuple[int, str]]:
    """Our processes that hold a request on this device: their numbers and their values."""
    found = []
    for name in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = _files.text(name).split("\0")
            if words[-4:-2] == [MARK, path]:
                found.append((int(name.split("/")[2]), words[-2]))
    return found


def _read_latency(recipe: Recipe) -> str:
    handle = os.open(recipe["path"], os.O_RDONLY | os.O_CLOEXEC)
    try:
        (effective_us,) = struct.unpack("=i", os.read(handle, 4))
    finally:
        os.close(handle)
    values = [value for _, value in holders(recipe["path"])]
    # Asked for is not yet in force: the kernel takes the smallest of all requests.
    return values[0] if values and effective_us <= int(values[0]) else "none"


def _write_latency(recipe: Recipe, value: str) -> None:
    if value != "none" and not (value.isdigit() and int(value) < NO_REQUEST):
        raise OSError(errno.EINVAL, f"{value}: microseconds, or none", recipe["path"])
    before = holders(recipe["path"])
    if value != "none":
        _hold(recipe["path"], value)
    for pid, _ in before:
        _end(pid)


def _hold(path: str, value: str) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.write(handle, struct.pack("=i", int(value)))
        os.set_inheritable(handle, True)
        null = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)]
        argv = [sys.executable, "-I", "-S", "-c", HOLDER, MARK, path, value]
        pid = os.posix_spawn(sys.executable, argv, {}, file_actions=null, setsid=True)
    finally:
        os.close(handle)
    _await_name(path, pid)


def _await_name(path: str, pid: int) -> None:
    """The spawn returns when exec has begun; a moment passes until /proc shows the new command line."""
    end_s = time.monotonic() + HOLDER_END_MS / 1000
    while pid not in [holder for holder, _ in holders(path)]:
        if time.monotonic() > end_s:
            raise OSError(errno.ETIMEDOUT, f"process {pid} was started to hold the request and is not seen")
        time.sleep(0.001)


def _end(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        if not select.select([process], [], [], HOLDER_END_MS / 1000)[0]:
            raise OSError(errno.ETIMEDOUT, f"process {pid} holds the request and does not end")
    finally:
        os.close(process)


def _mount(path: str) -> list[str]:
    for line in _files.text("/proc/self/mountinfo").splitlines()[::-1]:
        words = line.split()
        if words[4] == path:
            return words[5].split(",") if words[words.index("-") + 1] == "tmpfs" else []
    return []


def _read_tmpfs(recipe: Recipe) -> str:
    if not _mount(recipe["path"]):
        raise FileNotFoundError(errno.ENOENT, "no tmpfs is mounted there", recipe["path"])
    size = os.statvfs(recipe["path"])
    return str(size.f_blocks * size.f_frsize)


def _write_tmpfs(recipe: Recipe, value: str) -> None:
    options = _mount(recipe["path"])
    if not options or not value.isdigit():
        raise OSError(errno.EINVAL, f"{value}: not a size for {recipe['path']}")
    # A remount sets all flags anew; those it had are given again. mode= and uid= stay (tmpfs(5)).
    flags = MS_REMOUNT | sum(MOUNT_FLAGS.get(option, 0) for option in options)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", recipe["path"].encode(), b"tmpfs", flags, f"size={value}".encode()):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), recipe["path"])


READ = {"module": _read_module, "latency-request": _read_latency, "tmpfs-size": _read_tmpfs}
WRITE = {"module": _write_module, "latency-request": _write_latency, "tmpfs-size": _write_tmpfs}
