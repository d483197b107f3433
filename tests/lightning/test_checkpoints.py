"""What a checkpoint holds of a schema: its tree, and the labels that all splits know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import penstock
from penstock.errors import OptionError, SchemaMismatchError
from penstock.lightning import DataModule, EngineOptions, PolarsDataModule
from penstock.schema import Array, Category, Number, SchemaModel
from tests.lightning.small_models import FRAME, Net, trainer

if TYPE_CHECKING:
    from penstock.batch import Batch

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",
    "ignore:.*callbacks used to create the checkpoint",
    "ignore:You defined a `validation_step`",
    "ignore:Total length of `list` across ranks is zero",
)

STEP = 2
"""A step whose checkpoint is loaded: the epoch has four."""


def frames(model: Any) -> PolarsDataModule:
    return PolarsDataModule(model, train=FRAME, num_workers=0, engine=EngineOptions(seed=5))


def save(net: Any, data: Any, folder: Path) -> Path:
    saves = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    trainer([saves]).fit(net, datamodule=data)
    return folder / f"step={STEP}.ckpt"


# Trees that changed.


class Grown(Net):
    def __init__(self) -> None:
        super().__init__()
        self.extend(Array(Number("y"), name="more"))


class Lenient(Grown):
    def __init__(self) -> None:
        super().__init__()
        self.strict_loading = False


class Shrunk(Net):
    def __init__(self) -> None:
        super().__init__()
        self.delete(lambda node: node.name == "c")


class Changed(Shrunk):
    def __init__(self) -> None:
        super().__init__()
        self.extend(Number("c"))


TREES: list[tuple[type[Net], type[Net], str]] = [
    (Net, Grown, r"record/more/y \(number\) is only in this schema"),
    (Grown, Net, r"record/more/y \(number\) is only in the state"),
    (Net, Shrunk, r"record/c \(category\) is only in the state"),
    (Net, Changed, r"record/c was a category and is a number"),
]
"""The model of a checkpoint, the one that it is loaded into, and what is said."""


class Saved(NamedTuple):
    path: Path
    net: Net


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[type[Net], Saved]:
    folder = tmp_path_factory.mktemp("saved")
    nets = {Net: Net(), Grown: Net()}
    nets[Grown].extend(Array(Number("y"), name="more"))  # As users do it, behind __init__.
    return {
        kind: Saved(save(net, frames(net), folder / kind.__name__), net)
        for kind, net in nets.items()
    }


def fit(net: Net, path: Path) -> None:
    trainer().fit(net, datamodule=frames(net), ckpt_path=path)


def fit_another_module(net: Net, path: Path) -> None:
    trainer().fit(Beside(), datamodule=frames(net.schema), ckpt_path=path)


def validate(net: Net, path: Path) -> None:
    data = PolarsDataModule(net, validate=FRAME, num_workers=0)
    trainer().validate(net, datamodule=data, ckpt_path=path, verbose=False)


def load_from_checkpoint(net: Net, path: Path) -> None:
    type(net).load_from_checkpoint(path)


def load_schema(net: Net, path: Path) -> None:
    net.schema.load_state_dict(torch.load(path, weights_only=True)["penstock_schema"])


Way = Callable[[Net, Path], None]
WAYS: list[Way] = [fit, fit_another_module, validate, load_from_checkpoint, load_schema]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "other", "difference"), TREES)
def test_another_tree_is_refused_with_what_differs_and_what_to_do(
    kind: type[Net], other: type[Net], difference: str, way: Way, saved: dict[type[Net], Saved]
) -> None:
    with pytest.raises(SchemaMismatchError, match=f"{difference}.*strict_loading = False"):
        way(other(), saved[kind].path)


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_without_a_tree_is_loaded_into_the_same_one_alone(
    way: Way, saved: dict[type[Net], Saved], tmp_path: Path
) -> None:
    checkpoint = torch.load(saved[Net].path, weights_only=True)
    state = checkpoint["PolarsDataModule"]["train"]["state"]["encoder"]
    for part in (checkpoint["penstock_schema"], state):  # As older releases saved it.
        del part["tree"], part["version"]
    torch.save(checkpoint, tmp_path / "old.ckpt")
    way(Net(), tmp_path / "old.ckpt")
    with pytest.raises(SchemaMismatchError, match="record/c was a leaf with labels and is a numb"):
        way(Changed(), tmp_path / "old.ckpt")
    with pytest.raises(SchemaMismatchError, match=r"record/more/y \(number\) is only in this sch"):
        way(Grown(), tmp_path / "old.ckpt")


def test_leaves_that_both_trees_have_go_on_where_loading_is_not_strict(
    saved: dict[type[Net], Saved],
) -> None:
    loaded = Lenient.load_from_checkpoint(saved[Net].path)
    then = torch.load(saved[Net].path, weights_only=True)["penstock_schema"]
    now = loaded.schema.state_dict()
    assert now["vocabularies"] == then["vocabularies"]
    assert now["statistics"]["record/x"] == then["statistics"]["record/x"]
    assert loaded.statistics["record/more/y"].count == 0
    resumed = Lenient()
    fit(resumed, saved[Net].path)
    assert resumed.trained == saved[Net].net.trained[STEP:]


def test_a_schema_may_be_lenient_where_its_module_is_not(saved: dict[type[Net], Saved]) -> None:
    net = Grown()
    net.schema.strict_loading = False
    net.on_load_checkpoint(torch.load(saved[Net].path, weights_only=True))
    assert net.statistics["record/x"].count > 0


def test_a_leaf_of_another_kind_begins_anew_where_loading_is_not_strict(
    saved: dict[type[Net], Saved],
) -> None:
    state = saved[Net].net.schema.state_dict()
    schema = Changed().schema
    schema.strict_loading = False
    for one in (state, schema.merged([state, state])):
        schema.load_state_dict(one)
        assert schema.statistics["record/x"].count > 0
        assert schema.statistics["record/c"].count == 0


def test_options_that_change_no_leaf_are_free(saved: dict[type[Net], Saved]) -> None:
    net = Net()
    net.update(lambda node: node.name == "x", p_mask=0.0, weight=2.0, embed=object())
    fit(net, saved[Net].path)
    tree = net.schema.state_dict()["tree"]
    assert tree["fields"][0]["embed"].startswith("<object")
    assert tree["fields"][1] == {
        "kind": "category",
        "name": "c",
        "max_vocab_size": 6,
        "p_unavailable": 0.2,
        "p_prune": 1.0,
    }


def test_a_state_of_a_later_release_is_refused() -> None:
    schema = Net().schema
    with pytest.raises(OptionError, match="version 2, and this release knows 1"):
        schema.load_state_dict({**schema.state_dict(), "version": 2})


# Labels beside a module that has no schema.


class Beside(lightning.LightningModule):
    """Writes down the labels that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)
        self.labels: list[int] = []

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.linear(batch["record/x"].content).square().mean()
        return loss

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.labels += batch["record/c"].content.flatten().tolist()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.test_step(batch, batch_idx)

    def predict_step(self, batch: Batch, batch_idx: int) -> int:
        self.test_step(batch, batch_idx)
        return batch_idx

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


