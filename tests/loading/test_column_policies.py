"""Columns under the rules of a loader: which it takes, which it makes, how many may be bad."""

from __future__ import annotations

import gzip
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

import penstock
from penstock import DataLoader
from penstock.datasets import ListSource, list_columns_of
from penstock.errors import BadRecordsError, OptionError, SchemaMismatchError
from penstock.loading import _column_choice

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.datasets import Source


def lines_with(bad: set[int], count: int) -> bytes:
    values = ("x" if number in bad else number for number in range(count))
    return b"".join(json.dumps({"n": n, "f": 1.5}).encode() + b"\n" for n in values)


def columns_told(loader: DataLoader) -> str:
    decisions = loader.explain()
    assert isinstance(decisions, dict)
    return decisions["columns"]


@pytest.mark.parametrize("value", [0, 1, 1.0, None, "True", "yes"], ids=repr)
def test_what_only_looks_like_a_choice_is_refused(value: Any) -> None:
    with pytest.raises(OptionError, match=r"materialize=.*expected 'auto' or True or False"):
        DataLoader([{"n": 1}], {"n": "int64"}, batch_size=1, materialize=value)


@pytest.mark.parametrize("materialize", ["auto", True, False], ids=str)
@pytest.mark.parametrize("kind", ["whole", "part", "two"])
def test_columns_that_a_source_has_stay_as_they_are(
    tmp_path: Path, materialize: Any, kind: str
) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_bytes(lines_with({2}, 9))
    first = penstock.open(tmp_path / "a.jsonl")
    given: Source = first.materialize({"n": "int64"}, on_error="null")
    if kind == "part":
        given = given.take([*range(9)])
    if kind == "two":
        other = penstock.open(tmp_path / "b.jsonl").take([0, 1])
        given = given + other
    fields = {"n": "int64 = -1", "f": "float32"}
    loader = DataLoader(given, fields, batch_size=11, materialize=materialize)
    (batch,) = loader
    assert batch["n"].tolist()[:9] == [0, 1, -1, 3, 4, 5, 6, 7, 8]
    assert batch["f"].tolist() == [1.5] * len(given)
    assert "gathered" in columns_told(loader) or materialize is False
    # None of the exact kind was made beside it.
    assert [one.meta.nulled for one in list_columns_of(first) if one.meta.path == "n"] == [1]


