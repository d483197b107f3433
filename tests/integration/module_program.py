"""Runs of Lightning with data modules, each whole and resumed; what each step got is kept."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from penstock.lightning import CustomDataModule, DataModule, EngineOptions, PolarsDataModule
from tests.integration.launching import run_main
from tests.lightning.preprocessing import some
from tests.lightning.small_models import FRAME, Net, Rows, trainer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)

EPOCHS = 2


def module(kind: str, net: Net) -> Any:
    frames: dict[str, Any] = {"train": FRAME, "validate": FRAME, "predict": FRAME}
    kinds: dict[str, Callable[[], Any]] = {
        # Without a seed: those of the ranks differ.
        "shuffled": lambda: PolarsDataModule(
            net, **frames, num_workers=0, observation_buffer_size=5
        ),
        "generated": lambda: PolarsDataModule(
            net, **frames, num_workers=1, preprocessor=some, times=3, chunk_batch_size=4
        ),
        "dropped": lambda: PolarsDataModule(
            net,
            **frames,
            num_workers=0,
            sharding="record",
            engine=EngineOptions(seed=1, equalize="drop"),
        ),
        "a dataset": lambda: CustomDataModule(
            net, train=Rows(), validate=Rows(), num_workers=0, observation_buffer_size=3
        ),
        "a source": lambda: DataModule(
            FRAME, FRAME, encode=net.schema, batch_size=3, shuffle=True, num_workers=0
        ),
    }
    return kinds[kind]()


def saves(folder: Path) -> list[Any]:
    every: dict[str, Any] = {"dirpath": folder, "save_top_k": -1, "auto_insert_metric_name": False}
    return [
        ModelCheckpoint(every_n_train_steps=1, filename="step{step}", **every),
        ModelCheckpoint(save_on_train_epoch_end=True, filename="end{epoch}", **every),
    ]


def fit(kind: str, folder: Path, checkpoint: str | None, options: dict[str, Any]) -> dict[str, Any]:
    net = Net()
    run = trainer([] if checkpoint else saves(folder), max_epochs=EPOCHS, **options)
    torch.manual_seed(run.global_rank)
    path = None if checkpoint is None else folder / f"{checkpoint}.ckpt"
    run.fit(net, datamodule=module(kind, net), ckpt_path=path)
    return {
        "trained": net.trained,
        "validated": net.evaluated,
        "learnt": net.schema.state_dict(),
        "weight": net.linear.weight.item(),
    }


def main(place: Path, plan: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, checkpoints in plan["kinds"].items():
        folder = place / kind
        whole = {} if plan.get("from") else {"whole": fit(kind, folder, None, plan["trainer"])}
        found[kind] = whole | {one: fit(kind, folder, one, plan["trainer"]) for one in checkpoints}
    net = Net()
    run = trainer(**plan["trainer"])
    found["predicted"] = run.predict(net, datamodule=module("dropped", net))
    return found


if __name__ == "__main__":
    run_main(main)
