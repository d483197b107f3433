"""A process that may hold little, and goes through columns that are larger."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch  # noqa: F401 (what is measured is what comes on top of it)
from _columns_larger import expected
from _columns_memory import private_now, writable_now
from _load_side import BATCH
from _worker import serve

import penstock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock import DataLoader

_TYPES = {"id": "int64", "tags": "list<float64>"}


def prepare(path: str) -> int:
    """Index a folder and materialise its fields; return the bytes of the columns."""
    penstock.open(path, progress=False).materialize(_TYPES, progress=False)
    return sum(file.stat().st_size for file in _files(path))


def _files(path: str) -> list[Path]:
    return [file for file in (Path(path) / "index" / "columns").rglob("*") if file.is_file()]


def begin(path: str, room: int | None) -> int:
    """Load a batch of something small, then allow so much memory on top; return the limit."""
    batches = iter(_loader(path))
    next(batches)  # Whatever is imported late is here now, and so are threads that wait for work.
    batches.close()
    if room is None:
        return 0
    most = writable_now() + room
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    return most


def _loader(path: str) -> DataLoader:
    return penstock.DataLoader(
        penstock.open(path), _TYPES, batch_size=BATCH, shuffle=True, materialize=True
    )


def forget(path: str) -> None:
    """Have the files of the columns no longer in the page cache."""
    for file in _files(path):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def epoch(path: str, records: int) -> dict[str, float]:
    """Go through an epoch, look at every value, and tell of the memory that it took."""
    seen = np.zeros(records, np.int64)
    wrong = most = 0
    from_disk = _read_from_disk()
    began, checking = time.perf_counter(), 0.0
    for ids, tags, lengths in _batches(path):
        checked = time.perf_counter()
        seen[ids] += 1
        wanted, wanted_lengths = expected(ids)
        wrong += not (np.array_equal(tags, wanted) and np.array_equal(lengths, wanted_lengths))
        most = max(most, private_now())
        checking += time.perf_counter() - checked
    seconds = time.perf_counter() - began - checking
    return {
        "wrong_batches": wrong,
        "never": int((seen == 0).sum()),
        "twice": int((seen > 1).sum()),
        "private": most,
        "rate": records / seconds,
        "from_disk": _read_from_disk() - from_disk,
    }


def _read_from_disk() -> int:
    """Return the bytes that storage has had to fetch for this process, mapped ones included."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return int(text.partition("\nread_bytes:")[2].split()[0])


def _batches(path: str) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    for batch in _loader(path):
        tags = batch["tags"]
        yield batch["id"].numpy(), tags.values.numpy(), tags.lengths.numpy()


def hold(path: str) -> bool:
    """Return whether all columns can be read into memory."""
    try:
        held = [file.read_bytes() for file in _files(path)]
    except MemoryError:
        return False
    return len(held) > 0


if __name__ == "__main__":
    serve({"begin": begin, "epoch": epoch, "forget": forget, "hold": hold, "prepare": prepare})
