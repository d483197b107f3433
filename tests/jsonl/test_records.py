"""Records one by one and in lists, of files and directories."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jsonl import AsyncRecordIterator, JsonlDir, JsonlFile, RecordIterator
from tests.jsonl.doors import COMPRESSIONS, both_doors, read, records, write

if TYPE_CHECKING:
    from pathlib import Path

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(
    items=st.lists(json_values, max_size=8),
    ending=st.sampled_from(COMPRESSIONS),
    options=st.fixed_dictionaries(
        {"flush_bytes": st.integers(1, 60), "frame_bytes": st.integers(1, 60)}
    ),
    door=st.sampled_from(["sync", "async"]),
)
def test_any_json_value_written_is_read_again(
    items: list[Any],
    ending: str,
    options: dict[str, int],
    door: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = JsonlFile(tmp_path_factory.getbasetemp() / f"round-trip.jsonl{ending}")
    write(file, items, door, **options)
    assert repr(records(file, door)) == repr(items)


@both_doors
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 11, 1000])
def test_batches_have_the_size_asked_for_and_only_the_last_is_short(
    size: int, door: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(b"%d\n\n" % n for n in range(10)))
    batches = read(path, door, "batches", batch_size=size).items
    assert batches == [list(range(10))[start : start + size] for start in range(0, 10, size)]


@given(
    counts=st.lists(st.integers(0, 6), max_size=6),
    size=st.integers(1, 9),
    door=st.sampled_from(["sync", "async"]),
)
def test_batches_span_shards(
    counts: list[int], size: int, door: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("shards")
    values = list(range(sum(counts)))
    left = list(values)
    for number, count in enumerate(counts):
        text = b"".join(b"%d\n" % n for n in left[:count])
        del left[:count]
        (directory / f"part-{number:05d}.jsonl").write_bytes(text)
    batches = read(directory, door, "batches", batch_size=size).items
    assert batches == [values[start : start + size] for start in range(0, len(values), size)]
    assert records(directory, door) == values


@both_doors
def test_batches_have_a_thousand_records_unless_told_otherwise(door: str, tmp_path: Path) -> None:
    write(JsonlDir(tmp_path), range(2500), max_records_per_shard=600)
    for source in (tmp_path, tmp_path / "part-00000.jsonl"):
        sizes = [len(batch) for batch in read(source, door, "batches").items]
        assert sizes == ([1000, 1000, 500] if source is tmp_path else [600])


@pytest.mark.parametrize("size", [0, -1])
@pytest.mark.parametrize(
    "method",
    ["iter_batches", "iter_batches_sync", "iter_arrow_batches", "iter_arrow_batches_sync"],
)
def test_a_batch_size_below_one_is_a_value_error_at_once(
    method: str, size: int, tmp_path: Path
) -> None:
    for source in (JsonlFile(tmp_path / "a.jsonl"), JsonlDir(tmp_path)):
        with pytest.raises(ValueError, match=f"batch_size={size}"):
            getattr(source, method)(batch_size=size)


@both_doors
def test_a_missing_file_is_a_file_not_found_error_that_names_it(door: str, tmp_path: Path) -> None:
    for kind in ("records", "batches", "arrow_batches"):
        error = read(JsonlFile(tmp_path / "missing.jsonl"), door, kind).error
        assert isinstance(error, FileNotFoundError)
        assert str(tmp_path / "missing.jsonl") in str(error)


def test_nothing_is_opened_before_the_first_record_is_asked_for(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "late.jsonl")
    stream = file.iter_records_sync()
    write(file, [1, 2])
    assert list(stream) == [1, 2]


def test_a_stream_is_an_iterator_with_next_and_close(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    write(file, range(5))
    stream = file.iter_records_sync()
    assert isinstance(stream, RecordIterator)
    assert next(stream) == 0
    for record in stream:
        assert record == 1
        break
    assert next(stream) == 2
    stream.close()
    assert list(stream) == []


def test_an_async_stream_is_an_iterator_with_anext_and_aclose(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    write(file, range(5))

    async def take() -> None:
        stream = file.iter_records()
        assert isinstance(stream, AsyncRecordIterator)
        assert await anext(stream) == 0
        async for record in stream:
            assert record == 1
            break
        await stream.aclose()
        assert [record async for record in stream] == []

    asyncio.run(take())


def test_two_streams_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl.zst")
    write(file, range(1000), frame_bytes=100)
    first, second = file.iter_records_sync(), file.iter_records_sync()
    assert [next(first) for _ in range(10)] == list(range(10))
    assert list(second) == list(range(1000))
    assert list(first) == list(range(10, 1000))


def test_a_reader_sees_the_file_that_it_opened_although_it_is_replaced(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")
    write(file, [["old" * 1000, n] for n in range(500)])
    stream = file.iter_records_sync()
    assert next(stream)[1] == 0
    write(file, ["new"])
    assert [n for _, n in stream] == list(range(1, 500))
    assert records(file) == ["new"]


def test_records_hold_equal_values_through_every_door(tmp_path: Path) -> None:
    lines = [{"n": n, "nested": {"list": [n, None, "é"]}} for n in range(3000)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for source in (tmp_path, tmp_path / "a.jsonl"):
        for door in ("sync", "async"):
            assert records(source, door) == lines
            batches = read(source, door, "batches", batch_size=77).items
            assert [record for batch in batches for record in batch] == lines
