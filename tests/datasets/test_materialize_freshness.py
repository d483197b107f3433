"""Columns of files that change where their index does not look."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

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
from penstock.datasets.columns import _build as _materialize_build
from penstock.errors import CorruptIndexError, OptionError, StaleIndexError
from penstock.index import create_default_jsonl_indexer
from tests.datasets.materialize_programs import Counted

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source

Y = {"y": "int64"}
MIDDLE = 2000


def write(folder: Path, value: int, *, aged: float = 0) -> None:
    """Write records whose middle one has this value; head, tail and size are always the same."""
    path = folder / "a.jsonl"
    path.write_text(
        "".join(
            f'{{"y": {value if n == MIDDLE else 1}, "pad": "{"x" * 20}"}}\n' for n in range(4000)
        )
    )
    at = path.stat().st_mtime + 10 * value - aged
    os.utime(path, (at, at))


def middle(source: Source) -> list[object]:
    values: list[object] = source.read([MIDDLE], Y)["y"].to_pylist()
    return values


def rebuilt(folder: Path) -> list[object]:
    """Return the middle value out of columns, made again where those that are there are stale."""
    return middle(penstock.open(folder).materialize(Y, workers=0))


def test_a_file_changed_in_its_middle_with_an_older_time_is_seen(tmp_path: Path) -> None:
    write(tmp_path, 1)
    assert rebuilt(tmp_path) == [1]
    write(tmp_path, 2, aged=1e6)
    source = penstock.open(tmp_path)
    assert [column.stale for column in list_columns_of(source)] == [True]
    assert columns_of(source, typed_schema(Y)) is None
    assert rebuilt(tmp_path) == middle(source) == [2]


def test_columns_kept_while_the_index_is_built_anew_are_of_the_files_then(tmp_path: Path) -> None:
    write(tmp_path, 1)
    assert rebuilt(tmp_path) == [1]
    create_default_jsonl_indexer(tmp_path, overwrite=True)()
    view = Counted()
    penstock.open(tmp_path).materialize(Y, progress=view, workers=0)
    assert view.total == 0
    write(tmp_path, 2)
    create_default_jsonl_indexer(tmp_path, overwrite=True)()
    assert rebuilt(tmp_path) == [2]


def test_columns_move_with_their_data(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    write(tmp_path / "here", 1)
    rebuilt(tmp_path / "here")
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert columns_of(penstock.open(tmp_path / "there"), typed_schema(Y)) is not None


def test_parquet_with_an_equal_footer_is_seen_to_be_another(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = [0, 1] * 1000

    def write_rows(at: int) -> Source:
        table = pa.table({"y": pa.array(values, pa.int64())})
        pq.write_table(table, path, compression="none", use_dictionary=False)
        os.utime(path, (at, at))
        return penstock.open(path)

    before = write_rows(1_000_000_000)
    before.materialize(Y, workers=0)
    values[500:502] = [1, 0]
    source = write_rows(1_000_000_100)
    assert source.fingerprint == before.fingerprint
    columns = source.materialize(Y, workers=0)
    assert columns.read([500, 501], Y).to_pydict() == {"y": [1, 0]}
    # Whoever opened it before may have kept something of it.
    assert columns_of(before, typed_schema(Y)) is None
    with pytest.raises(StaleIndexError, match="overwritten"):
        before.materialize(Y, workers=0)


def test_units_of_a_killed_builder_are_of_the_files_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_materialize_build, "publish_column", stopped)
        with pytest.raises(KeyboardInterrupt):
            rebuilt(tmp_path)
    assert list((tmp_path / "index" / "columns").glob(".penstock-building-*/*.arrow"))
    write(tmp_path, 2)
    assert rebuilt(tmp_path) == [2]


def test_a_file_that_changes_while_columns_are_published_makes_them_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1)
    publish = _materialize_build.publish_column

    def late(*args: object, **named: object) -> object:
        write(tmp_path, 2)
        return publish(*args, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(_materialize_build, "publish_column", late)
        rebuilt(tmp_path)
    assert rebuilt(tmp_path) == [2]


def test_a_file_that_was_replaced_since_it_was_mapped_is_decoded_anew(tmp_path: Path) -> None:
    write(tmp_path, 1)
    source = penstock.open(tmp_path)
    assert middle(source) == [1]
    (tmp_path / "a.jsonl").unlink()
    write(tmp_path, 2)
    source.materialize(Y, workers=0)
    assert rebuilt(tmp_path) == [2]


def test_columns_that_cannot_be_read_after_they_were_written_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1)
    monkeypatch.setattr(_materialize_build, "publish_column", lambda *_, **__: None)
    with pytest.raises(CorruptIndexError, match="cannot be read from there: y"):
        rebuilt(tmp_path)


def test_what_is_kept_of_views_and_categories_is_found_anew_after_a_change(tmp_path: Path) -> None:
    write(tmp_path, 1)
    source = penstock.open(tmp_path)
    assert len(source.where("y == 2")) == 0
    loader = penstock.DataLoader(source, {"y": "category"}, batch_size=4000, materialize=False)
    assert next(iter(loader))["y"].vocabulary == [1]
    write(tmp_path, 2)
    source = penstock.open(tmp_path)
    assert source.where("y == 2").read([0], Y)["y"].to_pylist() == [2]
    loader = penstock.DataLoader(source, {"y": "category"}, batch_size=4000, materialize=False)
    assert next(iter(loader))["y"].vocabulary == [1, 2]
    train, _ = source.split(train=0.5, val=0.5, by="y")
    assert len(train) in (0, 1, 3999, 4000)


def test_a_folder_of_something_else_is_neither_used_nor_marked(tmp_path: Path) -> None:
    write(tmp_path, 1)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    source = penstock.open(tmp_path)
    with pytest.raises(OptionError, match="holds something else than columns"):
        source.materialize(Y, path=other)
    assert drop_columns_of(source, path=other) == []
    assert [path.name for path in other.iterdir()] == ["mine.txt"]


def test_a_column_that_cannot_be_used_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1)
    rebuilt(tmp_path)
    for _ in range(2):  # Once each time that it was made.
        (column,) = (tmp_path / "index" / "columns").glob("y-*")
        next(path for path in column.iterdir() if path.suffix == ".bin").write_bytes(b"")
        caplog.clear()
        for _ in range(2):
            source = penstock.open(tmp_path)
            assert columns_of(source, typed_schema(Y)) is None
            list_columns_of(source)
        (warning,) = caplog.records
        assert "a column cannot be used" in warning.getMessage()
        source.materialize(Y, workers=0)
    columns = [penstock.open(tmp_path).materialize(Y) for _ in range(2)]
    drop_columns_of(source)
    caplog.clear()
    assert [middle(one) for one in columns] == [[1], [1]]
    (warning,) = caplog.records
    assert "1 column in" in warning.getMessage()
