"""Tokenising that is killed, interrupted, done by many at once, or without room."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from penstock.errors import ObjectNotFoundError, StorageError
from penstock.index import IndexStore, create_default_jsonl_indexer
from tests.faults.halting import halting
from tests.index.text_samples import sample_texts
from tests.index.tokenize_program import UNIT, Program
from tests.index.tokenize_samples import (
    by_hand,
    left_of,
    letters,
    tokenise,
    tokens_in,
    write_texts,
)
from tests.rounds import LONG

ROOT = Path(__file__).parents[2]
FILES = {f"{number}.jsonl": sample_texts(30, number) for number in range(6)}
SIZE = 50


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_texts(tmp_path, FILES)
    return tmp_path


def killed(folder: Path, fault: str) -> None:
    program = Program(folder, fault, sample_size=SIZE)
    assert program.ended() == -signal.SIGKILL, program.told


def units(folder: Path) -> list[Path]:
    return sorted(folder.glob(".index.*.penstock-index-tmp/*.unit"))


def again(folder: Path, size: int = SIZE, **options: Any) -> list[int]:
    """Do what the program did not finish; return what was told of bytes."""
    told: list[int] = []

    class View:
        def add(self, count: int) -> None:
            told.append(count)

    tokenise(folder, sample_size=size, unit_bytes=UNIT, progress=View(), **options)
    assert tokens_in(folder) == by_hand(FILES, size)
    assert left_of(folder) == []
    return told


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_killed_process_had_done_is_not_done_again(workers: int, folder: Path) -> None:
    env = halting("*.unit", after=3)
    program = Program(folder, sample_size=SIZE, num_workers=workers, env=env)
    while program.process.is_alive() and len(units(folder)) < 3:
        time.sleep(0.01)
    program.process.kill()
    program.ended()
    done = len(units(folder))
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == sorted(FILES)
    told = again(folder)
    assert sum(told) == sum((folder / name).stat().st_size for name in FILES)
    assert len([count for count in told[:done] if count]) == done >= 3


# Of so many `fsync`, the first are those of units, then of token files, and the journal's.
MOMENTS = ["unit:2", "fsync:12", "link:1", "link:4", "link:6", "rename:1", "rmtree:1"]
REPLACING = ["rename:2", "link:3"]
EVERY_MOMENT = [
    f"{call}:{number}" for call in ("fsync", "link", "unit", "rename") for number in range(1, 60)
]


@pytest.mark.parametrize("moment", EVERY_MOMENT if LONG else MOMENTS)
def test_the_same_call_finishes_what_was_killed_at_any_moment(moment: str, folder: Path) -> None:
    program = Program(folder, moment, sample_size=SIZE)
    if not program.ended():
        assert moment not in MOMENTS  # So many calls there are not.
        return
    assert program.process.exitcode == -signal.SIGKILL, program.told
    if (folder / "index").exists():
        assert tokens_in(folder) == by_hand(FILES, SIZE)
    else:
        with pytest.raises(ObjectNotFoundError, match="no index"):
            IndexStore(folder).load()
    again(folder)


@pytest.mark.parametrize("moment", EVERY_MOMENT if LONG else REPLACING)
def test_tokens_that_were_being_replaced_are_there_again(moment: str, folder: Path) -> None:
    tokenise(folder, sample_size=SIZE)
    if not Program(folder, moment, sample_size=30, overwrite=True).ended():
        assert moment not in REPLACING
        return
    # Whoever builds something else there finds what was there before.
    with pytest.raises(FileExistsError):
        tokenise(folder, sample_size=20)
    is_new = len(tokens_in(folder).rows) > len(by_hand(FILES, SIZE).rows)
    assert tokens_in(folder) == by_hand(FILES, 30 if is_new else SIZE)
    assert left_of(folder) == []
    again(folder, 30, overwrite=True)


def test_whoever_does_something_else_removes_what_a_killed_one_left(folder: Path) -> None:
    killed(folder, "link:4")
    assert list((folder / "tokenized-samples").iterdir())
    create_default_jsonl_indexer(folder)()
    assert not (folder / "tokenized-samples").exists()
    assert left_of(folder) == []


def test_files_that_changed_meanwhile_are_tokenised_anew(folder: Path) -> None:
    killed(folder, "link:4")
    changed = FILES | {"0.jsonl": ["another text"]}
    write_texts(folder, changed)
    tokenise(folder, sample_size=SIZE, unit_bytes=UNIT)
    assert tokens_in(folder) == by_hand(changed, SIZE)
    assert left_of(folder) == []


def test_another_tokenizer_takes_nothing_that_was_made_by_one_before(folder: Path) -> None:
    killed(folder, "link:4")
    tokenise(folder, backwards, sample_size=SIZE, unit_bytes=UNIT)
    assert tokens_in(folder) == by_hand(FILES, SIZE, backwards)
    assert left_of(folder) == []


def backwards(text: str) -> list[int]:
    return letters(text)[::-1]


def test_after_an_interrupt_nothing_is_to_be_seen(folder: Path) -> None:
    class Interrupt:
        def __init__(self) -> None:
            self.left = 5

        def add(self, count: int) -> None:
            del count
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenise(folder, sample_size=SIZE, unit_bytes=UNIT, progress=Interrupt())
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == sorted(FILES)
    again(folder)


def test_what_nobody_could_go_on_with_is_not_kept(folder: Path) -> None:
    class Interrupt:
        def add(self, count: int) -> None:
            if units(folder):
                raise KeyboardInterrupt

    def locked(text: str, lock: Lock = Lock()) -> list[int]:  # noqa: B008
        with lock:
            return letters(text)

    # Nobody knows the next time whether a lock is the same.
    options: Any = {"sample_size": SIZE, "unit_bytes": UNIT, "progress": Interrupt()}
    with pytest.raises(KeyboardInterrupt):
        tokenise(folder, locked, **options)
    assert left_of(folder) == []
    with pytest.raises(KeyboardInterrupt):
        tokenise(folder, letters, **options)
    assert units(folder)


@pytest.mark.parametrize("caches", ["one", "several"])
def test_of_many_at_once_one_publishes_and_nothing_is_left(
    caches: str, folder: Path, own_cache: Path
) -> None:
    places = [own_cache / (caches if caches == "one" else str(number)) for number in range(3)]
    programs = [Program(folder, sample_size=SIZE, cache=place) for place in places]
    ended = sorted(program.ended() or 0 for program in programs)
    assert ended == [0, 1, 1], [program.told for program in programs]
    assert tokens_in(folder) == by_hand(FILES, SIZE)
    assert left_of(folder) == []


@pytest.mark.parametrize(("limit", "workers"), [(500, 1), (3000, 0)])
def test_a_full_disk_is_told_and_leaves_nothing(limit: int, workers: int, folder: Path) -> None:
    write_texts(folder, {"big.jsonl": ["x" * 1000] * 10})
    program = Program(folder, f"limit:{limit}", sample_size=SIZE, num_workers=workers)
    assert program.ended() == 2
    assert "writing these tokens takes about" in program.told
    assert "output_base_path=" in program.told
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, "big.jsonl"])


def test_too_little_room_is_told_before_anything_is_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(StorageError, match=r"bytes .*100 are free") as raised:
        tokenise(folder, sample_size=SIZE)
    assert raised.value.errno == errno.ENOSPC  # As if it were found out later: nothing is kept.
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_a_disk_that_filled_up_meanwhile_is_told_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage, calls = shutil.disk_usage(folder), count()
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: usage._replace(free=100) if next(calls) else usage
    )
    with pytest.raises(StorageError, match=r"bytes .*100 are free") as raised:
        tokenise(folder, sample_size=SIZE, unit_bytes=UNIT)
    assert str(raised.value).count("writing these tokens takes about") == 1
    assert left_of(folder) == []


SCRIPT = """
import logging, sys
from pathlib import Path
from tests.index.tokenize_samples import tokenise, letters

logging.basicConfig(format="%(message)s", level="INFO", stream=sys.stdout)

def mine(text):
    return letters(text)

folder = Path(sys.argv[1])
for tokenizer, workers in [(letters, 2), (mine, 1), (lambda text: letters(text), 1), (mine, None)]:
    try:
        print(tokenise(folder, tokenizer, num_workers=workers, unit_bytes=20000, overwrite=True))
    except Exception as failure:
        print(type(failure).__name__, failure)
"""


def test_a_script_without_a_guard_may_tokenise(folder: Path) -> None:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run(
        [sys.executable, script, folder],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ).stdout.splitlines()
    assert out[0].startswith("TokenReport(documents=180,")
    assert re.match("OptionError num_workers=1: .*mine is defined in the script itself", out[1])
    assert re.match("OptionError num_workers=1: .*does not pickle", out[2])
    assert out[3] == "tokenising in this process: there is little to do"
    assert out[4].startswith("TokenReport(documents=180,")
