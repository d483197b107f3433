"""Training goes on from a checkpoint of Lightning as if it had never stopped."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint

from penstock.errors import ChangedSourceError, OptionError
from penstock.lightning import CustomDataModule, DataModule, EngineOptions, PolarsDataModule
from tests.lightning.preprocessing import shifted, some
from tests.lightning.small_models import FRAME, RECORDS, Net, Rows, batches, seen, trainer
from tests.rounds import LONG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",
    "ignore:.*callbacks used to create the checkpoint",
    "ignore:.*use of fork:DeprecationWarning",
    "ignore:Total length of `list` across ranks is zero",
)

EPOCHS = 3


class AfterValidation(ModelCheckpoint):
    """Of another type: Lightning tells two checkpoint callbacks apart by that."""


def saves(folder: Path) -> list[Any]:
    every: dict[str, Any] = {"dirpath": folder, "save_top_k": -1, "auto_insert_metric_name": False}
    return [
        ModelCheckpoint(every_n_train_steps=1, filename="step{step}", **every),
        ModelCheckpoint(save_on_train_epoch_end=True, filename="end{epoch}", **every),
        AfterValidation(save_on_train_epoch_end=False, filename="validated{epoch}", **every),
    ]


def fit(make: Callable[..., Any], folder: Path | None = None, **options: Any) -> Net:
    net = options.pop("net", None) or Net()
    checkpoint = options.pop("checkpoint", None)
    run = trainer(saves(folder) if folder else [], **{"max_epochs": EPOCHS, **options})
    run.fit(net, datamodule=make(net), ckpt_path=checkpoint)
    return net


def checkpoints(folder: Path) -> Iterable[tuple[Path, int]]:
    """Return all of a run, and how many batches were trained before."""
    for path in sorted(folder.glob("*.ckpt")):
        loops = torch.load(path, weights_only=True)["loops"]["fit_loop"]
        yield path, loops["epoch_loop.batch_progress"]["total"]["processed"]


def frames(**options: Any) -> Callable[[Net], PolarsDataModule]:
    options = {"num_workers": 0, "engine": EngineOptions(seed=5), **options}
    return lambda net: PolarsDataModule(net, train=FRAME, validate=FRAME, **options)


def datasets(**options: Any) -> Callable[[Net], CustomDataModule]:
    options = {"num_workers": 0, "engine": EngineOptions(seed=5), **options}
    return lambda net: CustomDataModule(net, train=Rows(), validate=Rows(), **options)


def sources(net: Net) -> DataModule:
    return DataModule(FRAME, FRAME, encode=net.schema, batch_size=3, shuffle=True, num_workers=0)


KINDS: dict[str, Callable[[Net], Any]] = {
    "in order": frames(),
    "shuffled": frames(observation_buffer_size=5),
    "transformed": frames(observation_buffer_size=5, preprocessor=shifted, by=3),
    "sampled": frames(observation_buffer_size=5, sample_rate=0.7),
    "generated": frames(observation_buffer_size=5, preprocessor=some),
    "generated in order": frames(preprocessor=some, times=5),
    "drawn": frames(replacement=True, sharding="record"),
    "a dataset": datasets(observation_buffer_size=5),
    "a dataset in order": datasets(preprocessor=some),
    "a source": sources,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_from_every_checkpoint_as_if_it_had_never_stopped(
    kind: str, tmp_path: Path
) -> None:
    whole = fit(KINDS[kind], tmp_path)
    assert {one.epoch for one in whole.trained} == set(range(EPOCHS))
    first = sum(one.epoch == 0 for one in whole.trained)
    for path, before in checkpoints(tmp_path):
        if not LONG and "step" in path.stem and before not in (1, 2, first - 1, first, first + 1):
            continue
        again = fit(KINDS[kind], checkpoint=path)
        assert again.trained == whole.trained[before:], path.stem
        validated = len(again.evaluated)
        assert again.evaluated == whole.evaluated[len(whole.evaluated) - validated :], path.stem
        assert torch.equal(again.linear.weight, whole.linear.weight), path.stem
        if again.trained:
            assert again.schema.state_dict() == whole.schema.state_dict(), path.stem


@pytest.mark.parametrize("make", [frames, datasets])
def test_workers_go_on_where_each_of_them_stood(make: Any, tmp_path: Path) -> None:
    make = make(num_workers=2, preprocessor=None if make is frames else some)
    whole = fit(make, tmp_path, limit_val_batches=0)
    for path, before in checkpoints(tmp_path):
        if path.stem in ("step3", "end0"):
            again = fit(make, checkpoint=path, limit_val_batches=0)
            assert again.trained == whole.trained[before:], path.stem


@pytest.mark.parametrize("kind", ["shuffled", "generated", "a source"])
@pytest.mark.parametrize(
    "options",
    [
        {"limit_train_batches": 2},
        {"accumulate_grad_batches": 2},
        {"reload_dataloaders_every_n_epochs": 1},
    ],
    ids=["limited", "accumulated", "new loaders"],
)
def test_so_does_one_with_other_options_of_the_trainer(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    whole = fit(KINDS[kind], tmp_path, **options)
    for path, before in checkpoints(tmp_path):
        if path.stem in ("step1", "end0", "end1"):
            again = fit(KINDS[kind], checkpoint=path, **options)
            assert again.trained == whole.trained[before:], path.stem


class Curious(Net):
    """Asks for loaders of its own, and looks at batches before they are trained."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        with contextlib.suppress(TypeError):
            assert len(self.trainer.datamodule.train_dataloader()) > 0  # type: ignore[attr-defined]
        return super().configure_optimizers()

    def on_train_start(self) -> None:
        next(iter(self.trainer.train_dataloader))  # type: ignore[call-overload]

    def on_train_batch_end(self, *_: Any) -> None:
        next(iter(self.trainer.train_dataloader), None)  # type: ignore[call-overload]
        self.trainer.datamodule.train_dataloader()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["shuffled", "generated", "a dataset", "a source"])
