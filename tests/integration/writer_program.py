"""A prediction of Lightning, written by one or more writers; it may kill itself on the way."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import lightning as pl

import penstock
from penstock.lightning import Writer
from penstock.schema import Number, Schema
from tests.integration.launching import run_main

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.batch import Batch


class Doubles(pl.LightningModule):
    def __init__(self, killed_at: int | None) -> None:
        super().__init__()
        self.killed_at = killed_at

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        if batch_idx == self.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"predictions": {"record/n": batch["record/n"].content * 2}}


def main(place: Path, plan: dict[str, Any]) -> None:
    trainer = pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Writer(place / name, **options) for name, options in plan["writers"].items()],
        **plan.get("trainer", {}),
    )
    schema = Schema(Number("n")).for_split("predict")
    text = "x" * plan.get("text_bytes", 1)
    records = [{"n": number, "text": text} for number in range(11)]
    loader = penstock.DataLoader(records, schema, num_workers=0, **plan["loader"])
    trainer.predict(Doubles(plan.get("killed_at")), loader, return_predictions=False)


if __name__ == "__main__":
    run_main(main)
