"""Penstock's side of the comparison of indexing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from _worker import serve

from penstock.datasets import CsvRows, ParquetRows
from penstock.index import IndexStore, create_default_jsonl_indexer


def clear(path: str) -> None:
    IndexStore(path).clear()


def index(path: str) -> int:
    create_default_jsonl_indexer(path, progress=False)()
    return (Path(path) / "index" / "sample_locations.bin").stat().st_size // 24


def clear_cache(path: str) -> None:  # noqa: ARG001 (asked with the arguments of the work)
    shutil.rmtree(os.environ["PENSTOCK_CACHE"], ignore_errors=True)


def open_csv(path: str) -> int:
    return len(CsvRows(path))


def open_parquet(path: str) -> int:
    return len(ParquetRows(path))


if __name__ == "__main__":
    serve(
        {
            "clear": clear,
            "clear_cache": clear_cache,
            "index": index,
            "open_csv": open_csv,
            "open_parquet": open_parquet,
        }
    )
