from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.jsonl import JsonlDir, JsonlFile
from penstock.jsonl._decode import MalformedLine, decode_piece
from penstock.jsonl._text import TextPiece

if TYPE_CHECKING:
    from pathlib import Path

# Each kind of line costs something of its own: a look at the exception, a second decoder, a log.
LINES = {
    "bad": b'{"a":\n',
    "blank": b"\n",
    "nan": b"[NaN]\n",
    "tiny": b"7\n",
    "good": b'{"a":1}\n',
}


@pytest.mark.parametrize("kind", LINES)
def test_no_step_of_decoding_takes_more_than_some_lines(kind: str) -> None:
    line = LINES[kind]
    text = line * ((64 << 10) // len(line))
    steps = 0
    seen = 0
    for run in decode_piece(TextPiece("a.jsonl", 1, text)):
        steps += 1
        seen += 1 if isinstance(run, MalformedLine) else len(run.items)
    lines = text.count(b"\n")
    assert seen == (0 if kind == "blank" else lines)
    assert steps >= lines // (64 if kind == "nan" else 1024)


@pytest.mark.parametrize("kind", LINES)
def test_other_tasks_run_between_lines_that_cost_much(kind: str, tmp_path: Path) -> None:
    line = LINES[kind]
    lines = (64 << 10) // len(line)
    (tmp_path / "a.jsonl").write_bytes(line * lines)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def read() -> int:
        counting = asyncio.create_task(count_turns())
        read = 0
        async for _ in JsonlFile(tmp_path / "a.jsonl").iter_records(on_error=lambda *_: None):
            read += 1
        counting.cancel()
        return read

    asyncio.run(read())
    assert turns >= {"bad": lines, "nan": lines // 64}.get(kind, lines // 1024)


def test_writing_small_records_lets_others_run(tmp_path: Path) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def write() -> None:
        counting = asyncio.create_task(count_turns())
        async with JsonlDir(tmp_path / "d").writer() as w:
            await w.write_many(range(10_000))
        counting.cancel()

    asyncio.run(write())
    assert turns >= 10_000 // 256
