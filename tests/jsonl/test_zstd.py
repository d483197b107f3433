"""Zstandard files: ours as anybody reads them, anybody's as we read them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tracemalloc
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
import pyzstd
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

import penstock
from penstock.errors import CorruptFileError, TruncatedFileError, UnsupportedFileError
from penstock.jsonl import JsonlDir, JsonlFile
from penstock.jsonl._zstd import (
    ZstdEncoder,
    decode_frame,
    decode_stream,
    read_seek_table,
    seek_table,
)
from penstock.storage import LocalStore
from tests.jsonl.doors import both_doors, read, records, write
from tests.jsonl.foreign import (
    CHECKSUM,
    NO_CONTENT_SIZE,
    SKIPPABLE_FRAME,
    halves,
    seekable,
    table_with_checksums,
    zstd_frames,
)
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.storage import OpenFile

RECORDS = [{"n": n, "text": f"record {n} " * (n % 7)} for n in range(60)]
TEXT = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)
FRAME_BYTES = 400


def frames_of(path: Path) -> list[tuple[int, int]] | None:
    file = LocalStore().open(str(path))
    try:
        return table_of(file)
    finally:
        file.close()


def table_of(file: OpenFile) -> list[tuple[int, int]] | None:
    frames = read_seek_table(file)
    return None if frames is None else [(packed, text) for packed, text in frames.tolist()]


def frame_ends(path: Path) -> list[int]:
    frames = frames_of(path)
    assert frames
    return list(accumulate(compressed for compressed, _ in frames))


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A file of many frames that Penstock wrote."""
    path = tmp_path / "part-00000.jsonl.zst"
    write(JsonlFile(path), RECORDS, frame_bytes=FRAME_BYTES)
    assert len(frames_of(path) or []) > 7
    return path


# Ours


@both_doors
@pytest.mark.parametrize("ending", ["zst", "zstd"])
def test_frames_are_cut_at_record_ends_and_account_for_the_file(
    ending: str, door: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.jsonl.{ending}"
    long = {"text": "x" * 3 * FRAME_BYTES}
    write(JsonlFile(path), [*RECORDS, long, *RECORDS], door, frame_bytes=FRAME_BYTES)
    frames = frames_of(path)
    assert frames
    data = path.read_bytes()
    assert seek_table(frames) == data[sum(compressed for compressed, _ in frames) :]
    start = 0
    texts = []
    for compressed, uncompressed in frames:
        texts.append(zstandard.decompress(data[start : start + compressed]))
        assert len(texts[-1]) == uncompressed
        assert texts[-1].endswith(b"\n")
        assert len(texts[-1]) <= FRAME_BYTES or texts[-1].count(b"\n") == 1
        start += compressed
    seen = [json.loads(line) for text in texts for line in text.splitlines()]
    assert seen == [*RECORDS, long, *RECORDS]


def test_a_frame_holds_256_kib_of_text_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    write(JsonlFile(path), ["x" * 997] * 1000)
    sizes = [uncompressed for _, uncompressed in frames_of(path) or []]
    assert sizes == [262 * 1000] * 3 + [214 * 1000]


@given(
    lines=st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"") + b"\n")),
    groups=st.lists(st.integers(0, 5)),
    frame_bytes=st.integers(1, 30),
    flushed=st.booleans(),
)
def test_any_lines_in_any_portions_make_frames_that_end_at_line_ends(
    lines: list[bytes],
    groups: list[int],
    frame_bytes: int,
    flushed: bool,  # noqa: FBT001
) -> None:
    encoder = ZstdEncoder(1, frame_bytes)
    written = []
    left = list(lines)
    for size in [*groups, len(lines)]:
        written += encoder.add(b"".join(left[:size]))
        del left[:size]
        if flushed:
            written += encoder.flush()
            taken = lines[: len(lines) - len(left)]
            assert pyzstd.decompress(b"".join(written) or SKIPPABLE_FRAME) == b"".join(taken)
    written += encoder.finish()
    encoder.close()
    *frames, table = written
    texts = [zstandard.decompress(frame) for frame in frames]
    assert b"".join(texts) == b"".join(lines)
    assert table == seek_table(
        [(len(frame), len(text)) for frame, text in zip(frames, texts, strict=True)]
    )
    for text in texts:
        assert text.endswith(b"\n")
        assert len(text) <= frame_bytes or text.count(b"\n") == 1


