"""Connections: opened before the clock starts, stamped by the kernel, TLS in memory."""

import contextlib
import resource
import socket
import ssl
import struct
import time
from typing import Any

from uncork.bench.clock import SO_TIMESTAMPNS
from uncork.bench.endpoint import Endpoint
from uncork.bench.http1 import Head
from uncork.bench.plain import Plain
from uncork.bench.records import Exchange
from uncork.errors import MeasureFailed

READ_BYTES = 16384
CONTROL_BYTES = 64
_USER_STAMP = struct.Struct("@qq")


class Connection:
    """One socket and the exchange on it, if any."""

    __slots__ = (
        "endpoint",
        "exchange",
        "fd",
        "head",
        "inline",
        "plain",
        "recvmsg",
        "seen",
        "seen_index",
        "seen_ns",
        "sock",
        "stamps",
        "tls",
        "tries",
        "unsent",
        "used",
    )

    def __init__(self, sock: socket.socket, endpoint: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.endpoint = endpoint
        self.recvmsg = sock.recvmsg
        self.exchange: Exchange | None = None
        self.plain: Plain | None = None  # of the answer being received, once known
        self.stamps = bytearray()  # its exchange's, where `plain` is known
        self.tries = 0  # at learning it, in this answer
        self.head: Head | None = None
        self.unsent: memoryview | None = None
        self.tls: Tls | None = None
        self.used = 0
        self.seen = 0  # pieces at the last look for stalls
        self.seen_ns = 0
        self.seen_index = -1
        self.inline = False  # opened while the clock ran


class Tls:
    """TLS over memory buffers, so that the loop keeps the socket and its stamps."""

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.session = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)

    def handshake(self, sock: socket.socket) -> None:
        """Shake hands on a blocking socket. Raises OSError or ssl.SSLError."""
        while True:
            try:
                self.session.do_handshake()
                sock.sendall(self.outgoing.read())
                return
            except ssl.SSLWantReadError:
                sock.sendall(self.outgoing.read())
                data = sock.recv(READ_BYTES)
                if not data:
                    raise ConnectionError("the server closed the connection in the handshake") from None
                self.incoming.write(data)

    def encrypt(self, data: bytes) -> bytes:
        """What goes on the wire for these bytes."""
        self.session.write(data)
        return self.outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """The plain bytes that became readable with `data`; empty where a record is not whole yet."""
        self.incoming.write(data)
        plain = []
        try:
            while piece := self.session.read(65536):
                plain.append(piece)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return b"".join(plain)


def connect(
    endpoint: Endpoint, number: int, context: ssl.SSLContext | None, timeout_s: float = 10.0
) -> Connection:
    """An open, stamped, non-blocking connection. Raises OSError."""
    sock = socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_stamps(sock)
        link = Connection(sock, number)
        if context is not None:
            link.tls = Tls(context, endpoint.host)
            link.tls.handshake(sock)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return link


def ask_for_stamps(sock: Any) -> bool:
    """Ask the kernel for receive stamps (TCP: Linux 4.14, commit 98aaa913b4ed); False where it refuses."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def keep_stamps_on() -> socket.socket:
    """A socket that does nothing but ask for stamps, to be held while anything is measured.

    The kernel stamps packets only while some socket wants it, and switches that on from a work queue, a moment
    late (net_enable_timestamp in net/core/dev.c). Where a server closes every connection there are moments without any
    such socket, and the first bytes after them would have no stamp.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if ask_for_stamps(sock):
        _wait_for_stamps(sock)
    return sock


def _wait_for_stamps(sock: socket.socket) -> None:
    """Send to ourselves until a stamp comes with it, at most a quarter second: work queues wait on a busy machine."""
    with contextlib.suppress(OSError):
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(0.001)
        until_ns = time.monotonic_ns() + 250_000_000
        while time.monotonic_ns() < until_ns:
            sock.sendto(b".", sock.getsockname())
            if sock.recvmsg(1, CONTROL_BYTES)[1]:
                return
            time.sleep(0.001)


def user_stamp() -> bytes:
    """A stamp of our own clock, in the kernel's shape with zero seconds as its mark."""
    return _USER_STAMP.pack(0, time.monotonic_ns())


def allow_files(count: int) -> None:
    """Raise the limit of open files to what the level needs. Raises `MeasureFailed` where the hard one is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise MeasureFailed(
            f"The level needs {count} open files and the hard limit is {hard}; it was not run.",
            next=f"ulimit -Hn {count} (as root), or a lower --concurrency",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
