"""Train a small network on three tables of scikit-learn, each fed by a schema, in Lightning.

    pip install 'penstock[lightning,schema,polars]' scikit-learn matplotlib
    python examples/train_tables.py --plot accuracy.png

It prints the accuracy on records that are held out, draws it over the epochs, and exits with an
error if one is below the accuracy that is stated here. docs/lightning.md shows the picture.
"""

import argparse
import logging
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import matplotlib as mpl
import polars as pl
import torch
from sklearn import datasets
from torch import nn
from torch.nn import functional

import penstock
from penstock.lightning import PolarsDataModule, SchemaMixin, StreamingDataModule
from penstock.schema import Category, Leaf, Number, SchemaModel, Vector

warnings.filterwarnings("ignore", module="lightning")  # 2.6 uses a name that torch retires
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
mpl.use("agg")
from matplotlib import pyplot as plt  # noqa: E402 (behind the choice of a back end)

COLORS = ("#0072b2", "#d55e00", "#009e73")
"""People who do not see all colours can tell these apart."""


@dataclass(frozen=True)
class Table:
    """Records, and the schema that reads them."""

    name: str
    records: list[dict[str, Any]]
    leaves: list[Leaf]
    inputs: int
    """Numbers that the leaves bring."""
    target: Category
    stated: float
    """The accuracy to reach on records that are held out."""
    batch_size: int = 32


class Classifier(SchemaMixin, lightning.LightningModule):
    """Two layers over the values of all leaves but the target, which they predict."""

    def __init__(self, schema: SchemaModel, inputs: int, width: int = 32) -> None:
        super().__init__()
        self.schema = schema
        tree = schema.hyperparameters
        (self.target,) = tree.target
        self.inputs = [address for address in tree.active_requests if address != self.target]
        labels = tree.active_requests[self.target].max_vocab_size + 1  # The last one: unknown.
        self.layers = nn.Sequential(
            nn.BatchNorm1d(inputs), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, labels)
        )
        self.hits: list[torch.Tensor] = []
        self.accuracies: list[float] = []

    def forward(self, batch: penstock.Batch) -> torch.Tensor:
        """Return the logits of each label."""
        values = [batch[address].content.flatten(1) for address in self.inputs]
        return self.layers(torch.cat(values, dim=1))

    def labels(self, batch: penstock.Batch) -> torch.Tensor:
        """Return what the target was before it was hidden: (B, 1), with the slot of the root."""
        return batch[self.target].targets["content"][:, 0]

    def training_step(self, batch: penstock.Batch, _: int) -> torch.Tensor:
        """Return the loss."""
        return functional.cross_entropy(self(batch), self.labels(batch))

    def validation_step(self, batch: penstock.Batch, _: int) -> None:
        """Note which records are right."""
        self.hits.append(self(batch).argmax(1) == self.labels(batch))

    def on_validation_epoch_end(self) -> None:
        """Note the share of records that are right."""
        self.accuracies.append(torch.cat(self.hits).float().mean().item())
        self.hits.clear()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def target(name: str, labels: int) -> Category:
    """Return the leaf that is predicted; no label is made unknown on purpose."""
    return Category(name, max_vocab_size=labels, p_unavailable=0, target=True)


def iris() -> Table:
    """Four numbers of a flat record."""
    table = datasets.load_iris()
    names = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
    records = [
        {**dict(zip(names, row, strict=True)), "species": str(table.target_names[label])}
        for row, label in zip(table.data.tolist(), table.target, strict=True)
    ]
    leaves = [Number(name) for name in names]
    return Table("iris", records, leaves, 4, target("species", 3), stated=0.9, batch_size=16)


def breast_cancer() -> Table:
    """Thirty numbers of a nested record."""
    table = datasets.load_breast_cancer()
    names = [name.removeprefix("mean ").replace(" ", "_") for name in table.feature_names[:10]]
    parts = {"mean": slice(10), "error": slice(10, 20), "worst": slice(20, 30)}
    records = [
        {
            "diagnosis": str(table.target_names[label]),
            **{part: dict(zip(names, row[at], strict=True)) for part, at in parts.items()},
        }
        for row, label in zip(table.data.tolist(), table.target, strict=True)
    ]
    leaves = [
        Number(f"{part}_{name}", query=f"[*].{part}.{name}") for part in parts for name in names
    ]
    return Table("breast cancer", records, leaves, 30, target("diagnosis", 2), stated=0.93)


def digits() -> Table:
    """Pictures of 8 × 8 pixels as one vector."""
    table = datasets.load_digits()
    records = [
        {"pixels": row, "digit": label}
        for row, label in zip(table.data.tolist(), table.target.tolist(), strict=True)
    ]
    leaves = [Vector("pixels", n_dim=64)]
    return Table("digits", records, leaves, 64, target("digit", 10), stated=0.93, batch_size=64)


def train(table: Table, epochs: int, folder: Path) -> list[float]:
    """Train on four fifths of a table; return the accuracy on the others after each epoch."""
    splits = {
        "train": [one for number, one in enumerate(table.records) if number % 5],
        "validate": table.records[::5],
    }
    schema = SchemaModel(*table.leaves, table.target, batch_size=table.batch_size)
    lightning.seed_everything(0, verbose=False)
    model = Classifier(schema, table.inputs)
    shared = {"model": model, "observation_buffer_size": {"train": 2000}, "num_workers": 0}
    if table.name == "breast cancer":  # One of them from files: JSON Lines, a folder a split.
        for split, records in splits.items():
            with penstock.writer(str(folder / split), max_records_per_shard=100) as out:
                out.write(records)
        data: lightning.LightningDataModule = StreamingDataModule(
            root=folder,
            suffix="ndjson",
            train=r"/train/.*\.jsonl$",
            validate=r"/validate/.*\.jsonl$",
            replacement=False,
            **shared,
        )
    else:
        frames = {split: pl.DataFrame(records) for split, records in splits.items()}
        data = PolarsDataModule(dataframe=frames, **shared)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, datamodule=data)
    return model.accuracies


def plot(curves: dict[str, list[float]], path: Path) -> None:
    """Draw the accuracy of each table after each epoch."""
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for (name, curve), color in zip(curves.items(), COLORS, strict=True):
        epochs = range(1, len(curve) + 1)
        axes.plot(epochs, curve, color=color, marker="o", ms=3, label=f"{name}: {curve[-1]:.3f}")
    axes.set(xlabel="epoch", ylabel="accuracy on held-out records", xticks=epochs)
    axes.set_title("Three tables of scikit-learn, each read by a schema", fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Train on each table, print what came of it, and draw it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--plot", type=Path, default=Path("accuracy.png"), help="a PNG file")
    options = parser.parse_args()
    torch.set_num_threads(1)  # Several threads may change the order of sums, and the last digit.
    tables = [iris(), breast_cancer(), digits()]
    with tempfile.TemporaryDirectory() as folder:
        curves = {one.name: train(one, options.epochs, Path(folder)) for one in tables}
    print(f"{'table':14} {'records':>8} {'inputs':>7} {'stated':>7} {'reached':>8}")
    for one in tables:
        print(
            f"{one.name:14} {len(one.records):8,} {one.inputs:7} {one.stated:7.2f} "
            f"{curves[one.name][-1]:8.3f}"
        )
    plot(curves, options.plot)
    missed = [one.name for one in tables if curves[one.name][-1] < one.stated]
    if missed:
        raise SystemExit(f"below the stated accuracy: {', '.join(missed)}")


if __name__ == "__main__":
    main()
