"""Functions of the tests that run in a process of their own, started afresh.

    python -m tests.faults.child MODULE FUNCTION '[ARGUMENTS AS JSON]'

What is told here is told about a plain Python process: no pytest, no threads, no earlier use of an
object store. Arguments and results travel as JSON; what the function prints comes before them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[2]
TIMEOUT = 60.0


class ChildError(AssertionError):
    """A process ended in another way than by returning from its function, or not at all."""


class Child:
    """A running process that the `with` block's end kills, with all processes it has started."""

    def __init__(
        self,
        function: Callable[..., object],
        *arguments: object,
        env: Mapping[str, str] | None = None,
    ) -> None:
        call = [function.__module__, function.__qualname__, json.dumps(arguments)]
        self._name = function.__qualname__
        # A file: nobody has to read it while the process runs.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (until the end)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.child", *call],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, line: str = "") -> None:
        """Send a line to its standard input."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def hear(self) -> str:
        """Return the next line it prints; raise when it ends instead."""
        line = _of(self._process.stdout).readline()
        if not line:
            raise self._unexpected_end()
        return line.rstrip("\n")

    def kill(self) -> list[str]:
        """End it at once, it alone, with no chance to clean up; return the lines not yet heard."""
        self._process.kill()
        self._process.wait(TIMEOUT)
        return _of(self._process.stdout).read().splitlines()

    def result(self) -> Any:
        """Wait for the end of the function and return what it returned."""
        _of(self._process.stdin).close()
        overdue = threading.Timer(TIMEOUT, self._abort)
        overdue.start()
        try:
            output = _of(self._process.stdout).read()
            if self._process.wait() != 0:
                raise self._unexpected_end()
        finally:
            overdue.cancel()
        return json.loads(output.splitlines()[-1])

    def errors(self) -> str:
        """Return what it and all processes that it started printed to standard error until now."""
        self._errors.seek(0)
        return self._errors.read()

    def _abort(self) -> None:
        # Where it hangs is the answer that is looked for: `faulthandler` prints it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGABRT)

    def _unexpected_end(self) -> ChildError:
        status = self._process.wait(TIMEOUT)
        said = self.errors()
        if status == -signal.SIGABRT:
            return ChildError(f"{self._name} still ran after {TIMEOUT} s:\n{said}")
        return ChildError(f"{self._name} ended with status {status}:\n{said}")

    def __enter__(self) -> Child:  # noqa: PYI034 (never inherited from)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(TIMEOUT)
        self._errors.close()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                _of(stream).close()


def run(
    function: Callable[..., object], *arguments: object, env: Mapping[str, str] | None = None
) -> Any:
    """Return what a function returns in a process of its own."""
    with Child(function, *arguments, env=env) as child:
        return child.result()


@contextlib.contextmanager
def run_together(
    function: Callable[..., object], arguments: Sequence[Sequence[object]]
) -> Iterator[list[Child]]:
    """Start a process for each tuple of arguments; they go on together once all are `ready`."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(function, *each)) for each in arguments]
        for child in children:
            assert child.hear() == "ready"
        for child in children:
            child.tell("go")
        yield children


def wait_for_the_others() -> None:
    """Be called by a function that `run_together` runs, where they should meet."""
    print("ready", flush=True)
    sys.stdin.readline()


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def main(module: str, function: str, arguments: str) -> None:
    import faulthandler

    faulthandler.enable()
    result = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
