"""A process that has Penstock imported and opens one index."""

from __future__ import annotations

import time

from _worker import peak_bytes, serve

import penstock  # noqa: F401 (what is measured is what comes on top of it)


def open_index(path: str) -> dict[str, float]:
    """Return seconds and bytes that opening took, and what the first record then took."""
    before, began = peak_bytes(), time.perf_counter()
    from penstock.datasets import JsonlDataset  # noqa: PLC0415 (a part of the first opening)

    dataset = JsonlDataset.create_from_index_on_filesystem(path)
    seconds, after = time.perf_counter() - began, peak_bytes()
    last = dataset[-1]
    return {
        "seconds": seconds,
        "bytes": after - before,
        "bytes_read": peak_bytes() - before,
        "records": len(dataset),
        "last": last["id"],
    }


if __name__ == "__main__":
    serve({"open": open_index})