class _File:
    """Bytes as an open file."""

    def __init__(self, data: bytes) -> None:
        self.path = "a.jsonl.zst"
        self.size = len(data)
        self._data = data

    def read_at(self, start: int, length: int) -> bytes:
        assert 0 <= start <= start + length <= self.size
        return self._data[start : start + length]

    def read_ranges(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        return [self.read_at(*span) for span in ranges]

    def close(self) -> None:
        pass


sizes = st.lists(st.tuples(st.integers(9, 300), st.integers(0, 2**32 - 1)), max_size=12)


@given(sizes)
def test_a_seek_table_is_read_as_it_was_written(frames: list[tuple[int, int]]) -> None:
    data = bytes(sum(compressed for compressed, _ in frames)) + seek_table(frames)
    assert table_of(_File(data)) == frames


@given(sizes, st.binary(min_size=1, max_size=30))
def test_a_table_that_does_not_account_for_every_byte_is_none(
    frames: list[tuple[int, int]], more: bytes
) -> None:
    data = bytes(sum(compressed for compressed, _ in frames)) + seek_table(frames)
    assert table_of(_File(more + data)) is None
    assert table_of(_File(data + seek_table(frames))) in (None, [] if not frames else None)


@given(st.binary(max_size=60))
@example(b"")
@example(seek_table([])[1:])
def test_other_bytes_are_no_table(data: bytes) -> None:
    assert table_of(_File(data)) is None


@given(sizes, st.data())
def test_a_table_with_one_byte_changed_is_none_or_tells_another_size(
    frames: list[tuple[int, int]], data: st.DataObject
) -> None:
    table = bytearray(seek_table(frames))
    at = data.draw(st.integers(0, len(table) - 1))
    table[at] ^= data.draw(st.integers(1, 255))
    whole = bytes(sum(compressed for compressed, _ in frames)) + bytes(table)
    seen = table_of(_File(whole))
    if seen is not None:
        assert [compressed for compressed, _ in seen] == [compressed for compressed, _ in frames]
        assert sum(a != b for a, b in zip(seen, frames, strict=True)) <= 1


def test_a_table_larger_than_the_part_read_first_is_read_whole() -> None:
    frames = [(9, n) for n in range(20_000)]
    assert table_of(_File(bytes(9 * len(frames)) + seek_table(frames))) == frames


def test_a_table_of_more_frames_than_the_file_can_hold_is_none_and_not_read() -> None:
    # Frames of no bytes would account for a file that is nothing but its table.
    class _Tail(_File):
        def read_at(self, start: int, length: int) -> bytes:
            assert length <= 64 << 10
            return super().read_at(start, length)

    table = seek_table([(0, 1)] * 100_000)
    assert table_of(_Tail(table)) is None
    assert table_of(_Tail(bytes(8 * 100_000) + table)) is None


def test_others_read_our_files(ours: Path) -> None:
    text = b"".join(json.dumps(r, separators=(",", ":")).encode() + b"\n" for r in RECORDS)
    data = ours.read_bytes()
    assert pyzstd.decompress(data) == text
    with pyzstd.ZstdFile(ours) as file:
        assert file.read() == text
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as file:
        assert file.read() == text
    chance = random.Random(3)
    with pyzstd.SeekableZstdFile(ours) as file:
        for _ in range(100):
            start = chance.randrange(len(text))
            file.seek(start)
            assert file.read(50) == text[start : start + 50]


def test_others_read_our_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    write(JsonlFile(path), [])
    assert records(path) == []
    assert pyzstd.decompress(path.read_bytes()) == b""
    with pyzstd.SeekableZstdFile(path) as file:
        assert file.read() == b""


# Foreign


def _foreign_files() -> dict[str, bytes]:
    parts = halves(TEXT, 333)
    by_record = [line + b"\n" for line in TEXT.split(b"\n")[:-1]]
    compressor = pyzstd.ZstdCompressor()
    streamed = b"".join(
        compressor.compress(part, pyzstd.ZstdCompressor.FLUSH_BLOCK) for part in parts
    )
    frames = zstd_frames(parts)
    return {
        "one frame": pyzstd.compress(TEXT),
        "one frame with a checksum": pyzstd.compress(TEXT, CHECKSUM),
        "one frame without its size": pyzstd.compress(TEXT, NO_CONTENT_SIZE),
        "a stream of blocks": streamed + compressor.flush(),
        "many frames": b"".join(frames),
        "a frame a record": b"".join(zstd_frames(by_record)),
        "many frames without sizes": b"".join(zstd_frames(parts, NO_CONTENT_SIZE)),
        "empty frames between": b"".join(
            frame + pyzstd.compress(b"") for frame in zstd_frames(parts)
        ),
        "skippable frames around": SKIPPABLE_FRAME
        + b"".join(frame + SKIPPABLE_FRAME for frame in frames),
        "skippable frames of length 0": b"".join(
            b"\x5f\x2a\x4d\x18" + bytes(4) + frame for frame in frames
        ),
        "seekable": seekable(TEXT, 300),
        "seekable with checksums in frames": seekable(TEXT, 300, CHECKSUM),
        "seekable in one frame": seekable(TEXT, 1 << 30),
        "seekable with checksums in the table": b"".join(frames)
        + table_with_checksums(frames, parts),
        "seekable with an empty frame": b"".join([*frames, pyzstd.compress(b"", NO_CONTENT_SIZE)])
        + seek_table(
            [
                *((len(f), len(p)) for f, p in zip(frames, parts, strict=True)),
                (len(pyzstd.compress(b"", NO_CONTENT_SIZE)), 0),
            ]
        ),
        "two seekable files in a row": seekable(TEXT[:1000], 300) + seekable(TEXT[1000:], 300),
        "a seekable file and a skippable frame": seekable(TEXT, 300) + SKIPPABLE_FRAME,
        "a skippable frame and a seekable file": SKIPPABLE_FRAME + seekable(TEXT, 300),
        "a wrong table": b"".join(frames) + seek_table([(5, 5)]),
        "highest level": pyzstd.compress(TEXT, 22),
        "a large window": pyzstd.compress(TEXT, {pyzstd.CParameter.windowLog: 27}),
    }


FOREIGN = _foreign_files()


@both_doors
@pytest.mark.parametrize("what", FOREIGN)
def test_any_zstd_stream_is_read(what: str, door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(FOREIGN[what])
    assert records(path, door) == RECORDS
    assert records(JsonlDir(tmp_path), door) == RECORDS
    batches = read(path, door, "arrow_batches").items
    assert [row for batch in batches for row in batch.to_pylist()] == RECORDS


@given(st.sampled_from(sorted(FOREIGN)), st.integers(1, 700))
def test_a_stream_may_arrive_in_blocks_of_any_size(what: str, block_bytes: int) -> None:
    blocks = halves(FOREIGN[what], block_bytes)
    assert b"".join(decode_stream(blocks, "a.jsonl.zst")) == TEXT


@both_doors
def test_concatenated_files_of_ours_are_read_as_one(ours: Path, door: str, tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl.zst"
    path.write_bytes(ours.read_bytes() * 2 + pyzstd.compress(TEXT) + ours.read_bytes())
    assert records(path, door) == RECORDS * 4


@both_doors
def test_a_file_of_ours_without_its_table_is_read(ours: Path, door: str) -> None:
    # The table is not needed to read from the start: a cut just before it loses no record.
    ours.write_bytes(ours.read_bytes()[: frame_ends(ours)[-1]])
    assert records(ours, door) == RECORDS


def test_text_thousands_of_times_as_long_as_its_frame_comes_in_small_parts() -> None:
    line = b'{"text":"' + b"x" * 500 + b'"}\n'
    dense = pyzstd.compress(line * 100_000)
    assert len(dense) * 5000 < len(line) * 100_000
    parts = list(map(len, decode_stream([dense], "a.jsonl.zst")))
    assert sum(parts) == len(line) * 100_000
    assert max(parts) < 12 << 20


@both_doors
def test_a_foreign_table_may_list_huge_frames(door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    line = b'{"text":"' + b"x" * 1000 + b'"}\n'
    path.write_bytes(seekable(line * 20_000, 1 << 30))
    assert frames_of(path) == [(path.stat().st_size - 25, len(line) * 20_000)]
    assert records(path, door) == [json.loads(line)] * 20_000


def test_frames_with_the_largest_window_are_read(tmp_path: Path) -> None:
    # As `zstd --long=31` writes them from a pipe: by default decoders stop at a window of 2^27.
    header = b"\x28\xb5\x2f\xfd" + bytes([0, (31 - 10) << 3])
    block = b"".join([((len(TEXT) << 3) | 1).to_bytes(3, "little"), TEXT])
    for name, table in (
        ("streamed", b""),
        ("seekable", seek_table([(len(header + block), len(TEXT))])),
    ):
        path = tmp_path / f"{name}.jsonl.zst"
        path.write_bytes(header + block + table)
        assert zstandard.get_frame_parameters(path.read_bytes()).window_size == 1 << 31
        assert records(path) == RECORDS
        assert penstock.open(path)[:] == RECORDS


def test_a_window_for_which_there_is_no_memory_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes([0, (31 - 10) << 3]) + b"\x01\0\0")
    program = (
        "import resource, sys; from penstock.jsonl import JsonlFile\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "list(JsonlFile(sys.argv[1]).iter_records_sync())"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=False)
    assert b"StorageError" in done.stderr
    assert b"not enough memory" in done.stderr
    assert b"--long=31" in done.stderr


# Damaged


@both_doors
@pytest.mark.parametrize("options", [None, NO_CONTENT_SIZE], ids=["sized", "unsized"])
@pytest.mark.parametrize("told", ["of the first", "of both"])
def test_a_table_whose_entry_covers_two_frames_loses_nothing_in_silence(
    told: str, options: dict[int, int] | None, door: str, tmp_path: Path
) -> None:
    texts = halves(TEXT, TEXT.index(b"\n") + 1)[:4]
    frames = zstd_frames(texts, options)
    entries = [
        (len(frames[0]), len(texts[0])),
        (len(frames[1] + frames[2]), len(texts[1]) + (told == "of both") * len(texts[2])),
        (len(frames[3]), len(texts[3])),
    ]
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"".join(frames) + seek_table(entries))
    outcome = read(path, door)
    assert isinstance(outcome.error, CorruptFileError)
    assert outcome.items == RECORDS[:1]
    assert f"near byte {len(frames[0])}" in str(outcome.error)
    assert "seek table" in str(outcome.error)
    with pytest.raises(CorruptFileError, match="seek table"):
        penstock.open(path)


@pytest.mark.parametrize("options", [None, NO_CONTENT_SIZE], ids=["sized", "unsized"])
@pytest.mark.parametrize("wrong", ["two frames", "half a frame", "less text", "more text"])
def test_a_frame_that_is_not_what_its_index_says_is_an_error(
    wrong: str, options: dict[int, int] | None
) -> None:
    text = b"text\n" * 4000
    frame = pyzstd.compress(text, options)
    data = {"two frames": frame * 2, "half a frame": frame[:-3]}.get(wrong, frame)
    size = len(text) + {"less text": -1, "more text": 1}.get(wrong, 0)
    with pytest.raises(CorruptFileError, match=r"a\.jsonl\.zst .* near byte 70"):
        decode_frame(data, size, "a.jsonl.zst", 70)
    assert decode_frame(frame, len(text), "a.jsonl.zst", 70) == text


def test_a_frame_of_endless_text_is_not_decompressed_beyond_its_size() -> None:
    bomb = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))
    claim = b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little") + b"\x01\0\0"
    tracemalloc.start()
    for data in (bomb, claim):
        with pytest.raises(CorruptFileError, match="1,000 bytes of text, as the index says"):
            decode_frame(data, 1000, "a.jsonl.zst", 0)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


@both_doors
@pytest.mark.parametrize("kind", ["records", "batches", "arrow_batches"])
def test_a_file_of_no_bytes_is_cut_off_and_not_empty(kind: str, door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"")
    for place in (path, tmp_path):
        outcome = read(place, door, kind)
        assert isinstance(outcome.error, TruncatedFileError)
        assert f"{path} is cut off: it has 0 bytes" in str(outcome.error)


def records_of_whole_frames(path: Path, cut: int) -> int:
    """Return how many records stand in frames that end before a cut."""
    frames = frames_of(path) or []
    ends = frame_ends(path)
    bytes_before = sum(
        uncompressed for (_, uncompressed), end in zip(frames, ends, strict=True) if end <= cut
    )
    return pyzstd.decompress(path.read_bytes())[:bytes_before].count(b"\n")


@both_doors
@pytest.mark.parametrize("place", ["file", "directory"])
def test_a_truncated_file_gives_its_whole_frames_and_then_an_error(
    ours: Path, place: str, door: str
) -> None:
    data = ours.read_bytes()
    # A file cut exactly between frames is a whole zstd file and says nothing of what is missing.
    between = {0, *frame_ends(ours)}
    step = rounds(23, 1)
    cuts = [cut for cut in range(1, len(data), step) if cut not in between]
    ends = frame_ends(ours)
    cuts += [ends[0] - 1, ends[0] + 1, ends[-1] - 1, ends[-1] + 1, len(data) - 1]
    whole = {cut: records_of_whole_frames(ours, cut) for cut in cuts}
    for cut in cuts:
        ours.write_bytes(data[:cut])
        outcome = read(ours if place == "file" else ours.parent, door)
        assert isinstance(outcome.error, CorruptFileError), cut
        assert str(ours) in str(outcome.error)
        assert outcome.items == RECORDS[: len(outcome.items)]
        assert len(outcome.items) >= whole[cut]


@both_doors
@pytest.mark.parametrize("kind", ["batches", "arrow_batches"])
def test_truncation_is_an_error_in_batches_too(ours: Path, kind: str, door: str) -> None:
    data = ours.read_bytes()
    for cut in (frame_ends(ours)[3] + 5, len(data) - 3):
        whole = len(RECORDS) if cut > frame_ends(ours)[-1] else records_of_whole_frames(ours, cut)
        ours.write_bytes(data[:cut])
        outcome = read(ours, door, kind, batch_size=1)
        assert isinstance(outcome.error, TruncatedFileError)
        assert isinstance(outcome.error, EOFError)
        rows = [b[0] if kind == "batches" else b.to_pylist()[0] for b in outcome.items]
        assert rows == RECORDS[:whole]
        ours.write_bytes(data)


def test_a_file_cut_between_two_frames_is_the_shorter_file_and_a_warning_tells(
    ours: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Nothing in such a file is incomplete; only the table of frames, which ours end with, is gone.
    data = ours.read_bytes()
    for frames, cut in enumerate(frame_ends(ours), 1):
        caplog.clear()
        ours.write_bytes(data)
        whole = records_of_whole_frames(ours, cut)
        ours.write_bytes(data[:cut])
        assert records(ours) == RECORDS[:whole]
        assert [str(ours) in entry.getMessage() for entry in caplog.records] == [True] * (
            frames > 1
        )


@both_doors
@pytest.mark.parametrize("what", ["one frame", "many frames", "seekable", "a stream of blocks"])
def test_a_truncated_foreign_file_never_ends_quietly(what: str, door: str, tmp_path: Path) -> None:
    data = FOREIGN[what]
    path = tmp_path / "a.jsonl.zst"
    ends = {0, *accumulate(map(len, zstd_frames(halves(TEXT, 333))))}
    ends |= {*accumulate(compressed for compressed, _ in table_of(_File(data)) or [])}
    for cut in range(1, len(data), rounds(41, 3)):
        if cut in ends:
            continue
        path.write_bytes(data[:cut])
        outcome = read(path, door)
        assert isinstance(outcome.error, CorruptFileError), cut
        assert outcome.items == RECORDS[: len(outcome.items)]


def flips(data: bytes, count: int) -> list[tuple[int, int]]:
    """Return places and changes: every byte in a long run, else some, the last ones always."""
    chance = random.Random(7)
    every = range(len(data))
    some = every if count >= len(data) else [*chance.sample(every, count), *every[-60::4]]
    return [(at, 1 << chance.randrange(8)) for at in some] + [
        (at, chance.randrange(1, 256)) for at in some
    ]


@both_doors
@pytest.mark.parametrize("place", ["file", "directory"])
def test_one_byte_flipped_gives_an_error_or_the_same_records(
    ours: Path, place: str, door: str
) -> None:
    data = ours.read_bytes()
    errors = 0
    for at, change in flips(data, rounds(60, len(data))):
        damaged = bytearray(data)
        damaged[at] ^= change
        ours.write_bytes(damaged)
        outcome = read(ours if place == "file" else ours.parent, door)
        if outcome.error is None:
            assert outcome.items == RECORDS, (at, change)
        else:
            errors += 1
            # A frame may now say that it needs a dictionary.
            assert isinstance(outcome.error, CorruptFileError | UnsupportedFileError), (at, change)
            assert str(ours) in str(outcome.error)
            assert outcome.items == RECORDS[: len(outcome.items)], (at, change)
    assert errors


def test_one_byte_flipped_in_concatenated_files_gives_no_other_records(
    ours: Path, tmp_path: Path
) -> None:
    path = tmp_path / "both.jsonl.zst"
    data = ours.read_bytes() * 2
    for at, change in flips(data, rounds(100, len(data))):
        damaged = bytearray(data)
        damaged[at] ^= change
        path.write_bytes(damaged)
        outcome = read(path, "sync")
        assert outcome.items == (RECORDS * 2)[: len(outcome.items)], (at, change)
        assert outcome.error is not None or len(outcome.items) == 2 * len(RECORDS)


@both_doors
def test_a_file_with_a_dictionary_is_not_called_damaged(door: str, tmp_path: Path) -> None:
    samples = [b'{"number": %d, "text": "of a sample"}' % number for number in range(500)]
    dictionary = zstandard.train_dictionary(2048, samples)
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor(dict_data=dictionary).compress(samples[0]))
    outcome = read(path, door)
    assert outcome.items == []
    assert isinstance(outcome.error, UnsupportedFileError)
    assert f"zstd -D DICTIONARY -dc {path}" in str(outcome.error)


@both_doors
def test_what_is_no_zstd_at_all_is_a_corrupt_file(door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(TEXT)
    outcome = read(path, door)
    assert outcome.items == []
    assert isinstance(outcome.error, CorruptFileError)
    assert isinstance(outcome.error, OSError)
    assert str(path) in str(outcome.error)


@both_doors
def test_garbage_behind_a_file_is_an_error_after_its_records(ours: Path, door: str) -> None:
    ours.write_bytes(ours.read_bytes() + b"garbage")
    outcome = read(ours, door)
    assert outcome.items == RECORDS
    assert isinstance(outcome.error, CorruptFileError)


@both_doors
@pytest.mark.parametrize("kind", ["records", "arrow_batches"])
def test_a_damaged_shard_is_an_error_after_the_shards_before_it(
    kind: str, door: str, ours: Path
) -> None:
    later = ours.with_name("part-00001.jsonl.zst")
    later.write_bytes(ours.read_bytes()[:-10])
    last = ours.with_name("part-00002.jsonl.zst")
    last.write_bytes(ours.read_bytes())
    options = {} if kind == "records" else {"batch_size": 1}
    outcome = read(ours.parent, door, kind, **options)
    assert isinstance(outcome.error, TruncatedFileError)
    assert str(later) in str(outcome.error)
    seen = outcome.items
    if kind == "arrow_batches":
        seen = [row for batch in seen for row in batch.to_pylist()]
    assert seen == RECORDS * 2
