"""Files of a kernel that misbehaves, served through /dev/fuse: the program under test makes real system calls.

A stand-in for the kernel's own knobs. One folder of flat files; each file has a value and a rule for writes. The
protocol is that of linux/fuse.h; only what reading and writing small files takes is answered.
"""

import ctypes
import errno
import os
import stat
import struct
from pathlib import Path

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE = 1, 2, 3, 4, 14, 15, 16
STATFS, RELEASE, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 17, 18, 25, 26, 36, 42
SILENT = (FORGET, BATCH_FORGET, INTERRUPT)
DIRECT_IO = 1
ROOT = 1


def mount(place: Path) -> int:
    """Mount at the folder; the handle that requests come from. Raises OSError."""
    handle = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={handle},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"uncork-test", bytes(place), b"fuse", 0, options):
        os.close(handle)
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return handle


def unmount(place: Path) -> None:
    ctypes.CDLL(None, use_errno=True).umount2(bytes(place), 2)  # MNT_DETACH


class Kernel:
    """The served files: values by name, and what a write does to each (`rules`: a word or an errno)."""

    def __init__(self, handle: int, values: dict[str, str], rules: dict[str, str | int], log: Path) -> None:
        self.handle, self.values, self.rules, self.log = handle, dict(values), rules, log
        self.names = list(values)
        self.busy = dict.fromkeys(values, 2)
        self.gone: set[str] = set()

    def serve(self) -> None:
        """Answer until the mount is gone."""
        while True:
            try:
                request = os.read(self.handle, 1 << 17)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                continue
            _, op, unique, node = struct.unpack_from("<IIQQ", request)
            if op in SILENT:
                continue
            try:
                answer = self.answer(op, node, request[40:])
            except OSError as error:
                self.reply(unique, -(error.errno or errno.EIO), b"")
                continue
            if answer is not None:
                self.reply(unique, 0, answer)

    def reply(self, unique: int, error: int, data: bytes) -> None:
        os.write(self.handle, struct.pack("<IiQ", 16 + len(data), error, unique) + data)

    def answer(self, op: int, node: int, body: bytes) -> bytes | None:
        if op == INIT:
            return struct.pack("<IIIIHHIIHHII", 7, 31, 0, 0, 8, 6, 65536, 1, 16, 0, 0, 0) + bytes(24)
        if op == LOOKUP:
            name = body.rstrip(b"\0").decode()
            if name not in self.values or name in self.gone:
                raise OSError(errno.ENOENT, "")
            inode = self.names.index(name) + 2
            return struct.pack("<QQQQII", inode, 1, 0, 0, 0, 0) + self.attributes(inode)
        if op in (GETATTR, SETATTR):
            return struct.pack("<QII", 0, 0, 0) + self.attributes(node)
        if op == STATFS:
            return bytes(80)
        if op in (RELEASE, FLUSH):
            return b""
        if node < 2:
            raise OSError(errno.ENOSYS, "")
        return self.file(op, self.names[node - 2], body)

    def file(self, op: int, name: str, body: bytes) -> bytes | None:
        if name in self.gone:
            raise OSError(errno.ENODEV, "")
        if op == OPEN:
            return struct.pack("<QII", 0, DIRECT_IO, 0)
        if op == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return self.values[name].encode()[offset : offset + size]
        if op == WRITE:
            size = struct.unpack_from("<QQI", body)[2]
            with self.log.open("a", encoding="utf-8") as file:
                file.write(f"{name}={body[40 : 40 + size].decode().strip()}\n")
            if not self.write(name, body[40 : 40 + size].decode().strip()):
                return None  # never answered: the writer sleeps in the kernel
            return struct.pack("<II", size, 0)
        raise OSError(errno.ENOSYS, "")

    def write(self, name: str, value: str) -> bool:
        """What the rule does with a write; false where the call must never return."""
        rule = self.rules.get(name)
        if isinstance(rule, int):
            raise OSError(rule, "")
        if rule == "vanish":
            self.gone.add(name)
            raise OSError(errno.ENODEV, "")
        if rule == "busy_twice" and self.busy[name]:
            self.busy[name] -= 1
            raise OSError(errno.EBUSY, "")
        if rule == "hang":
            return False
        if rule == "ignore":
            return True
        if rule == "clamp":
            value = str(min(int(value), 30))
        self.values[name] = "\t".join(value.split()) + "\n"
        return True

    def attributes(self, inode: int) -> bytes:
        mode = stat.S_IFDIR | 0o755 if inode == ROOT else stat.S_IFREG | 0o644
        return struct.pack("<QQQQQQIIIIIIIIII", inode, 4096, 8, *(0,) * 6, mode, 1, 0, 0, 0, 4096, 0)
