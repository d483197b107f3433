"""json2vec's side of `schema.py` and `modules.py`: epochs of its streaming module."""

from __future__ import annotations

import time

import json2vec as j2v
from _schema_fields import fields
from _worker import processor_seconds, serve


def epochs(root: str, pattern: str, workers: int, batch_size: int) -> list[list[float]]:
    """Return processor time and wall time of the first epoch, and of the second."""
    small = {"d_model": 8, "n_layers": 1, "n_heads": 2}
    module = j2v.StreamingDataModule(
        model=j2v.Model.from_schema(*fields(j2v), batch_size=batch_size, **small),
        root=root,
        suffix="ndjson",
        train=pattern,
        replacement=False,
        num_workers=workers,
        persistent_workers=False,
        pin_memory=False,
    )
    found = []
    for _ in range(2):
        began, began_wall = processor_seconds(), time.perf_counter()
        for _ in module.dataloader("train"):
            pass
        found.append([processor_seconds() - began, time.perf_counter() - began_wall])
    return found


if __name__ == "__main__":
    serve({"epochs": epochs})
