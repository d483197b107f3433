"""Tokenises a folder in a process of its own, to be killed or kept short of room.

A fault is `link:3` (killed by its third `os.link` that is not of a unit; also `unit`, of those of
units, and `rename`, `fsync`, `rmtree`), or `limit:4000`, the size that a file may have.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import secrets
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.errors import IndexExistsError
from tests.faults.halting import install
from tests.index.tokenize_samples import tokenise

UNIT = 5000


def arm(fault: str) -> None:
    what, _, number = fault.partition(":")
    if what == "limit":
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(number), hard))
        return
    module = shutil if what == "rmtree" else os
    name = "link" if what == "unit" else what
    real = getattr(module, name)
    calls = 0

    def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        if name == "link" and (what == "unit") != str(arguments[1]).endswith(".unit"):
            return real(*arguments, **options)
        calls += 1
        if calls == int(number):
            if what != "rmtree":
                real(*arguments, **options)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    setattr(module, name, dying)


def run(fault: str, options: dict[str, Any], env: dict[str, str], output: str) -> None:
    """Write what an error says; end with 1 for tokens that are there, 2 for a full disk."""
    os.environ.update(env)
    install()
    if fault:
        arm(fault)
    try:
        tokenise(unit_bytes=UNIT, **options)
    except (IndexExistsError, FileExistsError) as failure:
        Path(output).write_text(str(failure))
        sys.exit(1)
    except OSError as failure:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))  # To tell of it.
        Path(output).write_text(str(failure))
        sys.exit(2)


class Program:
    """The process; a fork of one that has loaded everything, which saves most of its time."""

    def __init__(self, folder: Path, fault: str = "", **options: Any) -> None:
        env = {"PENSTOCK_CACHE": str(options.pop("cache", os.environ["PENSTOCK_CACHE"]))}
        env |= options.pop("env", {})
        self._output = str(Path(os.environ["PENSTOCK_CACHE"]) / secrets.token_hex(8))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.index.tokenize_program"])
        arguments = (
            fault,
            {"folder": folder, **options},
            env,
            self._output,
        )
        self.process = context.Process(target=run, args=arguments)
        self.process.start()

    def ended(self) -> int | None:
        """Wait for the end, and return the exit code."""
        self.process.join(60)
        return self.process.exitcode

    @property
    def told(self) -> str:
        with suppress(FileNotFoundError):
            return Path(self._output).read_text()
        return ""