def test_a_model_that_looks_at_batches_trains_the_same_ones(kind: str, tmp_path: Path) -> None:
    whole = fit(KINDS[kind])
    looking = fit(KINDS[kind], tmp_path, net=Curious())
    assert looking.trained == whole.trained
    assert looking.schema.state_dict() == whole.schema.state_dict()
    for path, before in checkpoints(tmp_path):
        if path.stem in ("step1", "step2", "step6", "end0"):
            again = fit(KINDS[kind], net=Curious(), checkpoint=path)
            assert again.trained == whole.trained[before:], path.stem


# Without an end.


def test_draws_without_end_go_on_over_epochs_of_the_trainer(tmp_path: Path) -> None:
    engine = EngineOptions(seed=5, epoch="infinite")
    make = frames(replacement={"train": True}, engine=engine)
    options = {"limit_train_batches": 7, "limit_val_batches": 0}
    whole = fit(make, tmp_path, **options)
    assert [one.epoch for one in whole.trained] == [0] * 7 + [1] * 7 + [2] * 7
    # The loader's own epochs have four batches; none of them comes twice.
    assert len({str(one.ids) for one in whole.trained}) == 21
    loader = batches(make(Net()))
    assert [seen(batch)[1:3] for batch, _ in zip(loader, range(21), strict=False)] == [
        one[1:3] for one in whole.trained
    ]
    for path, before in checkpoints(tmp_path):
        if re.fullmatch(r"step(3|6|13|20)|end[01]", path.stem):
            again = fit(make, checkpoint=path, **options)
            assert again.trained == whole.trained[before:], path.stem


# Stops of another kind.


@pytest.mark.filterwarnings("ignore:.*ckpt_path=:UserWarning")
@pytest.mark.parametrize("kind", ["in order", "generated", "a source"])
@pytest.mark.parametrize("fails_at", [0, 5])
def test_a_batch_that_failed_comes_again(kind: str, fails_at: int, tmp_path: Path) -> None:
    whole = fit(KINDS[kind])
    net = Net()
    net.fails_at = fails_at
    run = trainer([OnExceptionCheckpoint(tmp_path, "failed")], max_epochs=EPOCHS)
    with pytest.raises(ArithmeticError):
        run.fit(net, datamodule=KINDS[kind](net))
    again = fit(KINDS[kind], checkpoint=tmp_path / "failed.ckpt")
    assert net.trained + again.trained == whole.trained


def test_the_seed_of_a_run_stays_with_it(tmp_path: Path) -> None:
    make = frames(observation_buffer_size=5, engine=None)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        whole = fit(make, tmp_path, reload_dataloaders_every_n_epochs=1)
        torch.manual_seed(2)
        path, before = next(one for one in checkpoints(tmp_path) if one[0].stem == "step2")
        again = fit(make, checkpoint=path, reload_dataloaders_every_n_epochs=1)
    assert again.trained == whole.trained[before:]
    assert again.evaluated == whole.evaluated


def test_a_checkpoint_that_is_evaluated_moves_no_training(tmp_path: Path) -> None:
    whole = fit(KINDS["shuffled"], tmp_path)
    net = Net()
    data = KINDS["shuffled"](net)
    trainer().validate(net, datamodule=data, ckpt_path=tmp_path / "step2.ckpt", verbose=False)
    assert net.schema.state_dict()["batches"] == 2
    trainer(max_epochs=EPOCHS).fit(net, datamodule=data)
    assert [one.ids for one in net.trained] == [one.ids for one in whole.trained]


def test_one_trainer_serves_several_modules(tmp_path: Path) -> None:
    run = trainer(max_epochs=1, limit_val_batches=0)
    first = Net()
    run.fit(first, datamodule=KINDS["a dataset"](first))
    run.fit_loop.max_epochs = 3
    second = Net()
    run.fit(second, datamodule=KINDS["generated"](second))
    assert {one.epoch for one in second.trained} == {1, 2}
    run.save_checkpoint(tmp_path / "last.ckpt")
    position = torch.load(tmp_path / "last.ckpt", weights_only=True)["PolarsDataModule"]["train"]
    assert position["state"]["epoch"] == 2
    assert position["batches"] == len(second.trained) / 2


