"""Runs of a `StreamingDataModule` on two ranks; what each rank got is written down."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import torch

from tests.integration.launching import run_main
from tests.lightning.streaming_runs import fit

if TYPE_CHECKING:
    from pathlib import Path

TWO: dict[str, Any] = {"devices": 2, "strategy": "ddp"}


def main(place: Path, plan: dict[str, dict[str, Any]]) -> dict[str, Any]:
    rank, found = int(os.environ.get("LOCAL_RANK", "0")), {}
    for name, run in plan.items():
        options: dict[str, Any] = {**run, "seed": rank}  # Rank 0 decides.
        root = place.parent / options.pop("root", "files").format(rank=rank)
        for path in ("saves", "checkpoint"):
            if path in options:
                options[path] = place / options[path]
        trainer = {**TWO, **options.pop("trainer", {})}
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                net = fit(root, trainer=trainer, **options)
            except Exception as why:  # noqa: BLE001 (the test looks at it)
                found[name] = {"error": f"{type(why).__name__}: {why}"}
                continue
        found[name] = {
            "trained": net.trained,
            "validated": net.validated,
            "predicted": net.predicted,
            "warned": [str(one.message) for one in warned],
        }
    torch.distributed.barrier()
    return found


if __name__ == "__main__":
    run_main(main)
