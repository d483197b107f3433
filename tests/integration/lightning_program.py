"""Runs of Lightning, each fresh or from checkpoints; what each step got is written down."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import lightning as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import penstock
from tests.integration.launching import run_main

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.batch import Batch

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("lightning.fabric").setLevel(logging.ERROR)

TRAIN = [{"id": number, "x": number / 100} for number in range(19)]
VALIDATION = [{"id": number} for number in range(11)]
GLOBAL_BATCH = 4


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)
        self.trained: list[list[Any]] = []
        self.validated: list[list[Any]] = []

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        self.trained.append([self.current_epoch, batch_idx, *rows(batch)])
        loss = self.linear(batch["x"][:, None]).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True, batch_size=len(batch))
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.validated.append([self.current_epoch, batch_idx, *rows(batch)])
        self.log("number", batch["id"].float().mean(), batch_size=len(batch), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


def rows(batch: Batch) -> tuple[list[int], list[bool]]:
    assert batch.ids is not None
    valid = torch.ones(len(batch), dtype=torch.bool) if batch.valid is None else batch.valid
    return batch.ids.tolist(), valid.tolist()


class Data(pl.LightningDataModule):
    def __init__(self, workers: int) -> None:
        super().__init__()
        self.workers = workers

    def train_dataloader(self) -> penstock.DataLoader:
        return train_loader(self.workers)

    def val_dataloader(self) -> penstock.DataLoader:
        return validation_loader()


def train_loader(workers: int) -> penstock.DataLoader:
    return penstock.DataLoader(
        TRAIN,
        {"id": "int64", "x": "float32"},
        global_batch_size=GLOBAL_BATCH,
        shuffle=True,
        seed=3,
        num_workers=workers,
    )


def validation_loader() -> penstock.DataLoader:
    return penstock.DataLoader(VALIDATION, ["id"], global_batch_size=GLOBAL_BATCH, num_workers=0)


class AfterValidation(ModelCheckpoint):
    """Of another type: Lightning tells two checkpoint callbacks apart by that."""


def callbacks(folder: Path) -> list[pl.Callback]:
    every: dict[str, Any] = {"dirpath": folder, "save_top_k": -1, "auto_insert_metric_name": False}
    return [
        ModelCheckpoint(every_n_train_steps=1, filename="step{step}", **every),
        ModelCheckpoint(save_on_train_epoch_end=True, filename="end{epoch}", **every),
        AfterValidation(save_on_train_epoch_end=False, filename="validated{epoch}", **every),
    ]


def fit(place: Path, run: dict[str, Any], checkpoint: Path | None) -> dict[str, Any]:
    saves = run.get("saves")
    options = {"max_epochs": 3, **run.get("trainer", {})}
    trainer = pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=bool(saves),
        callbacks=callbacks(place / saves) if saves else [],
        **options,
    )
    model = Model()
    workers = run.get("workers", 0)
    if run.get("by") == "module":
        trainer.fit(model, datamodule=Data(workers), ckpt_path=checkpoint)
    else:
        validation = validation_loader() if run.get("validates", True) else None
        trainer.fit(model, train_loader(workers), validation, ckpt_path=checkpoint)
    return {
        "trained": model.trained,
        "validated": model.validated,
        "batches_before": batches_before(checkpoint) if checkpoint else 0,
        "batches_of_an_epoch": trainer.num_training_batches,
        "weight": model.linear.weight.item(),
    }


def batches_before(checkpoint: Path) -> int:
    """Return how many batches a checkpoint's run was trained on; Lightning reads it likewise."""
    loops = torch.load(checkpoint, weights_only=True)["loops"]
    batches: int = loops["fit_loop"]["epoch_loop.batch_progress"]["total"]["processed"]
    return batches


def main(place: Path, plan: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for run in plan:
        resume = run.get("resume")
        if resume is None:
            found[run["name"]] = fit(place, run, None)
            continue
        for checkpoint in sorted(place.glob(f"{resume}/*.ckpt")):
            if run["at"] is None or checkpoint.stem in run["at"]:
                found[f"{run['name']} {checkpoint.stem}"] = fit(place, run, checkpoint)
    return found


if __name__ == "__main__":
    run_main(main)
