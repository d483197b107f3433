"""`DataModule`: any source and any encoder, without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import penstock
from penstock.errors import OptionError
from penstock.lightning import DataModule
from penstock.schema import Category, Number, Schema
from tests.lightning.small_models import FRAME, batches, ids, trainer

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.batch import Batch

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning", "ignore:.*callbacks used to create the checkpoint"
)

RECORDS = [{"n": number, "x": number / 10} for number in range(20)]
FIELDS = {"n": "int64", "x": "float32"}


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)
        self.trained: list[tuple[int, list[int]]] = []
        self.validated: list[int] = []

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        self.trained.append((self.current_epoch, batch["n"].tolist()))
        loss: torch.Tensor = self.linear(batch["x"][:, None]).square().mean()
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.validated += batch["n"].tolist()

    test_step = validation_step

    def predict_step(self, batch: Batch, batch_idx: int) -> Any:
        return batch["n"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


def flow() -> Any:
    return penstock.stream(range(4), _read)


def _read(unit: int, start: int = 0) -> Any:
    yield from RECORDS[unit * 5 + start : unit * 5 + 5]


def module(train: Any = RECORDS, **options: Any) -> DataModule:
    options = {"encode": FIELDS, "batch_size": 6, "num_workers": 0, **options}
    return DataModule(train, RECORDS[:7], **options)


def test_a_trainer_fits_validates_tests_and_predicts() -> None:
    model, data = Model(), module(test=RECORDS[:3], predict=RECORDS[4:6], shuffle=True)
    run = trainer(num_sanity_val_steps=0)
    run.fit(model, datamodule=data)
    assert sorted(n for _, batch in model.trained for n in batch) == list(range(20))
    assert [len(batch) for _, batch in model.trained] == [6, 6, 6, 2]
    assert [n for _, batch in model.trained for n in batch] != list(range(20))
    assert model.validated == list(range(7))
    run.test(model, datamodule=data, verbose=False)
    assert model.validated[7:] == [0, 1, 2]
    (predicted,) = run.predict(model, datamodule=data) or ()
    assert predicted.tolist() == [4, 5]  # type: ignore[union-attr]


def test_the_order_is_that_of_the_records_unless_training_is_shuffled() -> None:
    plain, shuffled = module(), module(shuffle=True)
    expected = ids(penstock.DataLoader(RECORDS, FIELDS, batch_size=6))
    assert ids(batches(plain)) == expected != ids(batches(shuffled))
    assert ids(batches(shuffled, "validate")) == [*expected[:1], [6]]
    assert len(batches(plain)) == 4


@pytest.mark.parametrize("train", [RECORDS, flow()])
def test_a_run_goes_on_from_any_checkpoint(train: Any, tmp_path: Path) -> None:
    def fit(checkpoint: Path | None = None) -> list[tuple[int, list[int]]]:
        model = Model()
        saves = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
        run = trainer([] if checkpoint else [saves], max_epochs=2, limit_val_batches=0)
        run.fit(model, datamodule=module(train, shuffle=True), ckpt_path=checkpoint)
        return model.trained

    whole = fit()
    for step in (1, 3, len(whole) // 2, len(whole) // 2 + 1):
        assert fit(tmp_path / f"step={step}.ckpt") == whole[step:], step


def test_an_epoch_goes_on_with_another_batch_size_and_loses_nothing(tmp_path: Path) -> None:
    def fit(batch_size: int, checkpoint: Path | None = None, steps: int = -1) -> list[int]:
        model = Model()
        saves = ModelCheckpoint(tmp_path / str(batch_size), "two", every_n_train_steps=2)
        options = {"max_epochs": 2, "limit_val_batches": 0, "max_steps": steps}
        data = module(shuffle=True, batch_size=batch_size)
        run = trainer([] if checkpoint else [saves], **options)
        run.fit(model, datamodule=data, ckpt_path=checkpoint)
        return [n for _, batch in model.trained for n in batch]

    for before, after in ((6, 2), (2, 6)):
        numbers = fit(before, steps=2) + fit(after, tmp_path / str(before) / "two.ckpt")
        assert sorted(numbers[:20]) == sorted(numbers[20:]) == list(range(20))


def test_a_schema_is_used_for_its_split_and_learns() -> None:
    schema = Schema(Number("x"), Category("c", max_vocab_size=9, p_unavailable=0, target=True))
    data = DataModule(FRAME, predict=FRAME.drop("c"), encode=schema, batch_size=4, num_workers=0)
    assert [batch["record/c"].targets["content"].flatten().tolist() for batch in batches(data)] == [
        [0, 1, 2, 0], [1, 2, 0, 1], [3, 4, 5],
    ]  # fmt: skip
    found = list(batches(data, "predict"))
    assert found[0]["metadata"][0] == [{"x": 0.0}]
    assert schema.interprocess_encoding_context["record/c"].snapshot() == list("abcdef")


def test_an_option_may_be_given_by_split() -> None:
    data = module(batch_size={"train": 5, "validate": 4}, shuffle={"validate": True})
    assert ids(batches(data)) == [[*range(start, start + 5)] for start in range(0, 20, 5)]
    found = ids(batches(data, "validate"))
    assert [len(one) for one in found] == [4, 3]
    assert [number for one in found for number in one] != list(range(7))
    with pytest.raises(OptionError, match=r"^batch_size=.*strata='val': expected one of train"):
        module(batch_size={"val": 4}).dataloader("train")


def test_draws_and_records_to_skip_are_for_training_alone() -> None:
    weighted = module(weights=[0.0] * 13 + [1.0] * 7)
    assert min(number for one in ids(batches(weighted)) for number in one) == 13
    assert ids(batches(weighted, "validate")) == [[0, 1, 2, 3, 4, 5], [6]]
    skipping = module(skip=[(0, 15)])
    assert ids(batches(skipping)) == [[15, 16, 17, 18, 19]]
    assert ids(batches(skipping, "validate")) == [[0, 1, 2, 3, 4, 5], [6]]


def test_wrong_options_raise() -> None:
    with pytest.raises(TypeError, match=r"no argument 'val'\. Did you mean 'validate'\?"):
        DataModule(RECORDS, val=RECORDS, batch_size=2)
    with pytest.raises(OptionError, match="at least one of train, validate, test and predict"):
        DataModule(encode=FIELDS, batch_size=2)
    with pytest.raises(OptionError, match="epochs=: Trainer"):
        DataModule(RECORDS, batch_size=2, epochs=3)
    with pytest.raises(ValueError, match="no source configured for strata: predict"):
        module().dataloader("predict")
    assert module().dataloader("predict", required=False) is None
