"""Ctrl-C at the very moment at which a process of a program begins.

A test that interrupts a program while it starts others must not race with it. Here the new process
itself interrupts everybody, itself included, as a terminal does.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

INTERRUPT = "PENSTOCK_TESTS_INTERRUPT"
ROOT = Path(__file__).parents[2]
IMPORT = "import"


def interrupting(moment: str, once: Path) -> dict[str, str]:
    """Return what makes the first process that comes to a moment interrupt its group: variables.

    `moment` is a part of a command line, or `IMPORT`: where a process imports Penstock. `once` is
    a file that is not there yet.
    """
    path = os.pathsep.join([str(ROOT / "tests" / "faults" / "interrupting_site"), str(ROOT)])
    return {"PYTHONPATH": path, INTERRUPT: f"{moment}:{once}"}


def interrupt(once: str) -> None:
    """Interrupt all processes of this group, as Ctrl-C does, once."""
    with suppress(FileExistsError):
        Path(once).touch(exist_ok=False)
        os.killpg(0, signal.SIGINT)


def install() -> None:
    """Interrupt the group if this process is the one that its environment means."""
    moment, _, once = os.environ.get(INTERRUPT, "").partition(":")
    if moment == IMPORT:

        def look(event: str, arguments: tuple[object, ...]) -> None:
            if event == "import" and arguments[0] == "penstock":
                interrupt(once)

        sys.addaudithook(look)
    elif moment and any(moment in argument for argument in sys.orig_argv):
        interrupt(once)
