"""Columns in words, in tables, and as documents."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli._paths import as_typed
from penstock.cli._terminal import table
from penstock.cli._units import age_text, bytes_text, counted
from penstock.storage import is_remote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.datasets import ColumnsEstimate, ListedColumn


def column_document(column: ListedColumn, records: int) -> dict[str, object]:
    """Return a column for a program; `records` is how many its source has."""
    meta = column.meta
    return {
        "path": meta.path,
        "type": meta.type,
        "records": meta.length,
        "bytes": meta.bytes,
        "created": meta.created,
        "stale": column.stale,
        "missing_records": None if column.stale is None else max(0, records - meta.length),
        "nulled": meta.nulled,
        "bad": meta.bad,
        "folder": column.folder,
    }


def column_table(columns: Sequence[ListedColumn], records: int) -> str:
    """Return columns for people, one a row."""
    header = ["column", "type", "records", "bytes", "nulled", "bad", "age", "state"]
    rows = []
    for column in columns:
        meta = column.meta
        numbers = f"{meta.length:,}", bytes_text(meta.bytes), f"{meta.nulled:,}", f"{meta.bad:,}"
        age = age_text(time.time() - meta.created)
        rows.append([meta.path, meta.type, *numbers, age, _state(column, records)])
    return table(header, rows, left=2)


def _state(column: ListedColumn, records: int) -> str:
    if column.stale is None:
        return "not known: no index tells"
    if column.stale:
        return "stale: of other records"
    missing = records - column.meta.length
    return f"{counted(missing, 'record')} behind" if missing else "fresh"


def estimate_document(cost: ColumnsEstimate) -> dict[str, object]:
    """Return an estimate for a program."""
    return {
        "seconds": round(cost.seconds, 3),
        "bytes": cost.bytes,
        "records": cost.records,
        "free_bytes": free_bytes(cost.folder),
    }


def estimate_text(path: str, cost: ColumnsEstimate) -> str:
    """Return an estimate for people."""
    seconds = "less than a second" if cost.seconds < 1 else f"about {age_text(cost.seconds)}"
    return (
        f"{path}: {counted(cost.records, 'record')} to decode: {seconds}, about "
        f"{bytes_text(cost.bytes)}; {bytes_text(free_bytes(cost.folder))} free in "
        f"{shown_folder(path, cost.folder)}"
    )


def free_bytes(folder: str) -> int:
    """Return the room that there is where a folder is, or will be."""
    path = Path(folder).absolute()
    return shutil.disk_usage(next(p for p in (path, *path.parents) if p.is_dir())).free


def shown_folder(path: str, folder: str) -> str:
    """Return a folder as the user would name it, if it lies in PATH; else as it is."""
    if is_remote(folder) or is_remote(path):
        return folder
    is_below = Path(folder).is_relative_to(Path(path).absolute())
    return as_typed(path, folder) if is_below else folder
