from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.datasets._vocabulary import root_of, vocabulary
from penstock.errors import OptionError, SchemaMismatchError
from penstock.storage._untrusted import LARGEST_METADATA
from tests.rounds import rounds

if TYPE_CHECKING:
    from penstock.datasets import Source

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


def test_for_files_it_is_kept_and_found_by_the_next(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines(path, ["y", "x"])
    first = vocabulary(penstock.open(path), "a.b", 2)
    (kept,) = (own_cache / "views").glob("*.arrow")
    assert (own_cache / "views" / "CACHEDIR.TAG").exists()
    # What is kept is what the next one gets: with that of another source in its place, those.
    lines(tmp_path / "other.jsonl", ["p", "q"])
    others = vocabulary(penstock.open(tmp_path / "other.jsonl"), "a.b", 2)
    (of_others,) = set((own_cache / "views").glob("*.arrow")) - {kept}
    mine = kept.read_bytes()
    kept.write_bytes(of_others.read_bytes())
    assert vocabulary(penstock.open(path), "a.b", 2).equals(others)
    kept.write_bytes(mine)
    assert vocabulary(penstock.open(path), "a.b", 2).equals(first)
    for damage in (b"", b"something else", kept.read_bytes()[:-40]):
        kept.write_bytes(damage)
        assert vocabulary(penstock.open(path), "a.b", 2).equals(first)
    kept.unlink()
    (own_cache / "views" / "CACHEDIR.TAG").unlink()
    assert vocabulary(penstock.open(path), "a.b", 2).equals(first)


def test_a_kept_vocabulary_may_be_larger_than_metadata(
    tmp_path: Path, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines(tmp_path / "a.jsonl", ["y", "x"])
    vocabulary(penstock.open(tmp_path / "a.jsonl"), "a.b", 2)
    (kept,) = (own_cache / "views").glob("*.arrow")
    batch = pa.record_batch({"values": ["x" * (LARGEST_METADATA + 1)]})
    with pa.ipc.new_file(kept, batch.schema) as file:
        file.write_batch(batch)
    found = vocabulary(penstock.open(tmp_path / "a.jsonl"), "a.b", 2)
    kept.unlink()
    assert len(found) == 1
    assert not caplog.records


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


def mixed(folder: Path, texts: list[Any]) -> Source:
    """Return a source of lines, broken ones as they are."""
    path = Path(tempfile.mkdtemp(dir=folder)) / "a.jsonl"
    text = [one if isinstance(one, str) else json.dumps(one) for one in texts]
    path.write_text("".join(f"{one}\n" for one in text))
    return penstock.open(path, progress=False)


BROKEN = ['{"a": ', "x", '{"a": tru']
odd = st.sampled_from([*BROKEN, {"a": 1}, {"a": "y"}, {"a": "z"}, {"a": ["y"]}, {"a": True}, {}])


@given(st.lists(odd, max_size=20), st.integers(0, 20))
@settings(max_examples=rounds(20, 500), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_records_that_cannot_be_read_are_left_out(
    tmp_path: Path, records: list[Any], length: int
) -> None:
    source = mixed(tmp_path, [{"a": "x"}, *records])
    known = [one["a"] for one in records if isinstance(one, dict) and "a" in one]
    expected = first_seen(["x", *(value for value in known if isinstance(value, str))])
    whole = vocabulary(source, "a", len(source)).to_pylist()
    assert whole == expected
    early = vocabulary(source, "a", 1 + min(length, len(records))).to_pylist()
    assert early == expected[: len(early)]
    # Nothing about records that come later changes what was found in those before.
    alone = mixed(tmp_path, [{"a": "x"}, *records[:length]])
    assert vocabulary(alone, "a", len(alone)).to_pylist() == early


def test_bad_lines_before_the_first_value_are_no_values(tmp_path: Path) -> None:
    source = mixed(tmp_path, [*BROKEN, {"b": 1}, {"a": None}, {"a": 7}, {"a": 5}])
    assert vocabulary(source, "a", 7).to_pylist() == [7, 5]


def test_the_kind_of_the_first_value_decides(caplog: pytest.LogCaptureFixture) -> None:
    source = penstock.open([{"a": 1}]) + penstock.open([{"a": "x"}, {"a": 3}])
    assert vocabulary(source, "a", 3).to_pylist() == [1, 3]
    told = caplog.messages[-1]
    assert "the vocabulary of 'a' is without 1 record " in told
    assert "holds 'x', which does not fit int64" in told


@pytest.mark.parametrize(
    ("found", "kept"),
    [([2**63, -1, 5], [2**63, 5]), ([-1, 2**63, 5], [-1, 5]), ([5, 2**64, 6], [5, 6])],
    ids=["unsigned", "signed", "too large"],
)
def test_integers_that_have_no_type_in_common_are_those_that_came_first(
    found: list[int], kept: list[int]
) -> None:
    source = penstock.open([{"a": value} for value in found])
    for length in range(1, len(found) + 1):
        values = vocabulary(source, "a", length).to_pylist()
        assert values == [value for value in found[:length] if value in kept]


def test_a_field_of_another_type_is_no_category_and_told_soon() -> None:
    source = penstock.open([{"a": 1}, *[{"a": "x"}] * 10_100])
    with pytest.raises(SchemaMismatchError, match=r"10,000 records .* 'x', .*FieldEncoder\("):
        vocabulary(source, "a", len(source))


def test_all_views_of_a_source_have_one_root(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", ["y", "x", "z", "y"])
    one, other = penstock.open(tmp_path / "a.jsonl"), penstock.open([{"a": 1}, {"a": 2}])
    views = [*one.split(train=0.5, val=0.5), one.take([2, 0]), one.where("n == 1").take([0])]
    assert all(root_of(view) is one for view in (*views, one))
    assert root_of(views[0] + views[1]) is one
    pairs = [views[0] + other.take([0]), views[1] + other.take([1]), (views[1] + other).take([0])]
    assert {root_of(pair).fingerprint for pair in pairs} == {(one + other).fingerprint}


@pytest.mark.parametrize("kind", ["lines", "parquet", "csv", "list"])
def test_a_user_knows_the_classes_of_a_view_and_their_counts_before_the_first_batch(
    kind: str, tmp_path: Path
) -> None:
    records = [{"c": "xyz"[n % 3] if n % 5 else None, "n": n} for n in range(100)]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    elif kind == "csv":
        text = "".join(f"{one['c'] or ''},{one['n']}\n" for one in records)
        (tmp_path / "a.csv").write_text("c,n\n" + text)
    elif kind == "lines":
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    source = penstock.open(records if kind == "list" else tmp_path)
    few = source.where("n < 5").materialize({"c": "string"})
    assert few.vocabulary("c") == source.vocabulary("c") == ["y", "z", "x"]
    assert few.value_counts("c") == {"y": 2, "z": 1, "x": 1}
    assert sum(source.value_counts("c").values()) == 80
    (batch,) = penstock.DataLoader(few, {"c": "category"}, batch_size=5)
    assert list(batch["c"].vocabulary) == few.vocabulary("c")
    assert few.take([0]).value_counts("c") == {"y": 0, "z": 0, "x": 0}
    with pytest.raises(OptionError, match="no record has a field 'd'"):
        source.vocabulary("d")


def test_integers_and_booleans_are_counted() -> None:
    source = penstock.open([{"n": n % 3, "b": n > 1} for n in range(7)])
    assert source.value_counts("n") == {0: 3, 1: 2, 2: 2}
    assert source.value_counts("b") == {False: 2, True: 5}


def test_integers_beside_a_null_are_counted_exactly() -> None:
    big = 2**53
    source = penstock.open([{"n": n} for n in (big + 1, None, big, big + 1)])
    assert source.value_counts("n") == {big + 1: 2, big: 1}


def test_a_category_that_may_be_missing_everywhere_has_no_classes(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    loader = penstock.DataLoader(tmp_path, {"c": "category?"}, batch_size=1)
    (batch,) = loader
    assert (batch["c"].codes.tolist(), list(batch["c"].vocabulary)) == ([-1], [])
