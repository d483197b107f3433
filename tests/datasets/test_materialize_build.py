"""Columns appear as a whole, once, whatever happens to those who build them."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.datasets import (
    columns_of,
    drop_columns_of,
    list_columns_of,
    typed_schema,
)
from penstock.datasets.columns import _build
from penstock.datasets.columns._materialized import Materialized
from penstock.errors import StaleIndexError, StorageError
from penstock.index import create_default_jsonl_indexer
from tests.datasets.materialize_programs import (
    FIELDS,
    LINES,
    Counted,
    is_right,
    lie_in,
    materialize,
    materialize_together,
    materialize_with_a_size_limit,
    materialize_with_few_descriptors,
    write_large,
)
from tests.datasets.materialize_samples import lines, opened, records, same, write
from tests.faults.child import Child, ChildError, run, run_together
from tests.faults.halting import halting
from tests.rounds import rounds
from tests.unprivileged import as_nobody, folder_for_all

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source

ID = {"id": "int64"}
ONE_UNIT = halting("[0-9]*.arrow", after=1)
"""Of a builder that finishes one and waits."""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    write_large(tmp_path / "data")
    penstock.open(tmp_path / "data")
    return tmp_path / "data"


def units(folder: Path) -> list[Path]:
    """Return the files of finished units."""
    return sorted(folder.glob("index/columns/.penstock-building-*/[0-9]*.arrow"))


def test_what_a_killed_builder_finished_is_not_done_again(large: Path) -> None:
    with Child(materialize, str(large), env=ONE_UNIT) as child:
        while not units(large):
            child.hear()
        child.kill()
    done = units(large)
    assert list_columns_of(penstock.open(large)) == []
    lie_in(done[0])
    view = Counted()
    columns = penstock.open(large).materialize(FIELDS, progress=view, workers=0)
    assert view.total == LINES
    assert columns.read([5], FIELDS)["id"].to_pylist() == [10**9 + 5]
    assert units(large) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_builders_that_end_at_any_time_leave_whole_columns_or_none(
    number: signal.Signals, large: Path
) -> None:
    rng = np.random.default_rng(int(number))
    for _ in range(rounds(1, 40)):
        with Child(materialize, str(large), None if rng.integers(2) else 0) as child:
            child.hear()
            time.sleep(rng.uniform(0, 0.3))
            os.kill(child.pid, number)
            with suppress(ChildError):
                child.result()
        source = penstock.open(large)
        for column in list_columns_of(source):
            fields = {column.meta.path: FIELDS[column.meta.path]}
            assert columns_of(source, typed_schema(fields)) is not None
        if columns_of(source, typed_schema(FIELDS)) is not None:
            drop_columns_of(source)
    source = penstock.open(large)
    columns = source.materialize(FIELDS)
    assert is_right(source, columns)
    hidden = {path.name for path in (large / "index" / "columns").glob(".*")}
    assert hidden == {".gitignore", ".lock"}


def test_an_interrupted_builder_keeps_what_is_finished(large: Path) -> None:
    with Child(materialize, str(large), env=ONE_UNIT) as child:
        while not units(large):
            child.hear()
        os.kill(child.pid, signal.SIGINT)
        with pytest.raises(ChildError, match="KeyboardInterrupt"):
            child.result()
    assert units(large)
    # Other fields are another matter: what nobody goes on with is removed.
    penstock.open(large).materialize(ID)
    assert units(large) == []


def test_of_many_processes_one_builds(large: Path) -> None:
    with run_together(materialize_together, [(str(large), workers) for workers in (0, 1, 0)]) as (
        children
    ):
        done = [child.result() for child in children]
    assert sum(one["decoded"] for one in done) == LINES
    assert all(one["right"] for one in done)


def test_of_many_threads_one_builds(large: Path) -> None:
    views = [Counted() for _ in range(4)]
    source = penstock.open(large)
    with ThreadPoolExecutor(4) as pool:
        columns = list(
            pool.map(lambda view: source.materialize(FIELDS, progress=view, workers=0), views)
        )
    assert sum(view.total for view in views) == LINES
    assert all(is_right(source, one) for one in columns)


@pytest.mark.parametrize(
    ("limit", "workers"),
    [(1_000_000, 1), (3_500_000, 0)],
    ids=["a unit in a worker", "a column"],
)
def test_a_disk_that_takes_no_more_is_an_error_that_leaves_nothing(
    limit: int, workers: int, large: Path
) -> None:
    told = run(materialize_with_a_size_limit, str(large), limit, workers)
    assert told["kind"] == "StorageError"
    assert told["errno"] == errno.EFBIG
    assert str(large / "index" / "columns") in told["text"]
    assert "path=" in told["text"]
    assert "PENSTOCK_CACHE" in told["text"]
    assert not any("penstock" in name for name in told["left"])
    source = penstock.open(large)
    assert is_right(source, source.materialize(FIELDS))


def test_however_many_units_there_are_few_descriptors_are_enough(tmp_path: Path) -> None:
    rows = 15_000
    table = pa.table({"a": range(rows), "b": [0.5] * rows})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    path = str(tmp_path / "a.parquet")
    assert run(materialize_with_few_descriptors, path, 100, 64) == rows


def test_too_little_room_is_told_before_anything_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = opened(tmp_path, "jsonl")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(StorageError, match=r"about [\d,]+ bytes in .*: 100 are free.*path="):
        source.materialize(ID)
    assert list_columns_of(source) == []


def build_as_nobody(source: Source) -> tuple[list[str], bool]:
    fields = {**ID, "name": "string"}
    columns = source.materialize(fields)
    right = same(columns.read([9, 3], fields), source.read([9, 3], fields))
    return [column.folder for column in list_columns_of(source)], right


def refused(source: Source, place: Path) -> str:
    with pytest.raises(StorageError, match="path=") as raised:
        source.materialize(ID, path=place)
    return str(raised.value)


def test_columns_of_data_that_may_not_be_written_to_lie_in_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with folder_for_all() as folder:
        source = opened(folder / "data", "jsonl")
        (folder / "cache").mkdir(mode=0o777)
        (folder / "cache").chmod(0o777)
        monkeypatch.setenv("PENSTOCK_CACHE", str(folder / "cache"))
        there = source.materialize({"name": "string"})
        assert there.read([3], {"name": "string"}).num_rows == 1

        places, right = as_nobody(partial(build_as_nobody, source))
        assert right
        # What came with the data is used, the rest is in the cache.
        assert sorted({place.startswith(str(folder / "cache")) for place in places}) == [
            False, True,
        ]  # fmt: skip
        assert len(places) == 2


def test_a_folder_that_may_not_be_written_to_is_told() -> None:
    with folder_for_all() as folder:
        source = opened(folder / "data", "jsonl")
        (folder / "closed").mkdir(mode=0o555)

        told = as_nobody(partial(refused, source, folder / "closed" / "columns"))
        assert str(folder / "closed") in told


def test_only_what_was_appended_is_decoded(tmp_path: Path) -> None:
    place, folder = tmp_path / "columns", tmp_path / "data"
    fields = {"id": "int64", "name": "string", "tags": "list<int64>", "items[].id": "list<int8>"}
    opened(folder, "jsonl").materialize(fields, path=place)
    with (folder / "part-00001.jsonl").open("a") as file:
        file.write(lines(records(300, 310)))
    write(folder, "jsonl", "part-00002", records(310, 330))
    create_default_jsonl_indexer(folder, update=True)()
    source = penstock.open(folder)
    assert len(source) == 330
    assert [column.stale for column in list_columns_of(source, place)] == [False] * 4
    assert columns_of(source, typed_schema(fields), place) is None
    view = Counted()
    columns = source.materialize(fields, path=place, progress=view)
    assert view.total == 30
    every = np.arange(330)[::-1]
    assert same(columns.read(every, fields), source.read(every, fields))
    # The offsets of the shorter columns are gone.
    assert len(list(place.glob("*-offsets-*"))) == 2


def test_columns_beside_the_index_outlive_its_updates(tmp_path: Path) -> None:
    opened(tmp_path, "jsonl").materialize(ID)
    write(tmp_path, "jsonl", "part-00002", records(300, 330))
    create_default_jsonl_indexer(tmp_path, update=True)()
    source = penstock.open(tmp_path)
    view = Counted()
    columns = source.materialize(ID, progress=view)
    assert view.total == 30
    assert same(columns.read([329, 0], ID), source.read([329, 0], ID))


def test_appended_rows_of_parquet_find_the_old_columns(tmp_path: Path) -> None:
    opened(tmp_path, "parquet").materialize(ID)
    write(tmp_path, "parquet", "part-00002", records(300, 330))
    source = penstock.open(tmp_path)
    view = Counted()
    columns = source.materialize(ID, progress=view)
    assert view.total == 30
    assert same(columns.read([329, 0], ID), source.read([329, 0], ID))


def test_null_and_mask_go_on_where_they_were(tmp_path: Path) -> None:
    place, folder = tmp_path / "columns", tmp_path / "data"
    write(folder, "jsonl", "a", [{**records(0, 1)[0], "n": n} for n in (1, "x", 3)])
    source = penstock.open(folder)
    fields = {"n": "int8"}
    for policy in ("null", "mask"):
        source.materialize(fields, path=place / policy, on_error=policy)  # type: ignore[arg-type]
    write(folder, "jsonl", "b", [{**records(0, 1)[0], "n": n} for n in (4, "y")])
    create_default_jsonl_indexer(folder, update=True)()
    source = penstock.open(folder)
    nulled = source.materialize(fields, path=place / "null", on_error="null")
    assert nulled.read(np.arange(5), fields).to_pydict() == {"n": [1, None, 3, 4, None]}
    assert list_columns_of(source, place / "null")[0].meta.nulled == 2
    masked = source.materialize(fields, path=place / "mask", on_error="mask")
    assert masked.read([0, 2, 3], fields).to_pydict() == {"n": [1, 3, 4]}
    assert list_columns_of(source, place / "mask")[0].meta.bad == 2


def test_a_file_that_is_overwritten_while_it_is_decoded_is_an_error(tmp_path: Path) -> None:
    source = opened(tmp_path, "jsonl")

    class Meddling:
        def add(self, _: int) -> None:
            os.utime(tmp_path / "part-00000.jsonl")

    with pytest.raises(StaleIndexError, match="were overwritten while"):
        source.materialize(ID, progress=Meddling(), workers=0)
    assert list_columns_of(source) == []


def test_stale_columns_are_rebuilt_and_never_served(tmp_path: Path) -> None:
    place, folder = tmp_path / "columns", tmp_path / "data"
    old = opened(folder, "jsonl").materialize(ID, path=place)
    assert old.read([3], ID).to_pydict() == {"id": [3]}
    (folder / "part-00000.jsonl").write_text(lines(records(1000, 1150)))
    create_default_jsonl_indexer(folder, overwrite=True)()
    source = penstock.open(folder)
    assert [column.stale for column in list_columns_of(source, place)] == [True]
    assert columns_of(source, typed_schema(ID), place) is None
    view = Counted()
    columns = source.materialize(ID, path=place, progress=view)
    assert view.total == 300
    assert columns.read([3], ID).to_pydict() == {"id": [1003]}
    # Whoever had mapped the old ones has old records, and still their columns.
    assert old.read([4], ID).to_pydict() == {"id": [4]}


def test_a_foreign_index_does_not_know_of_changes_but_its_columns_do(tmp_path: Path) -> None:
    opened(tmp_path, "jsonl")
    (tmp_path / "index" / "meta.json").unlink()
    penstock.datasets.JsonlDataset.create_from_index_on_filesystem(tmp_path).materialize(ID)
    path = tmp_path / "part-00000.jsonl"
    path.write_text(path.read_text().replace('"id": 77,', '"id": 99,'))
    source = penstock.datasets.JsonlDataset.create_from_index_on_filesystem(tmp_path)
    assert source.materialize(ID).read([77], ID).to_pydict() == {"id": [99]}


def test_gzip_is_decoded_by_whole_files_and_then_read_in_any_order(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for number in range(3):
        write(folder, "jsonl.gz", f"part-{number}", records(1000 * number, 1000 * number + 1000))
    source = penstock.open(folder)
    columns = source.materialize(ID, workers=0)
    ids = np.random.default_rng(0).permutation(3000)
    for some in np.split(ids, 60):
        assert columns.read(some, ID)["id"].to_pylist() == some.tolist()


def test_units_of_columns_that_are_all_there_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = opened(tmp_path / "data", "jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(_build, "_remove_leftovers", lambda *_: None)  # As if killed before.
        source.materialize(ID)
    assert units(tmp_path / "data")
    source.materialize(ID)
    assert units(tmp_path / "data") == []


def test_a_folder_that_is_gone_when_columns_are_published_is_an_error_of_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = opened(tmp_path / "data", "jsonl")
    columns = tmp_path / "data" / "index" / "columns"
    monkeypatch.setattr(_build, "run_units", lambda *_, **__: shutil.rmtree(columns))
    with pytest.raises(StorageError, match="columns"):
        source.materialize(ID)


def test_fields_are_planned_once_however_they_are_named(tmp_path: Path) -> None:
    columns = opened(tmp_path / "data", "jsonl").materialize(ID)
    assert isinstance(columns, Materialized)
    assert columns.plan(ID) is columns.plan(dict(ID))
    assert columns.plan(ID) is not columns.plan({"id": "int32"})
