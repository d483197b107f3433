"""The peer MosaicML Streaming, run by the Python of an environment of its own."""

from __future__ import annotations

from pathlib import Path

import orjson
from _access import Access
from streaming import LocalDataset, MDSWriter

_COLUMNS = {
    "id": "int",
    "user": "json",
    "price": "float64",
    "title": "str",
    "items": "json",
    "tags": "json",
    "note": "str",
}


def convert(source: str, target: str) -> None:
    with Path(source).open("rb") as lines, MDSWriter(out=target, columns=_COLUMNS) as writer:
        for line in lines:
            writer.write(orjson.loads(line))


def opened(path: str) -> tuple:
    return LocalDataset(path).__getitem__, None


if __name__ == "__main__":
    Access(opened, convert).serve()
