"""A process per device, as inference servers have it, each under a deadline; one that hangs is killed and replaced.

The coordinator never touches the memory under test and never times anything. A rank that misses its deadline
gets SIGKILL and a successor with the next generation number; handles carry the generation, because mappings of
a killed rank's memory stay readable and would look like corruption.
"""

import contextlib
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from uncork.gate.fabric import Ended, Stuck
from uncork.gate.serve import MESSAGE_BYTES

KILL_WAIT_S = 2.0


class Reply(msgspec.Struct, frozen=True):
    """How an operation ended in a rank, what it answered, and file descriptors that came with it."""

    ended: Ended
    value: dict[str, Any] = {}
    says: str = ""
    fds: tuple[int, ...] = ()


class _Rank:
    """The coordinator's hold on one process."""

    def __init__(self, program: str, index: int, generation: int, env: Mapping[str, str] | None) -> None:
        self.generation = generation
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MESSAGE_BYTES)
        code = f"from uncork.gate.serve import serve; serve({theirs.fileno()}, {program!r}, {index}, {os.getpid()})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
        )
        theirs.close()
        self.socket = ours

    def last_words(self) -> str:
        """The end of what a dead rank wrote to stderr."""
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        text = (self.process.stderr.read() or b"").decode(errors="replace").strip()
        return text.splitlines()[-1][:200] if text else f"exit status {self.process.poll()}"

    def close(self) -> None:
        self.socket.close()
        assert self.process.stderr is not None
        self.process.stderr.close()


class Ranks:
    """`count` processes that serve the operations of `program`, a module with `operations(index)`.

    `on_start(indices)` runs after ranks were started again, before anything else is asked of them.
    """

    def __init__(
        self,
        program: str,
        count: int,
        *,
        env: Mapping[str, str] | None = None,
        kill: Callable[[int], None] = lambda pid: os.kill(pid, signal.SIGKILL),
        kill_wait_s: float = KILL_WAIT_S,
    ) -> None:
        self._program, self._env, self._kill, self._kill_wait_s = program, env, kill, kill_wait_s
        self.on_start: Callable[[Sequence[int]], None] = lambda indices: None
        self._starting = False
        self._ranks: list[_Rank] = []
        self.grow(count)

    def grow(self, count: int) -> None:
        """Start more processes until there are `count`."""
        for index in range(len(self._ranks), count):
            self._ranks.append(_Rank(self._program, index, 0, self._env))

    def generation(self, index: int) -> int:
        """How many times this rank was replaced."""
        return self._ranks[index].generation

    def pid(self, index: int) -> int:
        """The process id of a rank as it is now."""
        return self._ranks[index].process.pid

    def call(
        self,
        requests: Mapping[int, dict[str, Any]],
        *,
        deadline_s: float,
        fds: Mapping[int, Sequence[int]] | None = None,
    ) -> dict[int, Reply]:
        """Ask these ranks at once and wait for all; one that misses the deadline or dies is replaced.

        Raises `Stuck` where a rank survives SIGKILL.
        """
        for index, request in requests.items():
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                message = marshal.dumps(request)
                socket.send_fds(self._ranks[index].socket, [message], list((fds or {}).get(index, ())))
        replies: dict[int, Reply] = {}
        end_s = time.monotonic() + deadline_s
        waiting = {self._ranks[index].socket: index for index in requests}
        while waiting and (left_s := end_s - time.monotonic()) > 0:
            for ready in select.select(list(waiting), [], [], left_s)[0]:
                index = waiting.pop(ready)
                replies[index] = self._receive(index)
        for index in waiting.values():
            replies[index] = Reply(
                Ended.HANG, says=f"no answer within {deadline_s:.3g} s; its process was replaced"
            )
        # A CUDA context that failed stays broken, so a rank that failed is replaced like one that hung.
        self._replace(sorted(i for i, reply in replies.items() if reply.ended in (Ended.HANG, Ended.FAILED)))
        return replies

    def _receive(self, index: int) -> Reply:
        rank = self._ranks[index]
        try:
            data, fds, _, _ = socket.recv_fds(rank.socket, MESSAGE_BYTES, 8)
        except ConnectionResetError:
            data, fds = b"", []
        if not data:
            rank.process.wait(self._kill_wait_s)
            return Reply(Ended.FAILED, says=f"its process died: {rank.last_words()}")
        answer = marshal.loads(data)
        return Reply(Ended(answer["ended"]), answer.get("value", {}), answer.get("says", ""), tuple(fds))

    def _replace(self, indices: Sequence[int]) -> None:
        for index in indices:
            old = self._ranks[index]
            self._end(index)
            old.close()
            self._ranks[index] = _Rank(self._program, index, old.generation + 1, self._env)
        # A rank that fails while it is being prepared is not prepared again: that would never end.
        if indices and not self._starting:
            self._starting = True
            try:
                self.on_start(indices)
            finally:
                self._starting = False

    def _end(self, index: int) -> None:
        process = self._ranks[index].process
        if process.poll() is None:
            self._kill(process.pid)
        try:
            process.wait(self._kill_wait_s)
        except subprocess.TimeoutExpired:
            raise Stuck(
                index,
                f"process {process.pid} of device {index} survives SIGKILL: the driver holds it in the kernel. "
                "Nothing was reset. Look at `dmesg` for Xid lines, then reset the GPU or reboot.",
            ) from None

    def close(self) -> None:
        """End every rank; a stuck one is left behind."""
        for index, rank in enumerate(self._ranks):
            with contextlib.suppress(Stuck, ProcessLookupError):
                self._end(index)
            rank.close()
