"""The peer data-forager, run by the Python of an environment of its own."""

from __future__ import annotations

import logging
import os
from contextlib import redirect_stdout
from pathlib import Path

from _access import Access, link_into
from data_forager.datasets.jsonl import JsonlDataset
from data_forager.index_stores.fs_based import IndexStore
from data_forager.indexers.jsonl_indexer import create_default_jsonl_indexer

logging.disable(logging.DEBUG)  # It tells of every file that it opens.


def clear(path: str) -> None:
    IndexStore(path).clear()


def index(path: str) -> int:
    # Its bar cannot be turned off; here it costs the least.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        create_default_jsonl_indexer(path)()
    return (Path(path) / "index" / "sample_locations.bin").stat().st_size // 24


def convert(source: str, target: str) -> None:
    link_into(source, target)
    index(target)


def opened(path: str) -> tuple:
    return JsonlDataset.create_from_index_on_filesystem(path).__getitem__, None


if __name__ == "__main__":
    Access(opened, convert).serve({"clear": clear, "index": index})
