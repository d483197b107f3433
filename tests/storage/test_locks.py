"""A lock ends with the process that took it, and a forked child changes nothing about that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.datasets.columns._build import only_column_builder
from penstock.index import IndexStore
from penstock.index._folder import NewFolder, UnitFolder, only_builder
from penstock.storage import HiddenFolder, holder_of, take
from penstock.storage._locks import locked, take_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

SOURCE = Path(__file__).parents[2] / "src"


def forked(action: Callable[[], object]) -> int:
    """Run something in a forked child and return how the child ended."""
    child = os.fork()
    if not child:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


BUILDERS: dict[str, Callable[[Path], AbstractContextManager[object]]] = {
    "an index": lambda base: only_builder(str(base / "index"), 5),
    "columns": only_column_builder,
    "a block": lambda base: locked(base / "block"),
}


@pytest.mark.parametrize("what", BUILDERS)
def test_a_forked_child_that_leaves_a_builder_does_not_release_its_parents_lock(
    what: str, tmp_path: Path
) -> None:
    with ExitStack() as building:
        building.enter_context(BUILDERS[what](tmp_path))
        (lock,) = [*tmp_path.rglob("*.lock"), *tmp_path.rglob("block")] or _locks_in_cache()
        assert forked(building.close) == 0
        with holder_of(lock) as holder:
            assert holder == "at work"
    with holder_of(lock) as holder:
        assert holder == "gone"


def _locks_in_cache() -> list[Path]:
    return [*Path(os.environ["PENSTOCK_CACHE"]).rglob("*.lock")]


@pytest.mark.parametrize("kind", ["new", "units", "hidden"])
def test_a_forked_child_that_leaves_a_builder_removes_nothing_of_its_parent(
    kind: str, tmp_path: Path
) -> None:
    place = IndexStore(tmp_path).place
    with ExitStack() as building:
        if kind == "new":
            path = building.enter_context(NewFolder(place)).path
        elif kind == "units":
            path = building.enter_context(UnitFolder(place, "0" * 16)).path
        else:
            path = building.enter_context(HiddenFolder(tmp_path / "index")).path
        (path / "written").write_text("x")
        assert forked(building.close) == 0
        assert (path / "written").read_text() == "x"
        with holder_of(path) as holder:
            assert holder == "at work"
    assert not path.exists()


def test_a_lock_ends_with_its_process_though_a_forked_child_lives_on(tmp_path: Path) -> None:
    """Also by kill -9; a child that sleeps would else keep all others out."""
    program = f"""
import os, sys, time
sys.path.insert(0, {str(SOURCE)!r})
from penstock.storage._locks import take
lock = take({str(tmp_path / "lock")!r}, create=True)
if not os.fork():
    print(os.getpid(), flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            with holder_of(tmp_path / "lock") as holder:
                assert holder == "at work"
            parent.kill()
            parent.wait()
            with holder_of(tmp_path / "lock") as holder:
                assert holder == "gone"
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_folder_that_another_builder_made_anew_is_not_taken_for_a_dead_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking, it was removed and made again, and has a living builder."""
    path = tmp_path / "folder"
    path.mkdir()
    real = os.open

    def late(*args: object, **options: object) -> int:
        descriptor: int = real(*args, **options)  # type: ignore[arg-type]
        monkeypatch.undo()
        path.rmdir()
        path.mkdir()
        return descriptor

    monkeypatch.setattr(os, "open", late)
    with holder_of(path) as holder:
        assert holder == "at work"


def test_links_and_files_in_place_of_a_folder_are_not_held(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    assert [take_folder(tmp_path / name) for name in ("link", "broken", "file")] == [None] * 3
    with pytest.raises(OSError, match="symbolic links"):
        take(tmp_path / "link")


def test_one_module_takes_all_locks() -> None:
    taking = [path.name for path in SOURCE.rglob("*.py") if "flock(" in path.read_text("utf-8")]
    assert taking == ["_locks.py"]
