"""Two ranks whose last step brings labels; what they know after it, and after a resume from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import penstock
from penstock.lightning import DataModule, PolarsDataModule
from penstock.schema import Category, Number, SchemaModel
from tests.integration.launching import run_main
from tests.lightning.small_models import Net, trainer

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = 12
LABELS = [f"label {number}" for number in range(RECORDS)]
FRAME = pl.DataFrame({"x": range(RECORDS), "c": LABELS})
"""Each record has a label of its own: three steps of two ranks and two records."""
RANKS = {"devices": 2, "strategy": "ddp"}


def schema() -> SchemaModel:
    return SchemaModel(
        Number("x"),
        Category("c", max_vocab_size=RECORDS, p_unavailable=0, target=True),
        batch_size=2,
    )


class Beside(Net):
    """A module whose checkpoints hold no schema."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        pass

    def configure_callbacks(self) -> list[Any]:
        return []


def run(kind: str, stage: str, checkpoint: Path | None, saves: Path | None) -> dict[str, Any]:
    net = Beside() if kind == "beside" else Net()
    net.schema = schema()
    callbacks = [ModelCheckpoint(saves, "{step}", every_n_train_steps=1, save_top_k=-1)]
    one = trainer(callbacks if saves else [], limit_val_batches=1.0, **RANKS)
    torch.manual_seed(1)
    given: dict[str, Any] = {}
    if kind == "loader":
        loader = penstock.DataLoader(FRAME, net.schema, batch_size=2, num_workers=0)
        given["train_dataloaders"] = loader
    elif kind == "beside":
        given["datamodule"] = DataModule(
            FRAME, FRAME, encode=net.schema, batch_size=2, num_workers=0
        )
    else:
        given["datamodule"] = PolarsDataModule(
            net, train=FRAME, validate=FRAME, num_workers=0, sharding="record"
        )
    getattr(one, stage)(net, ckpt_path=checkpoint, **given)
    learnt = net.schema.state_dict()
    return {name: learnt[name] for name in ("vocabularies", "proposals", "statistics", "counts")}


def of_one_process(checkpoint: Path) -> Path:
    """Return a checkpoint as one process saves it; that of a rank is its own file."""
    alone = schema()
    alone.encode(FRAME.to_dicts(), "train")
    state = torch.load(checkpoint, weights_only=True)
    state["penstock_schema"] = alone.state_dict()
    del state["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    path = checkpoint.with_name(f"alone-{torch.distributed.get_rank()}.ckpt")
    torch.save(state, path)
    return path


def main(place: Path, plan: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in plan:
        folder = place / kind
        last = folder / "step=3.ckpt"
        found[kind] = {"whole": run(kind, "fit", None, folder)}
        found[kind]["resumed"] = run(kind, "fit", last, None)
        if kind == "beside":
            found[kind]["validated"] = run(kind, "validate", last, None)
        saved = torch.load(last, weights_only=True).get("penstock_schema")
        found[kind]["saved"] = saved and saved["vocabularies"]
        if kind == "loader":
            found[kind]["of one"] = run(kind, "fit", of_one_process(last), None)
    return found


if __name__ == "__main__":
    run_main(main)
