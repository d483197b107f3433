"""Records from the middle of compressed files."""

from __future__ import annotations

import gzip
import logging
import random
from typing import TYPE_CHECKING

import pytest
import pyzstd
import zstandard

import penstock
from penstock.index import create_default_jsonl_indexer
from penstock.jsonl import JsonlFile

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [{"id": n, "text": f"text {n} " * (n % 9)} for n in range(3000)]
TEXT = b"".join(penstock_line for penstock_line in (
    b'{"id":%d,"text":"%s"}\n' % (r["id"], str(r["text"]).encode()) for r in RECORDS
))  # fmt: skip


def check(folder: Path) -> None:
    dataset = penstock.open(folder)
    assert len(dataset) == len(RECORDS)
    chance = random.Random(1)
    ids = [chance.randrange(len(RECORDS)) for _ in range(300)]
    assert dataset[ids] == [RECORDS[n] for n in ids]
    assert [dataset[n] for n in ids[:50]] == [RECORDS[n] for n in ids[:50]]
    assert dataset.arrow(ids, {"id": "int64"})["id"].to_pylist() == ids
    assert list(dataset) == RECORDS


@pytest.mark.parametrize("frame_bytes", [1, 500, 20_000, 1 << 20])
def test_our_own_files_are_read_by_frames(frame_bytes: int, tmp_path: Path) -> None:
    with JsonlFile(tmp_path / "a.jsonl.zst").writer_sync(frame_bytes=frame_bytes) as writer:
        writer.write_many(RECORDS)
    check(tmp_path)
    blocks = penstock.open(tmp_path).blocks
    assert len(blocks) - 1 == min(3000, -(-len(TEXT) // frame_bytes)) or frame_bytes > 1


@pytest.mark.parametrize("cut", [100, 777, 5000])
def test_foreign_frames_may_end_anywhere(cut: int, tmp_path: Path) -> None:
    frames = [pyzstd.compress(TEXT[at : at + cut]) for at in range(0, len(TEXT), cut)]
    (tmp_path / "a.jsonl.zst").write_bytes(b"".join(frames))
    check(tmp_path)


def test_a_foreign_seekable_file_is_read_by_its_frames(tmp_path: Path) -> None:
    with pyzstd.SeekableZstdFile(tmp_path / "a.jsonl.zst", "w", max_frame_content_size=999) as file:
        file.write(TEXT)
    check(tmp_path)


def test_one_small_foreign_frame_is_decompressed_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(TEXT))
    check(tmp_path)


def test_one_huge_foreign_frame_works_and_warns_of_its_cost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = b'{"id":%d,"text":"' + b"x" * 1000 + b'"}\n'
    text = b"".join(line % n for n in range(20_000))
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.ZstdCompressor(1).compress(text))
    with caplog.at_level(logging.WARNING, "penstock"):
        dataset = penstock.open(tmp_path)
    assert "penstock convert" in caplog.text
    assert [dataset[n]["id"] for n in (19_999, 0, 10_000, 9_999)] == [19_999, 0, 10_000, 9_999]
    assert [r["id"] for r in dataset[[5, 19_000, 5, 700]]] == [5, 19_000, 5, 700]


def test_gzip_is_read_from_its_beginning_as_often_as_one_likes(tmp_path: Path) -> None:
    count = 30_000
    text = b"".join(b'{"id":%d,"text":"%s"}\n' % (n, b"x" * 100) for n in range(count))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text))
    create_default_jsonl_indexer(tmp_path)()
    dataset = penstock.open(tmp_path)
    assert [record["id"] for record in dataset[[7, 3, 20_000]]] == [7, 3, 20_000]
    assert dataset[25_000]["id"] == 25_000
    assert dataset[15_000]["id"] == 15_000  # Going back once in a while is fine.
    for _ in range(2):  # From the beginning, as often as one likes.
        assert [record["id"] for record in dataset] == list(range(count))


def test_a_mark_and_skippable_frames_do_not_shift_records(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    text = b"\xef\xbb\xbf" + TEXT
    frames = [pyzstd.compress(text[:2]), skippable, pyzstd.compress(text[2:]), skippable]
    (tmp_path / "a.jsonl.zst").write_bytes(b"".join(frames))
    check(tmp_path)


def test_mixed_compression_in_one_folder_is_one_source(tmp_path: Path) -> None:
    parts = [RECORDS[:1000], RECORDS[1000:2000], RECORDS[2000:]]
    for name, part in zip(("a.jsonl", "b.jsonl.zst", "c.jsonl.zstd"), parts, strict=True):
        with JsonlFile(tmp_path / name).writer_sync(frame_bytes=3000) as writer:
            writer.write_many(part)
    check(tmp_path)
