"""`write_many` takes a list many records at a time: nobody may see a difference but the clock."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UnserializableRecordError
from penstock.jsonl import JsonlDir, JsonlFile
from penstock.jsonl._encode import LineEncoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.jsonl import JsonlDirWriterSync

values = st.recursive(
    st.none()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["null", Decimal("1.5"), 1e308, -1e308, math.nan, -math.nan, math.inf, -math.inf]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
records = st.dictionaries(st.text(max_size=4), values, max_size=4)
limits = st.fixed_dictionaries(
    {
        "max_records_per_shard": st.none() | st.integers(1, 30),
        "max_bytes_per_shard": st.none() | st.integers(1, 2000),
        "flush_bytes": st.integers(1, 2000),
        "allow_nan": st.booleans(),
    }
)


def count_not_finite(value: object) -> int:
    if isinstance(value, dict):
        return sum(map(count_not_finite, value.values()))
    if isinstance(value, list):
        return sum(map(count_not_finite, value))
    return int(isinstance(value, float) and not math.isfinite(value))


def written(
    directory: Path, options: dict[str, object], write: Callable[[JsonlDirWriterSync], object]
) -> tuple[list[bytes], int]:
    """Return the content of each shard, and how many numbers were written as null."""
    target = JsonlDir(directory)
    with target.writer_sync(**options) as writer:
        write(writer)
    texts = []
    for shard in target.shards_sync():
        with shard.open_sync("rb") as file:
            texts.append(file.read())
    return texts, writer.not_finite


@given(items=st.lists(records, min_size=1, max_size=80), options=limits)
def test_a_list_is_written_as_its_records_one_by_one(
    items: list[object], options: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("many")

    def singly(writer: JsonlDirWriterSync) -> None:
        for item in items:
            writer.write(item)

    together = written(place / "together", options, lambda writer: writer.write_many(items))
    assert together == written(place / "singly", options, singly)


@pytest.mark.parametrize("before", [0, 1, 5, 200])
def test_the_records_before_one_that_cannot_be_written_are_kept(
    tmp_path: Path, before: int
) -> None:
    items: list[object] = [{"n": n} for n in range(before)]
    file = JsonlFile(tmp_path / "a.jsonl")
    with file.writer_sync() as writer:
        with pytest.raises(UnserializableRecordError, match="n"):
            writer.write_many([*items, {"n": object()}, {"n": -1}])
        writer.write({"n": "last"})
    assert list(file.iter_records_sync()) == [*items, {"n": "last"}]


def test_a_dict_that_a_generator_fills_anew_for_each_record_is_written_as_it_was(
    tmp_path: Path,
) -> None:
    def filled_anew() -> object:
        record: dict[str, object] = {}
        for n in range(300):
            record["n"] = math.nan if n % 3 else None
            yield record

    file = JsonlFile(tmp_path / "a.jsonl")
    with file.writer_sync() as writer:
        writer.write_many(filled_anew())
    assert writer.not_finite == 200


@given(record=records)
def test_none_is_told_from_not_a_number_wherever_they_stand(record: dict[str, object]) -> None:
    encoder = LineEncoder()
    encoder.encode({"inside": {"none": None}, "record": record})
    assert encoder.not_finite == count_not_finite(record)


class Lean(msgspec.Struct, omit_defaults=True):
    number: float = math.nan


class Full(msgspec.Struct):
    number: float = math.nan


@pytest.mark.parametrize("struct", [Lean, Full])
def test_a_default_that_is_not_a_number_is_counted(struct: type[msgspec.Struct]) -> None:
    encoder = LineEncoder()
    assert encoder.encode({"inside": {"none": None}, "struct": struct()}).count(b"null") == 2
    assert encoder.not_finite == 1
