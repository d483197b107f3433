"""Builders that are killed at every step that changes a folder, and what later runs leave."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.index import create_default_jsonl_indexer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STEPS = {"materialize": ("os.rename", "os.rmdir")}
_ALL = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.scandir")


def _open(data: Path) -> None:
    assert len(penstock.open(data)) >= 5


def _update(data: Path) -> None:
    create_default_jsonl_indexer(data, update=True, progress=False)()


def _materialize(data: Path) -> None:
    penstock.open(data).materialize({"n": "int64", "l": "list<int64>"}, progress=False)


_BUILDERS = {"open": _open, "update": _update, "materialize": _materialize}


def leftovers(root: str, builder: str) -> list[str]:
    """Return the hidden folders that are there after the same call once more, step by step."""
    build, steps, found = _BUILDERS[builder], _STEPS.get(builder, _ALL), []
    for step in itertools.count():
        data = Path(root, str(step), "data")
        data.mkdir(parents=True)
        os.environ["PENSTOCK_CACHE"] = str(data.parent / "cache")
        file = data / "a.jsonl"
        file.write_text('{"n": 1, "l": [2]}\n' * 5)
        if not step:
            build(data)  # Here, so that no child has to load a library.
            continue
        _run(build, data)
        with file.open("a") as more:
            more.write('{"n": 2, "l": []}\n' * 5)
        is_killed = _run(build, data, step, steps)
        _run(build, data)
        hidden = [str(path) for path in data.parent.rglob(".*.penstock-*") if path.is_dir()]
        found += [f"step {step}: {path}" for path in hidden]
        if not is_killed:
            return found if step > 5 else [f"there were only {step} steps"]
    raise AssertionError


def _run(
    build: Callable[[Path], None], data: Path, step: int = 0, steps: Sequence[str] = ()
) -> bool:
    """Build in a process that is killed at a step; return whether it was."""
    child = os.fork()
    if not child:
        if step:
            counted = itertools.count(1)

            def look(event: str, _arguments: object) -> None:
                if event in steps and next(counted) == step:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(look)
        build(data)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), f"the builder ended with {status}"
    return status == signal.SIGKILL
