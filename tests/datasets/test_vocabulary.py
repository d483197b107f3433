from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.datasets._vocabulary import vocabulary
from penstock.errors import OptionError, SchemaMismatchError
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

values = st.lists(st.none() | st.text("abc", max_size=2), min_size=1, max_size=30) | st.lists(
    st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30
)


def first_seen(found: list[Any]) -> list[Any]:
    return [value for value in dict.fromkeys(found) if value is not None]


@given(values, st.integers(0, 30))
@settings(max_examples=rounds(20, 1000))
def test_values_stand_in_the_order_of_their_first_appearance(found: list[Any], length: int) -> None:
    source = penstock.open([{"n": 0, "a": value} for value in found])
    whole = vocabulary(source, "a", len(found)).to_pylist()
    assert whole == first_seen(found)
    early = vocabulary(source, "a", min(length, len(found))).to_pylist()
    assert early == whole[: len(early)]


def lines(path: Path, found: list[Any]) -> None:
    path.write_text("".join(json.dumps({"a": {"b": value}, "n": 1}) + "\n" for value in found))


def test_what_is_appended_changes_no_code(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines(path, ["y", "x", None, "y"])
    before = vocabulary(penstock.open(path), "a.b", 4).to_pylist()
    lines(tmp_path / "longer.jsonl", ["y", "x", None, "y", "a", "x"])
    source = penstock.open(tmp_path / "longer.jsonl")
    assert vocabulary(source, "a.b", 6).to_pylist() == [*before, "a"] == ["y", "x", "a"]
    assert vocabulary(source, "a.b", 4).to_pylist() == before


def test_for_files_it_is_kept_and_found_by_the_next(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    lines(path, ["y", "x"])
    first = vocabulary(penstock.open(path), "a.b", 2)
    (kept,) = (own_cache / "views").glob("*.arrow")
    assert (own_cache / "views" / "CACHEDIR.TAG").exists()
    source = penstock.open(path)
    monkeypatch.setattr(type(source), "read", None)
    assert vocabulary(source, "a.b", 2).equals(first)
    monkeypatch.undo()
    monkeypatch.setenv("PENSTOCK_CACHE", str(own_cache))
    for damage in (b"", b"something else", kept.read_bytes()[:-40]):
        kept.write_bytes(damage)
        assert vocabulary(penstock.open(path), "a.b", 2).equals(first)
    kept.unlink()
    (own_cache / "views" / "CACHEDIR.TAG").unlink()
    assert vocabulary(penstock.open(path), "a.b", 2).equals(first)


def test_records_in_memory_leave_nothing_behind(own_cache: Path) -> None:
    assert vocabulary(penstock.open([{"a": True}, {"a": False}]), "a", 2).to_pylist() == [
        True,
        False,
    ]
    assert not (own_cache / "views").exists()


def test_views_have_a_vocabulary_of_their_own(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", ["y", "x", "z", "y"])
    source = penstock.open(tmp_path / "a.jsonl")
    assert vocabulary(source.take([2, 0]), "a.b", 2).to_pylist() == ["z", "y"]
    both = source.take([1]) + source
    assert vocabulary(both, "a.b", 5).to_pylist() == ["x", "y", "z"]


def test_dictionaries_of_parquet_are_the_texts_they_stand_for(tmp_path: Path) -> None:
    column = pa.array(["b", None, "a", "b"]).dictionary_encode()
    pq.write_table(pa.table({"a": column}), tmp_path / "a.parquet")
    found = vocabulary(penstock.open(tmp_path / "a.parquet"), "a", 4)
    assert found.type == pa.string()
    assert found.to_pylist() == ["b", "a"]


def test_integers_beyond_int64_are_unsigned() -> None:
    source = penstock.open([{"a": 2**63}, {"a": 1}])
    assert vocabulary(source, "a", 2).type == pa.uint64()


def test_a_field_without_any_value_has_an_empty_vocabulary(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", [None, None])
    for _ in range(2):
        assert len(vocabulary(penstock.open(tmp_path / "a.jsonl"), "a.b", 2)) == 0


@pytest.mark.parametrize(
    ("records", "error", "says"),
    [
        ([{"a": 1.5}], OptionError, "holds double"),
        ([{"a": ["x"]}], OptionError, "holds list"),
        ([{"b": 1}], OptionError, "no record has a field 'a'"),
    ],
    ids=["floats", "lists", "unknown"],
)
def test_what_has_no_codes_is_refused(
    records: list[Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        vocabulary(penstock.open(records), "a", len(records))


def test_values_of_two_kinds_are_refused() -> None:
    source = penstock.open([{"a": 1}]) + penstock.open([{"a": "x"}])
    with pytest.raises(SchemaMismatchError, match="whole numbers and texts"):
        vocabulary(source, "a", 2)
