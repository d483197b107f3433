"""A resume that is refused names the files that changed, in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock import DataLoader
from penstock.errors import ChangedSourceError
from penstock.index import create_default_jsonl_indexer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in "abcd":
        (folder / f"{name}.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(9)))
    return folder


def refusal(source: Any, state: dict[str, Any]) -> str:
    loader = DataLoader(source, batch_size=4, num_workers=0)
    with pytest.raises(ChangedSourceError) as raised:
        loader.load_state_dict(state)
    return str(raised.value)


def state_of(source: Any) -> dict[str, Any]:
    return DataLoader(source, batch_size=4, num_workers=0).state_dict()


def test_each_file_is_named_with_what_happened_to_it(folder: Path) -> None:
    state = state_of(folder)
    (folder / "a.jsonl").write_text('{"n": 1}\n')
    (folder / "b.jsonl").write_text((folder / "b.jsonl").read_text().replace("8", "9"))
    (folder / "c.jsonl").unlink()
    with (folder / "d.jsonl").open("a") as file:
        file.write('{"n": 9}\n')
    (folder / "e.jsonl").write_text('{"n": 10}\n')
    told = refusal(folder, state)
    assert "it had 36 records, and has 21 now" in told
    assert f"{folder}/a.jsonl shrank (81 bytes then, 9 now), " in told
    assert f"{folder}/b.jsonl was rewritten (81 bytes, as before), " in told
    assert f"{folder}/c.jsonl is gone, or without records, " in told
    assert f"{folder}/d.jsonl grew (81 bytes then, 90 now), {folder}/e.jsonl is new" in told


def test_a_file_that_is_longer_and_another_one_was_rewritten(folder: Path) -> None:
    state = state_of(folder)
    (folder / "a.jsonl").write_text('{"n": 7}\n' * 12)
    told = refusal(folder, state)
    assert f"{folder}/a.jsonl was rewritten (81 bytes then, 108 now) (fingerprint" in told


def test_an_index_in_another_order_is_told_from_other_files(folder: Path) -> None:
    state = state_of(folder)
    with (folder / "a.jsonl").open("a") as file:
        file.write('{"n": 9}\n')
    create_default_jsonl_indexer(folder, overwrite=True)()
    assert f"; {folder}/a.jsonl grew (81 bytes then, 90 now) (finger" in refusal(folder, state)
    again = state_of(folder.joinpath("b.jsonl"))
    assert "its files are the same" in refusal(folder.joinpath("b.jsonl"), {**again, "length": 8})


def _cut(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def _other_table(path: Path) -> None:
    pq.write_table(pa.table({"n": range(7)}), path)


VIEWS: dict[str, Callable[[Path], Any]] = {
    "itself": penstock.open,
    "split": lambda path: penstock.open(path).split(a=0.9, b=0.1)[0],
    "where": lambda path: penstock.open(path).where("n >= 0"),
    "sum": lambda path: penstock.open([{"n": 1}]) + penstock.open(path),
    "mixture": lambda path: penstock.Mixture({"x": penstock.open(path)}, weights={"x": 1}),
}


@pytest.mark.parametrize(
    ("name", "change"),
    [("a.jsonl", _cut), ("a.csv", _cut), ("a.parquet", _other_table)],
)
@pytest.mark.parametrize("view", VIEWS)
def test_files_below_views_and_of_every_format_are_named(
    name: str, change: Callable[[Path], None], view: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"n": range(9)}), path)
    else:
        lines = [f'{{"n": {n}}}' if name == "a.jsonl" else str(n) for n in range(9)]
        path.write_text("\n".join(["n"] * (name == "a.csv") + lines) + "\n")
    state = state_of(VIEWS[view](path))
    change(path)
    assert f"{path} shrank (" in refusal(VIEWS[view](path), state)


RESUME = """
import json, sys, penstock
loader = penstock.DataLoader(sys.argv[1], batch_size=4, num_workers=0)
try:
    loader.load_state_dict(json.loads(sys.argv[2]))
except penstock.errors.ChangedSourceError as why:
    print(why)
"""


def test_processes_that_find_the_index_fresh_again_name_the_files_too(folder: Path) -> None:
    state = json.dumps(state_of(folder))
    (folder / "a.jsonl").write_text('{"n": 1}\n')
    for _ in range(2):
        run = [sys.executable, "-c", RESUME, str(folder), state]
        done = subprocess.run(run, check=True, capture_output=True, text=True, env=os.environ)
        assert f"{folder}/a.jsonl shrank (81 bytes then, 9 now)" in done.stdout


def test_only_files_of_the_run_are_named_where_another_has_equal_bytes(folder: Path) -> None:
    for name in ("1/a.jsonl", "2/b.jsonl"):
        (folder / name).parent.mkdir()
        (folder / name).write_text('{"n": 1}\n' * 9)
    states = [state_of(folder / name) for name in "12"]
    (folder / "2/b.jsonl").write_text('{"n": 7}\n')
    for state in states:
        told = refusal(folder / "2", state)
        assert f"; {folder}/2/b.jsonl shrank (81 bytes then, 9 now) (fing" in told
    (folder / "2/b.jsonl").rename(folder / "2/c.jsonl")
    assert ".jsonl" not in refusal(folder / "2", states[1])