class TestManyBadRecords:
    BAD = frozenset(range(0, 600, 4))

    def options(self, **more: Any) -> dict[str, Any]:
        return {"batch_size": 50, "on_error": "mask", "max_bad": 1000, **more}

    @pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz"])
    def test_columns_are_made_of_as_many_as_the_loader_allows(
        self, tmp_path: Path, kind: str
    ) -> None:
        path = tmp_path / f"a.{kind}"
        data = lines_with({*self.BAD}, 600)
        path.write_bytes(gzip.compress(data) if kind == "jsonl.gz" else data)
        loader = DataLoader(path, {"n": "int64"}, shuffle=True, **self.options())
        assert sum(int(batch.valid.sum()) for batch in loader) == 450
        assert loader.stats()["bad_records"] == 150
        assert columns_told(loader).startswith("gathered; they were made")

    def test_those_that_are_left_out_do_not_count(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        path.write_bytes(lines_with({*self.BAD}, 600))
        options = self.options(on_error="raise", skip=sorted(self.BAD))
        loader = DataLoader(path, {"n": "int64"}, materialize=True, **options)
        assert sum(len(batch["n"]) for batch in loader) == 450

    @pytest.mark.parametrize("on_error", ["raise", "mask"])
    def test_more_are_refused_with_what_a_loader_takes(self, tmp_path: Path, on_error: str) -> None:
        path = tmp_path / "a.jsonl"
        path.write_bytes(lines_with({*self.BAD}, 600))
        options = self.options(on_error=on_error, max_bad=120 if on_error == "mask" else 1000)
        loader = DataLoader(path, {"n": "int64"}, materialize=True, **options)
        most = 120 if on_error == "mask" else 100
        text = (
            rf"at most {most} are set aside\. The first: .*record 0 .*\. Give .*skip=; .*max_bad="
        )
        with pytest.raises(BadRecordsError, match=text) as told:
            next(iter(loader))
        assert "'null'" not in str(told.value)


class Watched(ListSource):
    """Notes which records it is asked for."""

    asked: list[list[int]]

    def _projected(self, ids: NDArray[np.int64], fields: Any) -> pa.RecordBatch:
        self.asked.append(ids.tolist())
        return super()._projected(ids, fields)


class TestKnownBadRecords:
    @pytest.mark.parametrize("is_view", [False, True])
    def test_only_they_are_read_each_once(self, own_cache: Path, *, is_view: bool) -> None:
        del own_cache
        source = Watched([{"n": "x" if n in (5, 6, 40) else n} for n in range(64)])
        source.asked = []
        given = source.materialize({"n": "int64"}, on_error="mask")
        if is_view:
            given = given.take([*range(32)]) + given.take([*range(32, 64)])
        source.asked.clear()
        loader = DataLoader(given, {"n": "int64 = -1"}, batch_size=16, on_error="mask")
        batches = list(loader)
        assert [int(batch.valid.sum()) if batch.valid is not None else 16 for batch in batches] == [
            14,
            16,
            15,
            16,
        ]
        assert sorted(source.asked) == [[5], [6], [40]]

    def test_the_first_of_them_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl.gz"
        path.write_bytes(gzip.compress(lines_with({3, 7}, 20)))
        loader = DataLoader(path, {"n": "int64"}, batch_size=20, shuffle=True, materialize=True)
        with pytest.raises(SchemaMismatchError, match=r"the 2 bad records .*skip=.3, 7.") as told:
            next(iter(loader))
        assert told.value.record in (3, 7)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_large_zstd_frame_that_is_shuffled_without_columns_is_warned_of(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    shuffle: bool,
) -> None:
    monkeypatch.setattr(_column_choice, "_MOST_SECONDS", 0.0)
    path = tmp_path / "a.jsonl.zst"
    line = json.dumps({"n": 1, "text": "y" * 100_000}).encode() + b"\n"
    path.write_bytes(zstandard.compress(line * 200, 1))
    source = penstock.open(path)
    loader = DataLoader(source, {"n": "int64"}, batch_size=200, shuffle=shuffle)
    with caplog.at_level(logging.INFO, "penstock.loading"):
        assert columns_told(loader).startswith("decoded anew for each batch: columns take")
    (told,) = [one for one in caplog.records if "penstock materialize" in one.getMessage()]
    assert told.levelno == (logging.WARNING if shuffle else logging.INFO)
    assert not shuffle or f"{path} has zstd frames so large" in told.getMessage()
    assert told.getMessage().endswith(f"penstock materialize {path} n:int64")
    assert sum(batch["n"].sum().item() for batch in loader) == 200


def test_who_asks_for_columns_is_told_of_unknown_fields_and_a_loader_tells_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines_with(set(), 20))
    list(DataLoader(path, {"m": "int64 = 0"}, batch_size=20, materialize=True))
    assert len([one for one in caplog.messages if "'m'" in one]) == 1
    assert "its column is null" not in caplog.text
    penstock.open(path).materialize({"k": "int64"}, on_error="mask")
    assert "its column is null" in caplog.text


LARGE = {"s": 'large_string = "-"', "b": "large_binary", "l": "large_list<int64>"}


@pytest.mark.parametrize("materialize", [True, False])
def test_large_types_are_those_of_arrow_with_the_same_batches(
    tmp_path: Path, *, materialize: bool
) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"s": None if n % 3 else str(n), "b": "b", "l": [n] * (n % 3)} for n in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = penstock.open(path).materialize(LARGE, path=tmp_path / "columns")
    loader = DataLoader(given, LARGE, batch_size=20, materialize=materialize)
    assert columns_told(loader) == "gathered; the source has them"
    plain = {name: type_.replace("large_", "") for name, type_ in LARGE.items()}
    (batch,), (other,) = loader, DataLoader(path, plain, batch_size=20, materialize=False)
    assert batch["s"] == other["s"]
    assert batch["b"] == other["b"]
    assert batch["l"].values.tolist() == other["l"].values.tolist()
    assert batch["l"].offsets.tolist() == other["l"].offsets.tolist()
