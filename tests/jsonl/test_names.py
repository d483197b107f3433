from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jsonl import _names
from penstock.jsonl._names import (
    checked_extension,
    compression_of,
    in_reading_order,
    is_jsonl,
    names_file,
    next_number,
    shard_name,
    without_compression,
)

numbers = st.integers(0, 10**9)
shard_extensions = st.sampled_from(_names.SHARD_EXTENSIONS)
file_names = st.one_of(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["part-", "part-0", "Part-", "a", "_", ".", "10", "²", "٣", "é"]),
        st.integers(0, 120),
        st.sampled_from([".jsonl", ".jsonl.zst", ".jsonl.zstd", ".jsonl.gz", ".JSONL", ".txt", ""]),
    ),
)


@pytest.mark.parametrize(
    ("path", "compression"),
    [
        ("a.jsonl", None),
        ("a.jsonl.zst", "zstd"),
        ("a.jsonl.zstd", "zstd"),
        ("a.jsonl.gz", "gzip"),
        ("A.JSONL.ZST", "zstd"),
        ("s3://bucket/part-00000.jsonl.zst", "zstd"),
        ("a.zst", "zstd"),
        ("a.json.gz", "gzip"),
        ("a.csv.zstd", "zstd"),
        ("a.jsonl.zst/b", None),
        ("a.jsonl.bz2", "bz2"),
        ("a.gzip", None),
        ("", None),
    ],
)
def test_a_name_says_how_its_file_is_compressed(path: str, compression: str | None) -> None:
    assert compression_of(path) == compression


@given(file_names)
def test_a_compressed_file_is_read_where_its_name_without_the_ending_is(name: str) -> None:
    if compression_of(name) is not None:
        assert is_jsonl(name) == is_jsonl(without_compression(name))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz", "a.json", "a.json.bz2", "odps://a/b"])
def test_a_name_of_another_format_is_not_written(name: str) -> None:
    with pytest.raises(ValueError, match=f"cannot write {name}"):
        names_file(name)
    assert names_file("a.ndjson.bz2")
    assert not names_file("a")


@given(numbers, shard_extensions)
def test_a_shard_name_has_five_digits_or_more_and_tells_its_number(
    number: int, extension: str
) -> None:
    name = shard_name(number, extension)
    digits = name.removeprefix("part-").removesuffix(extension)
    assert digits == str(number).zfill(5)
    assert next_number([name]) == number + 1


@pytest.mark.parametrize("extension", ["", "jsonl", ".json", ".jsonl.gz", ".jsonl.zst ", ".JSONL"])
def test_another_shard_extension_is_refused_and_the_known_ones_named(extension: str) -> None:
    with pytest.raises(ValueError, match=r"\.jsonl, \.jsonl\.zst, \.jsonl\.zstd") as caught:
        checked_extension(extension)
    assert repr(extension) in str(caught.value)


@pytest.mark.parametrize(
    ("names", "number"),
    [
        ([], 0),
        (["notes.txt", "other.jsonl", "part-.jsonl", "part-7.txt"], 0),
        (["part-00000.jsonl"], 1),
        (["part-00000.jsonl", "part-00004.jsonl.zst"], 5),
        (["part-00001.jsonl.gz"], 2),
        (["part-00001.jsonl.bz2"], 2),
        (["part-99999.jsonl"], 100_000),
        (["part-99999.jsonl", "part-100000.jsonl.zstd"], 100_001),
        (["part-3.jsonl", "part-0002.jsonl"], 4),
        (["some/dir/part-00009.jsonl"], 10),
        (["xpart-00009.jsonl", "_part-00009.jsonl", ".part-00009.jsonl"], 0),
    ],
)
def test_numbering_goes_on_after_the_highest_number_whatever_the_extension(
    names: list[str], number: int
) -> None:
    assert next_number(names) == number


@given(st.lists(file_names))
def test_the_next_number_is_free_under_every_extension(names: list[str]) -> None:
    number = next_number(names)
    assert not {shard_name(number, extension) for extension in _names.SHARD_EXTENSIONS} & {*names}


@given(st.lists(st.tuples(numbers, shard_extensions), unique_by=lambda shard: shard[0]))
def test_shards_are_read_by_number(shards: list[tuple[int, str]]) -> None:
    names = [shard_name(*shard) for shard in shards]
    assert in_reading_order(names, str) == [shard_name(*shard) for shard in sorted(shards)]


@given(st.lists(file_names, unique=True), st.randoms())
def test_the_reading_order_does_not_hang_on_the_listing(names: list[str], random: object) -> None:
    ordered = in_reading_order(names, str)
    random.shuffle(names)  # type: ignore[attr-defined]
    assert in_reading_order(names, str) == ordered
    assert len(ordered) == len({*ordered})
    assert {*ordered} == {name for name in names if is_jsonl(name) and name[0] not in "._"}


def test_other_files_come_after_the_shards_in_natural_order() -> None:
    ordered = [
        "part-9.jsonl",
        "part-00010.jsonl.zst",
        "part-99999.jsonl",
        "part-100000.jsonl.zstd",
        "a1.jsonl",
        "A2.jsonl.gz",
        "a10.jsonl.zst",
        "b.jsonl",
        "part-00000.jsonl.gz",
        "part-x.jsonl",
    ]
    never = ["_part-00000.jsonl", ".part-00000.jsonl", "_b.jsonl", ".jsonl", "a.json", "part-00000"]
    draft = ".part-00000.jsonl.0123456789abcdef.penstock-tmp"
    assert in_reading_order([*never, draft, *reversed(ordered)], str) == ordered
