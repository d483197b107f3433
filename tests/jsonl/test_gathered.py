"""Lines that a sync writer gathers before it hands them on: none lost, all looked at."""

from __future__ import annotations

import json
import logging
import math
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import OptionError
from penstock.jsonl import JsonlDir, JsonlFile
from penstock.jsonl._encode import contains
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("first_nan", [0, 1, 2, 3, 100, 999])
def test_nan_is_counted_in_a_record_that_is_filled_anew(first_nan: int, tmp_path: Path) -> None:
    record: dict[str, object] = {}
    with JsonlFile(tmp_path / "a.jsonl").writer_sync() as writer:
        for number in range(1000):
            record["x"] = math.nan if number >= first_nan else None
            writer.write(record)
        assert writer.not_finite == 1000 - first_nan


@pytest.mark.parametrize("nulls", [0, 0.01, 0.5, 1])
def test_nan_is_told_from_none_wherever_it_stands(nulls: float, tmp_path: Path) -> None:
    chance = random.Random(3)
    records = [
        {"a": None if chance.random() < nulls else 1, "b": [math.nan] * (chance.random() < 0.01)}
        for _ in range(rounds(5000, 50_000))
    ]
    with JsonlFile(tmp_path / "a.jsonl").writer_sync() as writer:
        for record in records:
            writer.write(record)
    assert writer.not_finite == sum(len(record["b"]) for record in records)  # type: ignore[misc, arg-type]


def test_a_record_may_be_emptied_after_it_was_written(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    with file.writer_sync() as writer:
        for number in range(500):
            record: dict[str, object] = {"id": number, "none": None}
            writer.write(record)
            record.clear()
            record["now"] = object()
    assert list(file.iter_records_sync()) == [{"id": n, "none": None} for n in range(500)]


def test_nan_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "penstock"),
        JsonlFile(tmp_path / "a.jsonl").writer_sync() as writer,
    ):
        for _ in range(1000):
            writer.write({"x": math.inf})
    assert len(caplog.records) == 1


@pytest.mark.usefixtures("busy_threads")
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst"])
def test_threads_lose_nothing_of_what_they_gather(name: str, tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / name)
    each = rounds(5000, 100_000)

    def write(thread: int) -> None:
        for number in range(each):
            value = math.nan if number % 1000 == 999 else 2**70 if number % 1000 == 500 else None
            writer.write({"thread": thread, "number": number, "value": value})

    with file.writer_sync() as writer, ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert writer.not_finite == 4 * (each // 1000)
    seen: list[list[int]] = [[], [], [], []]
    for record in file.iter_records_sync():
        seen[record["thread"]].append(record["number"])
    assert seen == [list(range(each))] * 4  # Each thread's own records stay in order.


@pytest.mark.usefixtures("busy_threads")
def test_what_is_written_during_close_is_published_or_refused(tmp_path: Path) -> None:
    for round_ in range(rounds(30, 500)):
        file = JsonlFile(tmp_path / f"{round_}.jsonl")
        writer = file.writer_sync()
        writer.write(-1)
        accepted: list[int] = []
        started = threading.Event()

        def write(writer=writer, accepted=accepted, started=started) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
            for number in range(100_000):
                try:
                    writer.write(number)
                except OptionError:
                    return
                accepted.append(number)
                started.set()

        thread = threading.Thread(target=write)
        thread.start()
        started.wait(10)
        writer.close()
        thread.join()
        published = list(file.iter_records_sync())
        # The line on which it stopped may have been taken by the other thread just before.
        assert published in ([-1, *accepted], [-1, *accepted, len(accepted)])


def test_a_full_shard_is_published_by_the_record_that_no_longer_fits(tmp_path: Path) -> None:
    with JsonlDir(tmp_path / "records").writer_sync(max_records_per_shard=300) as writer:
        for number in range(1, 2000):
            writer.write({"id": number})
            assert len(writer.published) == (number - 1) // 300
    line_bytes = len(json.dumps({"text": "x" * 100}, separators=(",", ":"))) + 1
    with JsonlDir(tmp_path / "bytes").writer_sync(max_bytes_per_shard=10_000) as writer:
        for number in range(1, 2000):
            writer.write({"text": "x" * 100})
            assert len(writer.published) == (number - 1) // (10_000 // line_bytes)


@given(st.binary().map(lambda b: b.replace(b"\0", b"")), st.binary(min_size=1, max_size=3))
def test_contains_is_in(text: bytes, word: bytes) -> None:
    word = word.replace(b"\0", b"n")
    assert contains(text, word) == (word in text)
    assert contains(text + word, word)
