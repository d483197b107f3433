"""A model that writes down its batches, trainers for it, and the records that it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import lightning
import polars as pl
import torch
from lightning.pytorch.callbacks import Checkpoint
from torch.utils.data import IterableDataset

from penstock.lightning import SchemaMixin, shard_info
from penstock.schema import Category, Number, SchemaModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.batch import Batch
    from penstock.lightning._batch_module import BatchModule
    from penstock.lightning._batches import SplitBatches

RECORDS = 11
FRAME = pl.DataFrame({"x": [float(number) for number in range(RECORDS)], "c": list("abcabcabdef")})


class Seen(NamedTuple):
    """What a step got."""

    epoch: int
    ids: list[int]
    x: list[float]
    """0 where it is masked."""
    c: list[int]
    """Numbers of labels."""
    valid: list[bool] | None


def seen(batch: Batch, epoch: int = 0) -> Seen:
    assert batch.ids is not None
    valid = None if batch.valid is None else batch.valid.tolist()
    x, c = batch["record/x"].content, batch["record/c"].targets["content"]
    return Seen(epoch, batch.ids.tolist(), x.flatten().tolist(), c.flatten().tolist(), valid)


def model(batch_size: int = 3) -> SchemaModel:
    """Return a schema with a mask, a vocabulary that grows, and a target."""
    return SchemaModel(
        Number("x", p_mask=0.3),
        Category("c", max_vocab_size=6, p_unavailable=0.2, target=True),
        batch_size=batch_size,
    )


class Net(SchemaMixin, lightning.LightningModule):
    """Writes down what each step gets."""

    def __init__(self, batch_size: int = 3) -> None:
        super().__init__()
        self.schema = model(batch_size)
        self.linear = torch.nn.Linear(1, 1)
        self.trained: list[Seen] = []
        self.evaluated: list[Seen] = []
        self.fails_at: int | None = None

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        if len(self.trained) == self.fails_at:
            raise ArithmeticError("the loss is not a number")
        self.trained.append(seen(batch, self.current_epoch))
        loss: torch.Tensor = self.linear(batch["record/x"].content).square().mean()
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.evaluated.append(seen(batch, self.current_epoch))

    test_step = validation_step

    def predict_step(self, batch: Batch, batch_idx: int) -> Any:
        assert batch.ids is not None
        return batch.ids.tolist(), [record for (record,) in batch["metadata"]]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


def trainer(callbacks: Sequence[lightning.Callback] = (), **options: Any) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=any(isinstance(one, Checkpoint) for one in callbacks),
        callbacks=[*callbacks],
        **{"max_epochs": 1, **options},
    )


class Rows(IterableDataset[dict[str, Any]]):
    """Records that all readers share."""

    def __init__(self, records: Iterable[dict[str, Any]] = ()) -> None:
        self.records = [*records] or FRAME.to_dicts()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        index, count = shard_info()
        yield from self.records[index::count]


def batches(data: BatchModule, strata: str = "train") -> SplitBatches:
    """Return the batches of a split that a data module has."""
    found = data.dataloader(strata)
    assert found is not None
    return found


def ids(made: Iterable[Batch]) -> list[list[int]]:
    return [batch.ids.tolist() for batch in made if batch.ids is not None]


def counted(made: Iterable[Batch]) -> list[int]:
    """Return the records that count, sorted."""
    found = []
    for batch in made:
        assert batch.ids is not None
        found += (batch.ids if batch.valid is None else batch.ids[batch.valid]).tolist()
    return sorted(found)
