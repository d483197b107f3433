"""A server process of the tests: started in the foreground, logged, never left behind."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

END_TIMEOUT = 30.0
LOG_TAIL = 3000
# Below the range that Linux and macOS take the local ends of connections from.
PORTS = range(20_000, 32_000)


class ServerStartError(RuntimeError):
    """A server of the tests did not come up."""


class Daemon:
    """A running server. Start it in the main thread: with that thread the kernel ends it too."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        """Start `command` in the log's folder, its output going to `log`."""
        self.name = log.stem
        self._log = log
        guard = Path(__file__).with_name("die_with_parent.py")
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(guard), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env=dict(env),
                # Ctrl-C is for pytest, which then ends the servers in their order.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        """What the server wrote so far."""
        return self._log.read_text(errors="replace")

    def wait_until(self, ready: Callable[[], bool], timeout: float) -> None:
        """Return when `ready()`, and raise with the end of the log when the server ends before."""
        deadline = time.monotonic() + timeout
        while not ready():
            if (code := self._process.poll()) is not None:
                raise ServerStartError(f"{self.name} ended with status {code}:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise ServerStartError(f"{self.name} not ready in {timeout} s:\n{self._tail()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End the server at once and wait until it is gone: it holds nothing worth saving."""
        self._process.kill()
        self._process.wait(END_TIMEOUT)

    def _tail(self) -> str:
        return self.output[-LOG_TAIL:]


def free_ports(count: int) -> list[int]:
    """Return different loopback ports on which nothing listens at this moment."""
    with contextlib.ExitStack() as held:
        free: list[int] = []
        for port in random.sample(PORTS, 100):
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                free.append(port)
            if len(free) == count:
                return free
    raise ServerStartError(f"fewer than {count} free among 100 ports tried in {PORTS}")


def listens(port: int) -> bool:
    """Return whether something accepts connections on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
