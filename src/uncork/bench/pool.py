"""The connections of a level: opened before the clock starts, kept alive, a few to spare in an open loop."""

import select
import ssl
import time

from uncork.bench.endpoint import Endpoint
from uncork.bench.sockets import Connection, allow_files, connect

SPARE_SHARE = 0.25
# Once an arrival, not for as long as something lies there: that saves the kernel a look at every socket it named.
# Whoever has not read all, or was told of the connection's end, asks for another look.
WATCH = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET


class Pool:
    """Open connections by file descriptor; `wire` makes a request's bytes for one of the endpoints."""

    def __init__(
        self,
        endpoints: tuple[Endpoint, ...],
        path: str,
        headers: dict[str, str],
        context: ssl.SSLContext | None,
    ) -> None:
        self.endpoints = endpoints
        self.context = context
        self.epoll = select.epoll()
        self.links: dict[int, Connection] = {}
        self.idle: list[Connection] = []
        self.turn = 0
        self.spares = False
        # Servers that close after every answer without saying so (xllamacpp): learnt from the first loss.
        self.one_shot: set[int] = set()
        self.heads = [_head(endpoint, path, headers) for endpoint in endpoints]

    def open(self, count: int, *, spares: bool = False) -> None:
        """Open `count` connections, endpoints in turn. Raises OSError, `MeasureFailed`."""
        allow_files(count + 64)
        self.spares = spares
        while len(self.links) < count:
            self.idle.append(self.open_one(self._next_endpoint()))

    def open_one(self, number: int) -> Connection:
        """One more connection to that endpoint. Raises OSError."""
        link = connect(self.endpoints[number], number, self.context)
        self.links[link.fd] = link
        self.epoll.register(link.fd, WATCH)
        return link

    def look_again(self, link: Connection) -> None:
        """Have a connection named by the next poll if anything is left to read there."""
        self.epoll.modify(link.fd, WATCH)

    def _next_endpoint(self) -> int:
        self.turn += 1
        return (self.turn - 1) % len(self.endpoints)

    def wire(self, number: int, body: bytes) -> bytes:
        """The bytes of one request."""
        return b"%s%d\r\n\r\n%s" % (self.heads[number], len(body), body)

    def take_all(self) -> list[Connection]:
        """All connections, as slots of a closed loop."""
        slots, self.idle = self.idle, []
        return slots

    def take(self) -> Connection:
        """An idle connection, or one opened now and marked so. Raises OSError."""
        if self.idle:
            return self.idle.pop()
        link = self.reopen(self._next_endpoint())
        link.inline = True
        return link

    def rest(self, link: Connection) -> None:
        """Give a connection back."""
        self.idle.append(link)

    def keep_spares(self, in_flight: int) -> None:
        """Open loop: keep a quarter of what is in flight (at least 4) open and idle, a few at a time."""
        wanted = max(4, int(in_flight * SPARE_SHARE)) if self.spares else 0
        for _ in range(min(16, wanted - len(self.idle))):
            try:
                self.idle.append(self.open_one(self._next_endpoint()))
            except OSError:
                return  # the next request that needs one will say so

    def drop(self, link: Connection) -> None:
        """Close a connection and forget it."""
        if self.links.pop(link.fd, None) is not None:
            self.epoll.unregister(link.fd)
            link.sock.close()
        if link in self.idle:
            self.idle.remove(link)

    def reopen(self, number: int) -> Connection:
        """A new connection in place of a lost one; a refusal is tried three times more within a second.

        Raises OSError: then the server counts as gone.
        """
        for pause_s in (0.1, 0.3, 0.6):
            try:
                return self.open_one(number)
            except OSError:
                time.sleep(pause_s)
        return self.open_one(number)

    def describe(self, number: int, error: OSError) -> str:
        """Which server is gone, and how that showed."""
        return f"{self.endpoints[number].url}: {error.strerror or error}"

    def close(self) -> None:
        """Close everything."""
        for link in list(self.links.values()):
            self.drop(link)
        self.epoll.close()


def _head(endpoint: Endpoint, path: str, headers: dict[str, str]) -> bytes:
    lines = [
        f"POST {endpoint.base}{path} HTTP/1.1",
        f"Host: {endpoint.authority}",
        "Content-Type: application/json",
        "Accept: text/event-stream, application/json",
        *(f"{name}: {value}" for name, value in headers.items()),
        "Content-Length: ",
    ]
    return "\r\n".join(lines).encode("latin-1")
