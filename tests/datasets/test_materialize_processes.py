"""Columns in every process and thread, and when they are gone or damaged there."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import shutil
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.datasets import (
    columns_of,
    drop_columns_of,
    list_columns_of,
    typed_schema,
)
from penstock.datasets.columns._build import only_column_builder
from penstock.index import create_default_jsonl_indexer
from penstock.storage import _locks
from tests.datasets.materialize_programs import Counted, wrong_batches
from tests.datasets.materialize_samples import WHOLE as FIELDS
from tests.datasets.materialize_samples import lines, opened, records, same, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.datasets import Source

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return opened(tmp_path / "data", "jsonl")


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_gather_before_and_after_their_parent_did(method: str, source: Source) -> None:
    columns = source.materialize(FIELDS)
    fresh = source.materialize(FIELDS)
    assert wrong_batches(columns, source, 0) == 0
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        wrong = [pool.submit(wrong_batches, one, source, 1) for one in (columns, fresh)]
        assert [future.result() for future in wrong] == [0, 0]


def test_threads_gather_at_once(source: Source) -> None:
    columns = source.materialize(FIELDS)
    with ThreadPoolExecutor(8) as pool:
        wrong = pool.map(lambda seed: wrong_batches(columns, source, seed), range(8))
        assert list(wrong) == [0] * 8


def test_a_pickle_is_small_and_opens_nothing(source: Source) -> None:
    columns = source.materialize(FIELDS)
    assert columns.read([1], FIELDS).num_rows == 1
    packed = pickle.dumps(columns)
    path = source.files[0].rpartition("/")[0].encode()
    assert len(packed.replace(path, b"")) < 1000
    drop_columns_of(source)
    assert len(pickle.loads(packed)) == 300


def test_what_is_dropped_stays_with_those_who_use_it(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    columns = source.materialize(FIELDS)
    assert wrong_batches(columns, source, 0) == 0
    packed = pickle.dumps(columns)
    drop_columns_of(source)
    with caplog.at_level(logging.WARNING, "penstock.datasets"):
        assert wrong_batches(columns, source, 1) == 0
        assert caplog.text == ""
        assert wrong_batches(pickle.loads(packed), source, 2) == 0
    # One line, not one a batch.
    assert len(caplog.records) == 1
    assert "8 columns" in caplog.text
    assert "source.materialize" in caplog.text


def cut(folder: Path) -> None:
    path = next(folder.glob("*.bin"))
    path.write_bytes(path.read_bytes()[:-1])


def remove_one(folder: Path) -> None:
    next(folder.glob("*.bin")).unlink()


def garble_meta(folder: Path) -> None:
    (folder / "meta.json").write_text("{]")


def foreign_meta(folder: Path) -> None:
    (folder / "meta.json").write_text('{"id": 1}')


def remove_offsets(folder: Path) -> None:
    for path in folder.parent.glob("*-offsets-*"):
        shutil.rmtree(path)


@pytest.mark.parametrize("damage", [cut, remove_one, garble_meta, foreign_meta, remove_offsets])
@pytest.mark.parametrize("name", ["tags-list<int64>", "name-string"])
def test_damaged_columns_are_not_used_and_made_again(
    damage: Callable[[Path], None], name: str, source: Source, tmp_path: Path
) -> None:
    packed = pickle.dumps(source.materialize(FIELDS))
    damage(tmp_path / "data" / "index" / "columns" / name)
    assert wrong_batches(pickle.loads(packed), source, 0) == 0
    is_hurt = name.startswith("tags") or damage is not remove_offsets
    if is_hurt:
        assert columns_of(source, typed_schema(FIELDS)) is None
    view = Counted()
    columns = source.materialize(FIELDS, progress=view)
    assert view.total == 300
    assert wrong_batches(columns, source, 1) == 0
    assert len(list_columns_of(source)) == len(FIELDS)


def test_numbers_of_bad_records_that_are_lost_make_a_column_useless(
    source: Source, tmp_path: Path
) -> None:
    with (tmp_path / "data" / "part-00001.jsonl").open("a") as file:
        file.write(lines([{"id": "x"}]))
    create_default_jsonl_indexer(tmp_path / "data", update=True)()
    source = penstock.open(tmp_path / "data")
    schema = typed_schema({"id": "int64"})
    for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(b"")):
        source.materialize(schema, on_error="mask")
        damage(tmp_path / "data" / "index" / "columns" / "id-int64" / "bad.bin")
        assert columns_of(source, schema) is None
    assert columns_of(source, schema) is None


def test_a_column_that_is_replaced_by_one_of_other_records_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, folder = tmp_path / "columns", tmp_path / "data"
    source = opened(folder, "jsonl")
    packed = pickle.dumps(source.materialize(FIELDS, path=place))
    other = opened(tmp_path / "other", "jsonl", 200)
    other.materialize(FIELDS, path=place)
    with caplog.at_level(logging.WARNING, "penstock.datasets"):
        assert wrong_batches(pickle.loads(packed), source, 0) == 0
    assert "of other records" in caplog.text


def test_appended_records_are_read_from_the_source(tmp_path: Path) -> None:
    """Columns that are shorter than their source count as gone."""
    folder = tmp_path / "data"
    short = opened(folder, "jsonl").materialize(FIELDS)
    write(folder, "jsonl", "part-00002", records(300, 330))
    create_default_jsonl_indexer(folder, update=True)()
    longer = penstock.open(folder)
    both = type(short)(longer, short.specs)  # type: ignore[attr-defined, call-arg]
    assert wrong_batches(both, longer, 0) == 0
    for ids in ([310, 2, 329, 2], [301], [299, 0], []):
        assert same(both.read(ids, FIELDS), longer.read(ids, FIELDS))


def test_who_waits_does_not_mind_that_folders_of_the_builder_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_locks, "_PAUSE", 0.0)
    held, is_over = threading.Event(), threading.Event()

    def build() -> None:
        with only_column_builder(tmp_path):
            held.set()
            for _ in range(400):
                part = tmp_path / ".penstock-building-0-1" / "part"
                part.mkdir(parents=True)
                part.rmdir()
                part.parent.rmdir()
            is_over.set()

    builder = threading.Thread(target=build)
    builder.start()
    held.wait()
    with only_column_builder(tmp_path):
        assert is_over.is_set()
    builder.join()
