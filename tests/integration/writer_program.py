"""A prediction of Lightning, written by one or more writers; it may kill itself on the way."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import lightning as pl

import penstock
from penstock.lightning import StreamingDataModule, Writer
from penstock.schema import Number, Schema, SchemaModel
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


def trainer(place: Path, plan: dict[str, Any], writers: dict[str, Any]) -> pl.Trainer:
    return pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Writer(place / name, **options) for name, options in writers.items()],
        **plan.get("trainer", {}),
    )


def main(place: Path, plan: dict[str, Any]) -> None:
    schema = Schema(Number("n")).for_split("predict")
    text = "x" * plan.get("text_bytes", 1)
    records = [{"n": number, "text": text} for number in range(11)]
    loader = penstock.DataLoader(records, schema, num_workers=0, **plan["loader"])
    model = Doubles(plan.get("killed_at"))
    trainer(place, plan, plan["writers"]).predict(model, loader)
    if "module" in plan:
        schema_model = SchemaModel(Number("n"), batch_size=2)
        about = {"suffix": "ndjson", "predict": "jsonl$", "num_workers": 0}
        data = StreamingDataModule(schema_model, place / "data", **about)
        trainer(place, plan, plan["module"]).predict(model, datamodule=data)


if __name__ == "__main__":
    run_main(main)
