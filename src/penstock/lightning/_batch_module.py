"""The base of the data modules: loaders by split, and the position of training."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import OptionError
from penstock.lightning._batches import SplitBatches, only_loader
from penstock.lightning._lightning import pl
from penstock.lightning._trainer_ranks import ranks_of
from penstock.loading import learnt_in
from penstock.schema import Schema, Strata, split_named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


class Follower(pl.Callback):
    """Tells a data module what becomes of its batches, on every rank.

    A callback, so that hooks of a subclass of the data module need not call those of its base.
    """

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if isinstance(trainer.datamodule, BatchModule):
            trainer.datamodule.use()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if isinstance(trainer.datamodule, BatchModule):
            trainer.datamodule.end_epoch()
            trainer.datamodule.refresh()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        # Resumed behind the last step, a run has no epoch to end.
        if isinstance(trainer.datamodule, BatchModule):
            trainer.datamodule.end_epoch()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if isinstance(trainer.datamodule, BatchModule):
            trainer.datamodule.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "")  # Lightning leaves it out where a run fails.


class BatchModule(pl.LightningDataModule):
    """The base of data modules: loaders by split, and a state that Lightning keeps."""

    def __init__(self) -> None:
        super().__init__()
        # A rank without a file predicts nothing; elsewhere all ranks have as many batches.
        self.allow_zero_length_dataloader_with_multiple_devices = True
        self._given: Mapping[Strata, Any] = {}
        """What the splits that have data were given."""
        self._handed_out: dict[Strata, SplitBatches] = {}
        self._positions: dict[Strata, Any] = {}
        self._is_resumed = False
        """Whether the present run began with a position."""
        self._is_asked_everywhere = False

    # What a data module adds.

    def _batches(self, strata: Strata, position: Mapping[str, Any] | None) -> SplitBatches | None:
        """Return new batches of a split, to be continued from a position; None without one."""
        raise NotImplementedError  # abstract

    def of_first_rank(self, make: Callable[[], T]) -> T:
        """Return what rank 0 makes, or raise its error, where Lightning asks every rank."""
        if not self._is_asked_everywhere or self.trainer is None:
            return make()
        found: Any = None
        if self.trainer.is_global_zero:
            try:
                found = make()
            except Exception as why:  # noqa: BLE001 (raised on every rank)
                found = why
        found = self.trainer.strategy.broadcast(found)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    def _learner(self) -> Any:
        """Return the encoder of training, which may learn."""

    def end_epoch(self) -> None:
        """Bring what all ranks learnt together, where an epoch of training ends."""
        if hasattr(learner := self._learner(), "synchronize"):
            learner.synchronize()

    # Batches by split.

    @property
    def _stage(self) -> str | None:
        """What Lightning does at present: "fit", "validate", "test" or "predict"; or None."""
        state = getattr(self.trainer, "state", None)
        return state.fn.value if state is not None and state.status == "running" else None

    def dataloader(self, strata: str, required: bool = True) -> SplitBatches | None:  # noqa: FBT001, FBT002 (as json2vec)
        """Return the batches of a split, made anew from what the model is now.

        Args:
            strata: "train", "validate", "test" or "predict".
            required: Whether a split without data raises; else it is None.
        """
        split, is_fitting = split_named(strata), self._stage == "fit"
        # Lightning's own loader may not be the first one: a model asks for a length.
        position = self._positions.get(split) if is_fitting else self._positions.pop(split, None)
        found = self._batches(split, position)
        if found is None:
            if required:
                raise OptionError(f"no {self._WHAT} configured for strata: {split}")
            return None
        if position is not None:
            found.go_to(position)
        if self._stage in ("validate", "test") and isinstance(learner := self._learner(), Schema):
            learner.for_split(split).warn_of_no_labels()
        if self._stage is not None:
            self._follow_the_trainer()
        if is_fitting:
            self._check_resumed(split)
            self._check_overfit(split, found)
            found.follow(self.trainer, self.end_epoch if split is Strata.train else None)
        if split in self._handed_out:
            self._handed_out[split].loader.close()
        self._handed_out[split] = found.without_workers()
        return found

    def _follow_the_trainer(self) -> None:
        trainer: Any = self.trainer
        if not any(isinstance(one, Follower) for one in trainer.callbacks):
            # First: a checkpoint that another callback saves has the batch that just ended. A new
            # list: Lightning may be walking through the present one.
            trainer.callbacks = [Follower(), *trainer.callbacks]

    def _check_resumed(self, split: Strata) -> None:
        trainer: Any = self.trainer
        # Positions that loaders without a module kept, which Lightning hands to those of this run.
        kept = getattr(trainer.fit_loop, "_combined_loader_states_to_load", ())
        is_anew = trainer.fit_loop.restarting and not self._is_resumed and not any(kept)
        if split is Strata.train and is_anew:
            warnings.warn(
                f"the checkpoint {trainer.ckpt_path} holds no position of a {type(self).__name__}: "
                "the epoch begins anew, and its first batches come again. Lightning keeps the "
                "position under the name of the class that saved it.",
                stacklevel=2,
            )

    def _check_overfit(self, split: Strata, found: SplitBatches) -> None:
        trainer: Any = self.trainer
        if split is Strata.train and trainer.overfit_batches and not found.facts.are_alike:
            warnings.warn(
                "overfit_batches= takes the first batches of each epoch, and these differ from "
                "epoch to epoch. For the same ones, draw nothing: no shuffle, no sample_rate=, "
                "and replacement=False.",
                stacklevel=2,
            )

    _WHAT = "source"

    # An empty list lets Lightning leave out the loop; None would raise.

    def train_dataloader(self) -> Any:
        return self._or_empty("train")

    def val_dataloader(self) -> Any:
        return self._or_empty("validate")

    def test_dataloader(self) -> Any:
        return self._or_empty("test")

    def predict_dataloader(self) -> Any:
        return self._or_empty("predict")

    def _or_empty(self, strata: str) -> Any:
        self._is_asked_everywhere = True
        try:
            found = self.dataloader(strata, required=False)
        finally:
            self._is_asked_everywhere = False
        if found is not None:
            return found
        if strata == {"fit": "train"}.get(self._stage or "", self._stage):
            warnings.warn(
                f"{type(self).__name__}: no {self._WHAT} is configured for strata: {strata}, so "
                f"Trainer.{self._stage} does nothing.",
                stacklevel=2,
            )
        return []

    # Where training stands.

    def _trained(self) -> SplitBatches | None:
        """Return the batches that are trained with, or were handed out last."""
        used = only_loader(self.trainer) if self._stage == "fit" else None
        if isinstance(used, SplitBatches):
            self._handed_out[Strata.train] = used
        return self._handed_out.get(Strata.train)

    def use(self) -> None:
        """Note that a batch of training was trained."""
        self._positions.clear()
        if (trained := self._trained()) is not None:
            trained.use()

    def refresh(self) -> None:
        """Note that all batches of an epoch were trained."""
        if (trained := self._trained()) is not None:
            trained.refresh()

    def state_dict(self) -> dict[str, Any]:
        """Return where training stands; every rank has to call it."""
        trained = self._trained()
        return {} if trained is None else {"train": trained.position()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next loader of training continue where it stood, or others know what it knew."""
        if self._stage in (None, "fit"):
            self._positions = {split_named(split): one for split, one in state_dict.items()}
            self._is_resumed = bool(state_dict)
        elif hasattr(learner := self._learner(), "load_state_dict") and state_dict:
            here = ranks_of(self.trainer)
            state = state_dict["train"]["state"]
            if (learnt := learnt_in(state, learner, here.rank, here.world_size)) is not None:
                if hasattr(learner, "configure_distributed"):
                    learner.configure_distributed(here.rank, here.world_size)
                learner.load_state_dict(learnt)
                self.end_epoch()

    def close(self) -> None:
        """End passes that were left early, and all workers."""
        self._positions.clear()
        self._is_resumed = False
        for one in self._handed_out.values():
            one.close()
            one.loader.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_handed_out": {}}

    def __str__(self) -> str:
        # Lightning's own makes a loader for each split.
        return f"<{type(self).__name__} of {', '.join(self._given) or 'no split'}>"
