"""Profiles of sources: made by going over records, kept, and found again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.datasets._profile_source import keep_profile, known_profile, profile_of
from penstock.errors import CorruptIndexError
from penstock.index import create_default_jsonl_indexer, read_profile

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of a test's own."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A folder of records of all kinds, one of which cannot be read."""
    records = [{"n": n, "deep": {"x": [n / 2, None]}, "t": "ab" * (n % 3)} for n in range(300)]
    texts = [json.dumps(record) for record in records]
    texts[17] = "{oops"
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "a.jsonl").write_text("".join(f"{text}\n" for text in texts))
    return tmp_path / "lines"


def test_going_over_records_gives_what_the_index_build_gives(lines: Path) -> None:
    create_default_jsonl_indexer(lines, profile=True)()
    document = profile_of(penstock.open(lines), workers=0).document()
    assert document == read_profile(lines / "index")
    assert document["record_types"]["unreadable"]["first"] == 17


def test_processes_give_the_same(tmp_path: Path) -> None:
    table = pa.table({"n": range(2000), "t": [str(n % 7) for n in range(2000)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    source = penstock.open(tmp_path / "t.parquet")
    assert profile_of(source, workers=2).document() == profile_of(source, workers=0).document()


def test_the_profile_of_an_index_is_that_of_all_its_views(lines: Path) -> None:
    assert known_profile(penstock.open(lines)) is None
    create_default_jsonl_indexer(lines, overwrite=True, profile=True)()
    source = penstock.open(lines)
    for view in (source, source.take([1, 2]), source.split(a=0.5, b=0.5)[0]):
        known = known_profile(view)
        assert known is not None
        assert known.document["records"] == 300
    assert known_profile(source + penstock.open([{"n": 1}])) is None
    columns = source.take([0]).materialize({"n": "int64"}, on_error="mask")
    assert known_profile(columns) is not None


def test_a_profile_is_kept_for_the_records_it_is_of(lines: Path, cache: Path) -> None:
    source = penstock.open(lines)
    document = profile_of(source).document()
    path = keep_profile(source, document)
    assert path.startswith(str(cache))
    known = known_profile(penstock.open(lines))
    assert known is not None
    assert known.document == document
    later = known.created + 5
    os.utime(lines / "a.jsonl", (later, later))  # Something in its middle may be another.
    assert known_profile(penstock.open(lines)) is None
    with (lines / "a.jsonl").open("a") as file:
        file.write('{"n": 300}\n')
    create_default_jsonl_indexer(lines, update=True)()
    assert known_profile(penstock.open(lines)) is None


def test_a_damaged_profile_is_an_error_in_the_index_and_made_again_elsewhere(
    lines: Path, tmp_path: Path
) -> None:
    create_default_jsonl_indexer(lines, profile=True)()
    (lines / "index" / "profile.json").write_text("{")
    with pytest.raises(CorruptIndexError, match=r"profile\.json is damaged"):
        known_profile(penstock.open(lines))
    pq.write_table(pa.table({"n": [1]}), tmp_path / "t.parquet")
    source = penstock.open(tmp_path / "t.parquet")
    path = Path(keep_profile(source, profile_of(source).document()))
    path.write_text("{")
    assert known_profile(source) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.pop("records"),
        lambda told: told["fields"][0].pop("count"),
        lambda told: told["fields"][0].update(path=[[0]]),
        lambda told: told["fields"][0]["types"]["int"].update(quantiles={}),
        lambda told: told.update(drift=[{"level": "loud", "path": "", "text": ""}]),
        lambda told: told.update(record_types=[]),
    ],
    ids=["records", "count", "path", "quantiles", "drift", "record types"],
)
def test_a_profile_that_lacks_what_readers_need_is_damaged(
    change: Callable[[dict[str, Any]], object], lines: Path
) -> None:
    create_default_jsonl_indexer(lines, profile=True)()
    path = lines / "index" / "profile.json"
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))
    with pytest.raises(CorruptIndexError, match=r"profile\.json is damaged"):
        known_profile(penstock.open(lines))
