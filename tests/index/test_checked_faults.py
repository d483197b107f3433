"""Builders of checked indexes that are killed, interrupted, many, or without room."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.halting import halting
from tests.index.checked import bad_of, build, hidden, profile_of, rows_of
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
LINES = [
    b"{oops\n" if n % 1000 == 7 else b'{"id": %d, "text": "%s"}\n' % (n, b"x" * (n % 300))
    for n in range(20_000)
]
UNIT = 50_000


def builder(
    folder: Path, workers: int, *limit: int, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    arguments = [str(folder), str(workers), str(UNIT), *map(str, limit)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.index.builder_program", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )


def finished(folder: Path) -> list[Path]:
    """Return the units that builders have finished and nobody has put together yet."""
    return sorted(folder.glob(".index.*.penstock-index-tmp/*.unit"))


def stop_half_way(folder: Path, workers: int, number: signal.Signals) -> list[Path]:
    with builder(folder, workers, env=halting("*.unit", after=5)) as process:
        while process.poll() is None and len(finished(folder)) < 5:
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode not in (0, 1, 2)
    return finished(folder)


class Told:
    def __init__(self) -> None:
        self.counts: list[int] = []

    def add(self, count: int) -> None:
        self.counts.append(count)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a build that nobody disturbs finds."""
    folder = tmp_path_factory.mktemp("expected")
    (folder / "a.jsonl").write_bytes(b"".join(LINES))
    build(folder, validate=True, profile=True)
    return found_in(folder)


def found_in(folder: Path) -> dict[str, Any]:
    return {"rows": rows_of(folder), "bad": bad_of(folder), "profile": profile_of(folder)}


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGKILL, 2), (signal.SIGINT, 0)])
def test_what_a_stopped_builder_had_done_is_not_done_again(
    number: signal.Signals, workers: int, expected: dict[str, Any], tmp_path: Path
) -> None:
    for turn in range(rounds(1, 20)):
        folder = tmp_path / str(turn)
        folder.mkdir()
        (folder / "a.jsonl").write_bytes(b"".join(LINES))
        done = stop_half_way(folder, workers, number)
        assert [path.name for path in folder.iterdir() if path.name[0] != "."] == ["a.jsonl"]
        assert len(done) >= 5
        told = Told()
        build(folder, validate=True, profile=True, unit_bytes=UNIT, progress=told)
        longest = max(map(len, LINES))
        assert all(UNIT <= count < UNIT + longest for count in told.counts[: len(done)])
        assert len(told.counts) > len(done)
        assert sum(told.counts) == (folder / "a.jsonl").stat().st_size
        assert found_in(folder) == expected
        assert hidden(folder) == []


def test_whoever_builds_something_else_clears_up_first(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(LINES))
    done = stop_half_way(tmp_path, 0, signal.SIGKILL)
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b'{"id": -1}\n')
    build(tmp_path)
    assert len(rows_of(tmp_path)) == len(LINES) + 1
    assert done
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("caches", ["one", "several"])
def test_of_many_builders_one_publishes_and_nothing_is_left(
    caches: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"".join(LINES))
    environments = [
        {"PENSTOCK_CACHE": str(tmp_path / (caches if caches == "one" else str(n)))}
        for n in range(3)
    ]
    processes = [builder(folder, 0, env=env) for env in environments]
    told = [process.communicate(timeout=60) for process in processes]
    assert sorted(process.returncode for process in processes) == [0, 1, 1], told
    assert found_in(folder) == expected
    assert hidden(folder) == []


@pytest.mark.parametrize(("limit", "workers"), [(2_000, 1), (20_000, 0)])
def test_a_full_disk_is_told_and_leaves_nothing(limit: int, workers: int, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(LINES))
    process = builder(tmp_path, workers, limit)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    assert "size limit" in out or "too large" in out
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
