"""json2vec's side of `modules.py`: epochs of its streaming module, with the same schema."""

from __future__ import annotations

import time

import json2vec as j2v
from _worker import processor_seconds, serve


def _model(batch_size: int) -> j2v.Model:
    return j2v.Model.from_schema(
        j2v.Number("amount", p_mask=0.1),
        j2v.Number("age", p_mask=0.1),
        j2v.Category("country", p_mask=0.1),
        j2v.Category("device", p_mask=0.1),
        j2v.DateParts("at", dateparts=["day_of_week", "hour_of_day"]),
        j2v.Set("tags", max_vocab_size=128),
        j2v.Category("label", target=True),
        j2v.Array(
            j2v.Category("sku", p_mask=0.1),
            j2v.Number("price", p_mask=0.1),
            j2v.Number("quantity"),
            j2v.Category("brand", p_prune=0.1),
            name="items",
            max_length=16,
        ),
        d_model=8,
        n_layers=1,
        n_heads=2,
        batch_size=batch_size,
    )


def epochs(root: str, pattern: str, workers: int, batch_size: int) -> list[list[float]]:
    """Return processor time and wall time of the first epoch, and of the second."""
    module = j2v.StreamingDataModule(
        model=_model(batch_size),
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
