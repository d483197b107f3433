"""Bzip2 files: written and read as a stream."""

from __future__ import annotations

import bz2
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.errors import CorruptFileError, OptionError, TruncatedFileError
from penstock.jsonl import JsonlFile
from penstock.jsonl._sequential import Bz2Encoder, decode_stream
from tests.jsonl.doors import both_doors, records, write
from tests.jsonl.foreign import halves
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [{"n": n, "text": f"record {n}"} for n in range(50)]
TEXT = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl.bz2"


@both_doors
@pytest.mark.parametrize("level", [1, 9])
def test_ours_are_read_by_others_and_by_us(level: int, door: str, path: Path) -> None:
    write(JsonlFile(path), RECORDS, door, compression_level=level)
    lines = bz2.decompress(path.read_bytes()).splitlines()
    assert [json.loads(line) for line in lines] == RECORDS
    assert records(path, door) == RECORDS


@both_doors
def test_a_file_without_records_is_whole(door: str, path: Path) -> None:
    write(JsonlFile(path), [], door)
    assert bz2.decompress(path.read_bytes()) == b""
    assert records(path, door) == []


@both_doors
@pytest.mark.parametrize(
    "data",
    [
        b"".join(map(bz2.compress, halves(TEXT, 100))),
        b"".join(map(bz2.compress, [b"", TEXT, b""])),
        bz2.compress(TEXT) + bytes(1000),
    ],
    ids=["many streams", "empty streams", "padded"],
)
def test_any_bz2_stream_is_read(data: bytes, door: str, path: Path) -> None:
    path.write_bytes(data)
    assert records(path, door) == RECORDS


@pytest.mark.parametrize("data", [b"", bz2.compress(TEXT)[:-1], bz2.compress(TEXT)[:3]])
def test_a_file_that_is_cut_off_is_told_of(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with pytest.raises(TruncatedFileError, match=r"a\.jsonl\.bz2 is cut off"):
        records(path)


@pytest.mark.parametrize(
    "data", [bz2.compress(TEXT) + b"x", bz2.compress(TEXT)[:5] + bz2.compress(TEXT)[6:]]
)
def test_what_is_no_bz2_is_a_corrupt_file(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match="the bz2 data near byte"):
        records(path)


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
def test_a_name_that_promises_a_compression_which_the_file_has_not_is_told(
    ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(b'{"a": 1}\n')
    match = rf"a\.jsonl\.{ending} holds no \w+ data: it begins with b'{{\"a\": 1.*the name of what"
    with pytest.raises(CorruptFileError, match=match):
        records(path)
    with pytest.raises(CorruptFileError, match=match):
        penstock.open(path)


def test_a_level_that_bz2_does_not_have_is_refused(path: Path) -> None:
    with pytest.raises(OptionError, match="bz2 takes 1 to 9"):
        JsonlFile(path).writer_sync(compression_level=0)


def test_a_small_file_of_much_text_comes_in_small_parts() -> None:
    data = bz2.compress(bytes(30_000_000))
    assert len(data) < 1000
    parts = [len(part) for part in decode_stream([data], "a.bz2", "bz2")]
    assert sum(parts) == 30_000_000
    assert max(parts) <= 1 << 20


@given(st.lists(st.binary(max_size=50) | st.none()), st.integers(1, 60))
def test_text_survives_any_cuts_and_flushes(steps: list[bytes | None], size: int) -> None:
    encoder, data = Bz2Encoder(1), b""
    for step in steps[: rounds(10, 100)]:
        data += b"".join(encoder.flush() if step is None else encoder.add(step))
    data += b"".join(encoder.finish())
    text = b"".join(step for step in steps[: rounds(10, 100)] if step is not None)
    assert bz2.decompress(data) == text
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    assert b"".join(decode_stream(blocks, "a.bz2", "bz2")) == text