def test_a_second_fit_begins_anew() -> None:
    net = Net()
    data = KINDS["generated"](net)
    trainer(max_steps=4).fit(net, datamodule=data)
    begun, net.trained = net.trained, []
    net.schema.reset()
    trainer().fit(net, datamodule=data)
    assert net.trained[:4] == begun


class OwnHooks(PolarsDataModule):
    """Calls no hook of its base, and hands out its loader by a name."""

    def setup(self, stage: str) -> None: ...

    def teardown(self, stage: str) -> None: ...

    def train_dataloader(self) -> Any:
        return {"rows": super().train_dataloader()}


class NamedLoader(Net):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return super().training_step(batch["rows"], batch_idx)


@pytest.mark.parametrize("sample_rate", [1.0, 0.7], ids=["a length", "no length"])
def test_so_does_a_module_with_hooks_of_its_own_that_names_its_loader(
    sample_rate: float, tmp_path: Path
) -> None:
    def make(net: Net) -> OwnHooks:
        engine = EngineOptions(seed=5)
        return OwnHooks(net, train=FRAME, sample_rate=sample_rate, num_workers=0, engine=engine)

    whole = fit(make, tmp_path, net=NamedLoader())
    for path, before in checkpoints(tmp_path):
        if path.stem in ("step1", "step2", "step3"):
            again = fit(make, checkpoint=path, net=NamedLoader())
            assert again.trained == whole.trained[before:], path.stem


def test_so_does_one_whose_epochs_are_shorter_than_their_limit(tmp_path: Path) -> None:
    make = datasets()
    whole = fit(make, tmp_path, limit_train_batches=9, limit_val_batches=0)
    for path, before in checkpoints(tmp_path):
        if path.stem in ("step3", "step4", "end0", "step5"):
            again = fit(make, checkpoint=path, limit_train_batches=9, limit_val_batches=0)
            assert again.trained == whole.trained[before:], path.stem


def test_a_checkpoint_of_a_module_of_another_class_is_warned_of(tmp_path: Path) -> None:
    whole = fit(KINDS["in order"], tmp_path)
    with pytest.warns(UserWarning, match=r"step2.ckpt holds no position of a OwnHooks"):
        again = fit(
            lambda net: OwnHooks(net, train=FRAME, num_workers=0),
            checkpoint=tmp_path / "step2.ckpt",
            net=NamedLoader(),
        )
    assert [one.ids for one in again.trained[:2]] == [one.ids for one in whole.trained[:2]]


# Other layouts.


@pytest.mark.parametrize("sharding", ["chunk", "record"])
@pytest.mark.parametrize(("before", "after"), [(2, 0), (0, 3)])
def test_other_workers_get_the_records_that_are_left(
    sharding: str, before: int, after: int, tmp_path: Path
) -> None:
    def make(workers: int) -> Callable[[Net], PolarsDataModule]:
        return frames(num_workers=workers, sharding=sharding, observation_buffer_size=4)

    options = {"limit_val_batches": 0, "max_epochs": 2}
    whole = fit(make(before), tmp_path, **options)
    again = fit(make(after), checkpoint=tmp_path / "step2.ckpt", **options)
    records = [number for one in (*whole.trained[:2], *again.trained) for number in one.ids]
    assert sorted(records[:RECORDS]) == sorted(records[RECORDS:]) == list(range(RECORDS))


def test_a_dataset_needs_as_many_workers(tmp_path: Path) -> None:
    fit(datasets(), tmp_path, max_steps=2)
    text = (
        "the state is of 1 ranks × workers, and there are 2 now: .* Give num_workers= for as many"
    )
    with pytest.raises(OptionError, match=text):
        fit(datasets(num_workers=2), checkpoint=tmp_path / "step2.ckpt")


def test_another_frame_is_refused(tmp_path: Path) -> None:
    fit(KINDS["in order"], tmp_path, max_steps=2)

    def other(net: Net) -> PolarsDataModule:
        return PolarsDataModule(net, train=FRAME.reverse(), num_workers=0)

    with pytest.raises(ChangedSourceError, match="changed since the state was saved") as raised:
        fit(other, checkpoint=tmp_path / "step2.ckpt")
    assert "Bring back the data" in raised.value.remedy
    assert "on_changed" not in str(raised.value)  # A data module has no option of that name.


# Without a trainer.


@pytest.mark.parametrize("kind", ["shuffled", "generated", "a dataset", "a source"])
def test_a_state_goes_on_without_a_trainer(kind: str) -> None:
    net, other = Net(), Net()
    data, copy = KINDS[kind](net), KINDS[kind](other)
    assert data.state_dict() == {}
    run = iter(batches(data))
    found = [seen(next(run)) for _ in range(2)]
    copy.load_state_dict(data.state_dict())
    found += [seen(batch) for batch in run]
    assert [seen(batch) for batch in batches(copy)] == found[2:]
    assert other.schema.state_dict() == net.schema.state_dict()