def labelled() -> SchemaModel:
    return SchemaModel(Number("x"), Category("c", max_vocab_size=6, p_unavailable=0), batch_size=3)


def of_model(schema: SchemaModel) -> PolarsDataModule:
    return PolarsDataModule(schema, dataframe=FRAME, num_workers=0)


def of_encoder(schema: SchemaModel) -> DataModule:
    return DataModule(FRAME, FRAME, FRAME, FRAME, encode=schema, batch_size=3)


MODULES = [of_model, of_encoder]


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
@pytest.mark.parametrize("module", MODULES)
def test_a_checkpoint_brings_the_labels_also_beside_a_plain_module(
    module: Callable[[SchemaModel], Any], stage: str, tmp_path: Path
) -> None:
    path = save(Beside(), module(labelled()), tmp_path)
    net = Beside()
    getattr(trainer(), stage)(net, datamodule=module(labelled()), ckpt_path=path)
    # Six of the records were trained.
    assert net.labels == [0, 1, 2, 0, 1, 2, 0, 1, 6, 6, 6]


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
@pytest.mark.parametrize("module", MODULES)
def test_splits_that_know_no_label_say_so(module: Callable[[SchemaModel], Any], stage: str) -> None:
    schema = labelled()
    data = module(schema)
    with pytest.warns(UserWarning, match=f"the vocabulary of record/c is empty.* to {stage}.*ckpt"):
        getattr(trainer(), stage)(Beside(), datamodule=data)


def test_labels_that_lightning_does_not_restore_at_the_end_of_an_epoch_are_named(
    tmp_path: Path,
) -> None:
    def fit_loader(net: Any, schema: SchemaModel, checkpoint: Path | None = None) -> None:
        folder = tmp_path / type(net).__name__
        saves = ModelCheckpoint(folder, "{epoch}", save_on_train_epoch_end=True, save_top_k=-1)
        run = trainer([] if checkpoint else [saves], max_epochs=2)
        run.fit(net, penstock.DataLoader(FRAME, schema, batch_size=3), ckpt_path=checkpoint)

    fit_loader(Beside(), labelled())
    with pytest.warns(UserWarning, match="epoch 1 begins with empty vocabularies.*SchemaMixin"):
        fit_loader(Beside(), labelled(), tmp_path / "Beside" / "epoch=0.ckpt")
    net = Net()
    fit_loader(net, net.schema)
    net = Net()
    fit_loader(net, net.schema, tmp_path / "Net" / "epoch=0.ckpt")  # It has them: no warning.


def test_a_target_is_not_read_to_predict_and_needs_no_labels() -> None:
    net = Net()
    trainer().predict(net, datamodule=PolarsDataModule(net, predict=FRAME, num_workers=0))
