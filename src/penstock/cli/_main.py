"""The start of the command: signals, streams, and the exit code.

After Ctrl-C or SIGTERM the command ends soon, but never in the middle of a write.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 128 + signal.SIGINT
_OBEYED = (signal.SIGINT, signal.SIGTERM)
_GRACE = 5.0
_GRACES_TO_TIDY = 3
_tidying = threading.Event()


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived: clean up as after Ctrl-C."""

    code = 128 + signal.SIGTERM


def main() -> None:
    """Run the `penstock` command with the arguments of this process, and exit."""
    try:
        obey_signals()
        sys.exit(_run())
    except KeyboardInterrupt as failure:
        # Before or after a verb; a verb handles its own interruption.
        sys.exit(failure.code if isinstance(failure, Terminated) else INTERRUPTED)


def _run() -> int:
    # Loaded here, so that Ctrl-C works while modules are loaded.
    import click  # noqa: PLC0415

    from penstock.cli._app import app  # noqa: PLC0415

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Every record is printable in any locale.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app.main(prog_name="penstock", standalone_mode=False)
    except click.ClickException as failure:
        failure.show()
        return failure.exit_code
    except click.Abort as failure:
        raise failure.__cause__ or KeyboardInterrupt from None
    return code if isinstance(code, int) else 0


def obey_signals() -> None:
    """Raise an exception on SIGINT and SIGTERM, and end the process if that takes too long.

    A call into object storage blocks Python's signal handlers until it returns, which may take
    minutes. A thread therefore ends the process 5 s after the signal, or at the second Ctrl-C.
    Everything published is complete at any moment, so nothing breaks.
    """
    for number in _OBEYED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise_once)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading,), name="penstock-signals", daemon=True).start()


@contextmanager
def uninterrupted(*, tidying: bool = False) -> Iterator[None]:
    """Delay signals until the block has ended.

    `tidying` also delays the end of the process by 15 s; a second Ctrl-C still ends it.
    """
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda n, _: came.append(n))
        for number in _OBEYED
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    if tidying:
        _tidying.set()
    try:
        yield
    finally:
        _tidying.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
        if came and callable(handler := before[signal.Signals(came[0])]):
            handler(came[0], None)  # Not sent again: that would count as a second Ctrl-C.


def _raise_once(number: int, _: object) -> None:
    """Raise for the first signal; the watching thread ends the process at the second one."""
    for one in _OBEYED:
        if signal.getsignal(one) is _raise_once:
            signal.signal(one, lambda *_: None)
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _watch(reading: int) -> None:
    number = _next_signal(reading)
    waited = select.select([reading], [], [], _GRACE)[0]
    for _ in range(_GRACES_TO_TIDY):
        if waited or not _tidying.is_set():
            break
        waited = select.select([reading], [], [], _GRACE)[0]
    if waited:
        number = _next_signal(reading)
    text = (
        "\npenstock: interrupted; ended without waiting for what was under way. "
        "Whatever was published is complete and stays.\n"
    )
    os.write(2, text.encode())
    os._exit(128 + number)


def _next_signal(reading: int) -> int:
    while True:
        number = os.read(reading, 1)[0]
        if number in _OBEYED:
            return number
