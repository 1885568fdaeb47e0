"""A guest: a stock Debian kernel under QEMU's own emulator, on this machine's root, read only."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.vm import topology

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("UNCORK_VM_CACHE") or Path.home() / ".cache/uncork-vm")
QEMU = "qemu-system-x86_64"
BOOT_LIMIT_S = 180
DISK_BYTES = 512 << 20


def missing() -> str:
    """Why no guest can be booted here; empty where one can."""
    if not shutil.which(QEMU):
        return f"{QEMU} is not installed (tests/vm/prepare.sh)"
    if not (CACHE / "ready").exists():
        return f"no kernel in {CACHE} (tests/vm/prepare.sh)"
    return ""


@dataclass(frozen=True)
class Ran:
    """What a command in the guest answered."""

    rc: int
    out: str
    err: str


class GuestDied(Exception):
    """The guest ended or fell silent; the text holds the end of its console."""


@dataclass
class Machine:
    """A guest that boots, runs commands, loses power and boots again; its disk survives, its memory does not."""

    cpus: int = 4
    memory_mb: int = 2048
    express: str = field(default_factory=topology.express)
    append: str = ""
    disk: bool = False
    SYSTEMD: ClassVar = Path("/lib/systemd/systemd")  # the guest's too: its root is this machine's
    threads: str = "single"  # as quick as multi for few CPUs, and never seen to hang
    boot_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="uncork-vm-"))
        self.share = self.folder / "share"
        self.share.mkdir()
        self._process: subprocess.Popen | None = None
        self._answers: dict[int, dict] = {}
        self._number = 0
        self._write_share()

    def _write_share(self) -> None:
        for name in ("second.sh", "agent.py"):
            shutil.copy(HERE / "guest" / name, self.share)
        version = (CACHE / "version").read_text(encoding="utf-8").strip()
        (self.share / "modules").write_text(str(CACHE / "system/lib/modules" / version), encoding="utf-8")
        (self.share / "python").write_text(str(Path(sys.executable).resolve()), encoding="utf-8")
        (self.folder / "express").write_text(self.express, encoding="utf-8")
        (self.folder / "cpus.asl").write_text(topology.processors(self.cpus), encoding="utf-8")
        self._tool("iasl", "-p", str(self.folder / "cpus"), str(self.folder / "cpus.asl"))
        if self.disk:
            with (self.folder / "disk").open("wb") as file:
                file.truncate(DISK_BYTES)
            self._tool("mkfs.ext4", "-q", "-E", "lazy_itable_init=1", str(self.folder / "disk"))

    def _tool(self, *argv: str) -> None:
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        subprocess.run(argv, check=True, capture_output=True, env=os.environ | {"PATH": path}, timeout=120)

    def _argv(self) -> list[str]:
        half_cpus, half_mb = self.cpus // 2, self.memory_mb // 2
        words = [QEMU, "-nodefaults", "-display", "none", "-no-reboot", "-M", "q35"]
        words += ["-accel", f"tcg,thread={self.threads}"]
        # Without the hypervisor bit the guest looks like bare metal, which ACS writes require. Family 25 is
        # for acpi-cpufreq, which refuses the older AMD family that is QEMU's default.
        words += ["-cpu", "max,family=25,model=1,-hypervisor", "-m", f"{self.memory_mb}M"]
        words += ["-smp", f"{self.cpus},sockets=2,cores={half_cpus},threads=1"]
        for node in range(2):
            first = node * half_cpus
            words += ["-object", f"memory-backend-ram,id=node{node},size={half_mb}M"]
            words += ["-numa", f"node,nodeid={node},cpus={first}-{first + half_cpus - 1},memdev=node{node}"]
        words += ["-numa", "dist,src=0,dst=1,val=21"]
        words += ["-smbios", "type=0,vendor=Lab,version=1.2,date=01/02/2026"]
        words += ["-smbios", "type=1,manufacturer=Lab Systems,product=Eight"]
        words += ["-smbios", "type=3,manufacturer=Lab Systems"]
        words += ["-kernel", str(CACHE / "vmlinux"), "-initrd", str(CACHE / "initrd.gz")]
        words += ["-serial", f"file:{self.folder}/console", "-device", "pc-testdev"]
        words += ["-acpitable", f"file={self.folder}/cpus.aml"]
        words += ["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=uncork.lab"]
        words += ["-chardev", f"socket,id=agent,path={self.folder}/agent,server=on,wait=off"]
        root = "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap"
        words += ["-virtfs", root, "-virtfs", f"local,path={self.share},mount_tag=lab,security_model=none"]
        words += topology.devices()
        disk = ""
        if self.disk:
            words += ["-drive", f"if=none,id=disk,file={self.folder}/disk,format=raw,cache=writeback"]
            words += ["-device", "virtio-blk-pci,drive=disk,bus=pcie.0"]
            disk = "lab.disk=1"
        return [*words, "-append", f"console=ttyS0 panic=-1 quiet random.trust_cpu=on {disk} {self.append}"]

    def start(self, tries: int = 2) -> "Machine":
        """Boot; one boot in some hundreds hangs under emulation, so a second try is made."""
        began_s = time.monotonic()
        environment = os.environ | {
            "LD_PRELOAD": str(CACHE / "express.so"),
            "UNCORK_VM_EXPRESS": str(self.folder / "express"),
        }
        (self.folder / "agent").unlink(missing_ok=True)
        with (self.folder / "qemu").open("wb") as log:
            self._process = subprocess.Popen(
                self._argv(),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._connect(began_s + BOOT_LIMIT_S)
        except GuestDied:
            self.power_cut()
            if tries > 1:
                return self.start(tries - 1)
            raise
        self.boot_s.append(time.monotonic() - began_s)
        return self

    def _connect(self, end_s: float) -> None:
        self._socket, self._buffer = socket.socket(socket.AF_UNIX), b""
        while True:
            try:
                self._socket.connect(str(self.folder / "agent"))
                break
            except OSError:
                self._check(end_s)
                time.sleep(0.05)
        self._receive("hello", end_s)

    def _check(self, end_s: float) -> None:
        ended = self._process is None or self._process.poll() is not None
        if ended or time.monotonic() > end_s:
            log = (self.folder / "qemu").read_text(encoding="utf-8", errors="replace")
            raise GuestDied(f"{'ended' if ended else 'silent'}\n{log[-1000:]}\n{self.console()[-2000:]}")

    def _receive(self, key: str, end_s: float) -> dict:
        self._socket.settimeout(1)
        while True:
            while b"\n" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\n")
                message = json.loads(line)
                if key in message:
                    return message
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                data = None
            except OSError:
                data = b""
            if data:
                self._buffer += data
            else:
                self._check(time.monotonic() if data == b"" and not self._alive() else end_s)

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(
        self, *argv: str, timeout_s: float = 120, stdin: str = "", env: dict[str, str] | None = None
    ) -> int:
        """Start a command in the guest; its number."""
        self._number += 1
        request = {
            "id": self._number,
            "argv": argv,
            "timeout_s": timeout_s,
            "stdin": base64.b64encode(stdin.encode()).decode(),
            "env": env or {},
        }
        self._socket.settimeout(60)
        self._socket.sendall((json.dumps(request) + "\n").encode())
        return self._number

    def wait(self, number: int, timeout_s: float = 150) -> Ran:
        """The outcome of a command that was sent. Raises `GuestDied`."""
        end_s = time.monotonic() + timeout_s
        while number not in self._answers:
            message = self._receive("id", end_s)
            self._answers[message["id"]] = message
        message = self._answers.pop(number)
        return Ran(message["rc"], message["out"], message["err"])

    def run(self, *argv: str, timeout_s: float = 120, **options) -> Ran:
        """Run a command in the guest to its end."""
        return self.wait(self.send(*argv, timeout_s=timeout_s, **options), timeout_s + 60)

    def sh(self, line: str, **options) -> str:
        """What a line of shell printed in the guest, stripped. Raises AssertionError where it failed."""
        ran = self.run("bash", "-c", line, **options)
        assert ran.rc == 0, f"{line}\n{ran.out}{ran.err}"
        return ran.out.strip()

    def console(self) -> str:
        try:
            return (self.folder / "console").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def power_cut(self) -> None:
        """The machine loses power: what was not on its disk is gone."""
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        if self._process:
            self._process.wait()
        self._answers.clear()
        if hasattr(self, "_socket"):
            self._socket.close()

    def reboot(self) -> None:
        """An orderly end (disks written), and the next boot."""
        self.send("bash", "-c", "sync; echo o > /proc/sysrq-trigger")
        assert self._process is not None
        try:
            self._process.wait(30)
        finally:
            self.power_cut()
        self.start()

    def close(self) -> None:
        self.power_cut()
        shutil.rmtree(self.folder, ignore_errors=True)
