"""Gzip files: written and read as a stream."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptFileError, TruncatedFileError
from penstock.jsonl import JsonlFile
from penstock.jsonl._sequential import GzipEncoder, decode_stream
from tests.jsonl.doors import both_doors, read, records, write
from tests.jsonl.foreign import halves
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [{"n": n, "text": f"record {n}"} for n in range(50)]
TEXT = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl.gz"


@both_doors
@pytest.mark.parametrize("level", [0, 1, 9])
def test_ours_are_read_by_others_and_by_us(level: int, door: str, path: Path) -> None:
    write(JsonlFile(path), RECORDS, door, compression_level=level)
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert [json.loads(line) for line in lines] == RECORDS
    assert records(path, door) == RECORDS


@both_doors
@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(TEXT),
        gzip.compress(TEXT, 0),
        b"".join(map(gzip.compress, halves(TEXT, 100))),
        b"".join(map(gzip.compress, [b"", TEXT, b""])),
        gzip.compress(TEXT) + bytes(1000),
        b"".join(gzip.compress(part) + bytes(n) for n, part in enumerate(halves(TEXT, 100))),
    ],
    ids=["one member", "stored", "many members", "empty members", "padded", "padded between"],
)
def test_any_gzip_stream_is_read(data: bytes, door: str, path: Path) -> None:
    path.write_bytes(data)
    assert records(path, door) == RECORDS


@both_doors
@pytest.mark.parametrize("data", [b"", bytes(512)], ids=["no bytes", "zeros"])
def test_a_file_without_a_member_is_cut_off_and_not_empty(
    data: bytes, door: str, path: Path
) -> None:
    path.write_bytes(data)
    outcome = read(path, door)
    assert isinstance(outcome.error, TruncatedFileError)
    assert f"{path} is cut off: no gzip data is in its {len(data)} bytes" in str(outcome.error)


@both_doors
def test_a_file_without_text_holds_nothing(door: str, path: Path) -> None:
    path.write_bytes(gzip.compress(b""))
    assert records(path, door) == []
    write(JsonlFile(path), [], door)
    assert gzip.decompress(path.read_bytes()) == b""
    assert records(path, door) == []


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.integers(1, 60), st.integers(0, 5)
)
def test_members_may_arrive_in_blocks_of_any_size(
    texts: list[bytes], block_bytes: int, padding: int
) -> None:
    data = b"".join(gzip.compress(text) + bytes(padding) for text in texts)
    assert b"".join(decode_stream(halves(data, block_bytes), "a")) == b"".join(texts)


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20, (3 << 20) + 7])
def test_text_of_any_size_comes_whole_and_in_bounded_parts(size: int) -> None:
    data = gzip.compress(b"x" * size)
    parts = list(decode_stream([data], "a"))
    assert b"".join(parts) == b"x" * size
    assert max(map(len, parts)) <= 1 << 20


@given(st.lists(st.binary(max_size=40).map(lambda text: text + b"\n")))
def test_what_is_flushed_can_be_read(texts: list[bytes]) -> None:
    encoder = GzipEncoder(6)
    written = b""
    for number, text in enumerate(texts, start=1):
        written += b"".join(encoder.add(text)) + b"".join(encoder.flush())
        assert zlib.decompressobj(wbits=31).decompress(written) == b"".join(texts[:number])
    assert gzip.decompress(written + b"".join(encoder.finish())) == b"".join(texts)


@both_doors
def test_a_truncated_file_never_ends_quietly(door: str, path: Path) -> None:
    first, second = gzip.compress(TEXT[:1000], mtime=0), gzip.compress(TEXT[1000:], mtime=0)
    data = first + second
    for cut in range(1, len(data), rounds(9, 1)):
        path.write_bytes(data[:cut])
        outcome = read(path, door)
        assert outcome.items == RECORDS[: len(outcome.items)]
        if cut != len(first):  # A file cut exactly between members is a whole gzip file.
            assert isinstance(outcome.error, TruncatedFileError), cut
            assert str(path) in str(outcome.error)


@both_doors
def test_one_byte_flipped_is_an_error_or_changes_nothing(door: str, path: Path) -> None:
    data = gzip.compress(TEXT, mtime=0)
    for at in range(0, len(data), rounds(7, 1)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        outcome = read(path, door, on_error="skip")
        assert outcome.error is None or isinstance(outcome.error, CorruptFileError), at
        if outcome.error is None:
            assert outcome.items == RECORDS, at


@both_doors
@pytest.mark.parametrize("data", [TEXT, gzip.compress(TEXT) + b"garbage", b"\x1f\x8b\xff"])
def test_what_is_no_gzip_is_a_corrupt_file(data: bytes, door: str, path: Path) -> None:
    path.write_bytes(data)
    outcome = read(path, door)
    assert isinstance(outcome.error, CorruptFileError)
    assert isinstance(outcome.error, OSError)
    assert str(path) in str(outcome.error)
    assert outcome.items in ([], RECORDS)
