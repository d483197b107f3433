"""Line numbers of Arrow streams: counted where text is decoded, and right in every piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.jsonl import JsonlDir, JsonlFile
from penstock.jsonl._arrow import PIECE_BYTES

if TYPE_CHECKING:
    from pathlib import Path

LINE = b'{"text": "' + b"x" * 1000 + b'"}\n'
GOOD = 3 * PIECE_BYTES // len(LINE)


def shard(blank: int) -> bytes:
    """Return some pieces of text: good lines, blank lines, a bad one, good ones, a bad one."""
    return LINE * GOOD + b"\n" * blank + b"bad\n" + LINE * GOOD + b"bad too\n" + LINE


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.zst"])
def test_a_bad_line_is_named_by_its_number_in_whatever_piece_it_stands(
    ending: str, tmp_path: Path
) -> None:
    for number in range(2):
        with JsonlFile(tmp_path / f"part-0000{number}{ending}").writer_sync() as writer:
            writer.write_raw(shard(blank=number))
    seen: list[tuple[int, bytes]] = []

    def note(line_number: int, line: bytes, _: Exception) -> None:
        seen.append((line_number, line))

    rows = sum(
        batch.num_rows for batch in JsonlDir(tmp_path).iter_arrow_batches_sync(on_error=note)
    )
    assert rows == 2 * (2 * GOOD + 1)
    assert seen == [
        (GOOD + 1, b"bad"),
        (2 * GOOD + 2, b"bad too"),
        (GOOD + 2, b"bad"),
        (2 * GOOD + 3, b"bad too"),
    ]
