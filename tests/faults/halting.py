"""Processes that wait before they publish more files than they should.

A test that ends a process half-way must not race with it: on a busy machine the process is done
before the test looks. Here the process, and every one that it starts, stops where the test needs
it, until it is ended.
"""

from __future__ import annotations

import os
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

HALT = "PENSTOCK_TESTS_HALT"
ROOT = Path(__file__).parents[2]
SECONDS = 90.0


def halting(name: str, after: int = 0) -> dict[str, str]:
    """Return what makes processes publish `after` files of that name, and no more: variables."""
    path = os.pathsep.join([str(ROOT / "tests" / "faults" / "halting_site"), str(ROOT)])
    return {"PYTHONPATH": path, HALT: f"{after}:{name}"}


def install() -> None:
    """Halt this process where its environment says."""
    after, _, name = os.environ.get(HALT, "").partition(":")

    def look(event: str, arguments: tuple[object, ...]) -> None:
        if event not in ("os.link", "os.rename"):
            return
        target = Path(os.fsdecode(arguments[1]))  # type: ignore[arg-type]
        if fnmatch(target.name, name) and len([*target.parent.glob(name)]) >= int(after):
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                time.sleep(0.01)  # Shortly, for Ctrl-C may have to get in.
            os._exit(99)  # Nobody ended it.

    if name:
        sys.addaudithook(look)
