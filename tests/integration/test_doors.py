"""One file through every door: the same records in the same batches."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import lightning
import polars as pl
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset

import penstock
import penstock.lightning as j2v
from tests.integration.torch_functions import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.datasets import Source

pytestmark = [
    # Lightning 2.6 uses a class that torch has marked as old.
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*have no `validation_step`:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]

COUNT, SIZE = 23, 5
STEPS = [[*range(start, min(start + SIZE, COUNT))] for start in range(0, COUNT, SIZE)]


FILES: dict[str, Callable[[Path, pl.DataFrame], object]] = {
    "ndjson": lambda path, frame: frame.write_ndjson(path),
    "csv": lambda path, frame: path.write_bytes(gzip.compress(frame.write_csv().encode())),
    "parquet": lambda path, frame: frame.write_parquet(path),
}


class Model(j2v.SchemaMixin, lightning.LightningModule):
    """Notes the records of every batch, by their numbers and by what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.schema = j2v.SchemaModel(j2v.Number("id"), batch_size=SIZE)
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.ids: list[list[int]] = []
        self.values: list[list[int]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.ids.append(batch.ids.tolist())
        self.values.append(batch["record/id"].content[:, 0].int().tolist())
        return self.weight * 1

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Rows(IterableDataset[Any]):
    def __init__(self, source: Source) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        return iter(self.source)


def trainer() -> lightning.Trainer:
    return lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("name", "suffix"),
    [("rows.jsonl", "ndjson"), ("rows.csv.gz", "csv"), ("rows.parquet", "parquet")],
)
def test_every_door_has_the_same_records_in_the_same_batches(
    name: str, suffix: str, workers: int, tmp_path: Path
) -> None:
    path = tmp_path / name
    FILES[suffix](path, pl.DataFrame({"id": range(COUNT), "other": [*map(str, range(COUNT))]}))
    source = penstock.open(path)

    by_torch = TorchLoader(source, batch_size=SIZE, num_workers=workers, collate_fn=listed)
    assert list(by_torch) == STEPS

    loader = penstock.DataLoader(path, {"id": "int64"}, batch_size=SIZE, num_workers=workers)
    batches = list(loader)
    assert [batch.ids.tolist() for batch in batches] == STEPS
    assert [batch["id"].tolist() for batch in batches] == STEPS

    model = Model()
    options: dict[str, Any] = {"model": model, "num_workers": workers}
    plain = {"encode": model.schema, "batch_size": SIZE, "num_workers": workers}
    doors = [
        j2v.DataModule(path, shuffle=False, **plain),
        j2v.PolarsDataModule(train=pl.DataFrame(source), **options),
        j2v.CustomDataModule(train=Rows(source), **options),
        j2v.StreamingDataModule(
            root=tmp_path, suffix=suffix, train="/rows", replacement=False, **options
        ),
    ]
    for door in doors:
        model.ids, model.values = [], []
        trainer().fit(model, datamodule=door)
        assert model.ids == STEPS, door
        assert model.values == STEPS, door
