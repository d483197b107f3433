"""The peer LitData, run by the Python of an environment of its own.

It wants every record to have the same shape, so that lists of any length go in as text.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import litdata
import orjson
from _access import Access

if TYPE_CHECKING:
    from collections.abc import Iterator


def _lines(path: str) -> Iterator[bytes]:
    with Path(path).open("rb") as lines:
        yield from lines


def convert(source: str, target: str) -> None:
    litdata.optimize(
        fn=_lines, inputs=[source], output_dir=target, chunk_bytes="64MB", num_workers=1
    )


def opened(path: str) -> tuple:
    whole = litdata.StreamingDataset(path)

    def one(number: int) -> object:
        return orjson.loads(whole[number])

    return one, None


if __name__ == "__main__":
    Access(opened, convert).serve()
