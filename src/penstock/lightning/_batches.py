"""The batches of a split as Lightning asks for them, and the module that hands them out.

Lightning reads one batch ahead of a loader without a length, and keeps only the state of rank 0.
So the data module keeps the states itself: every batch leaves a mark, and a callback says which
batch was trained last, on every rank.
"""

from __future__ import annotations

from collections import deque
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from penstock._lazy import require
from penstock.decode import OF_A_RECORD
from penstock.errors import OptionError
from penstock.schema import Strata, split_named

require("lightning", extra="lightning", purpose="penstock.lightning")
import lightning.pytorch as pl  # noqa: E402 (behind the error that names the extra)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.loading import DataLoader
    from penstock.loading._run import Mark

    Kept: TypeAlias = Callable[..., Mapping[str, Any]]
    """What a position keeps besides the state of the loader, by epoch."""

T = TypeVar("T")


class SplitBatches:
    """The batches of one split."""

    def __init__(
        self,
        loader: DataLoader,
        steps: int | None = None,
        kept: Kept | None = None,
        *,
        is_cut: bool = False,
        remedy: str = "",
    ) -> None:
        """Hand out batches.

        Args:
            loader: Makes them.
            steps: How many an epoch has, where that is known.
            kept: What a position keeps besides the state of the loader.
            is_cut: Whether the loader makes more of them, which are left out.
            remedy: What to do about a bad record, in place of the loader's own words.
        """
        self._kept, self._remedy = kept, remedy
        self.loader = loader
        """Makes the batches: `explain()` and `stats()` say how."""
        self._steps, self._is_cut = steps, is_cut
        self._marks: deque[Mark] = deque()
        self._at: Mark | None = None
        """Where the last batch that was trained ends; None where that is the last handed out."""
        self._resumed = (-1, 0)
        """An epoch, and how many of its batches were handed out before."""
        self._count = 0
        self.trainer: Any = None
        """The trainer that trains with these batches; `use` is called for each of them."""
        self.validates_for: Any = None
        """The trainer that validates with these batches: its epochs are theirs."""
        self._pass: Iterator[Any] = iter(())
        self._first: list[Any] = []
        """Batches of the present pass, as long as none was trained."""

    def __iter__(self) -> Iterator[Any]:
        if self.trainer is None:
            if self.validates_for is not None:
                self.loader.set_epoch(self.validates_for.current_epoch)
            yield from self._begun()
            return
        # Lightning begins a run twice. An encoder that learns must not see a batch twice.
        if not self._first:
            self._marks.clear()
            # Lightning sets the epoch behind the first batch where it reads ahead.
            self.loader.set_epoch(self.trainer.current_epoch)
            self._pass = self._begun()
        yield from chain(tuple(self._first), self._pass)

    def _begun(self) -> Iterator[Any]:
        epoch, before = self._resumed
        self._resumed = (-1, 0)
        is_resumed = self._epoch == epoch
        self._count = before if is_resumed else 0
        left = None
        if self._is_cut and self._steps is not None:
            left = max(0, self._steps - self._count)
        # Lightning reads no batch ahead where it knows how many there are.
        is_marked = self.trainer is not None and self._steps is None
        for batch in islice(self._advised(), left):
            is_resumed = False
            self._count += 1
            if is_marked:
                self._marks.append(self.loader.mark())
                self._first.append(batch)
            yield batch
        if is_resumed and self.trainer is not None:
            # Resumed behind the last batch of an epoch: Lightning goes on with the next one.
            self.loader.set_epoch(epoch + 1)
            yield from self._begun()

    def _advised(self) -> Iterator[Any]:
        try:
            yield from self.loader
        except OF_A_RECORD as why:
            if self._remedy:
                why.advise(self._remedy)
            raise
        seen = self.loader.stats()
        if seen["bad_records"] and not seen["records"]:
            raise RuntimeError(
                f"no record can be read, and {seen['bad_records']:,.0f} were tried: see the "
                "warnings of the log."
            )

    def __len__(self) -> int:
        if self._steps is None:
            raise TypeError("the number of batches is not known before they are made")
        return self._steps

    @property
    def _epoch(self) -> int:
        return self.loader.mark().point.epoch

    def use(self) -> None:
        """Note that the next batch was trained."""
        if self._marks:
            self._at = self._marks.popleft()
            self._first.clear()

    def refresh(self) -> None:
        """Note that an encoder learnt from other ranks, with all batches trained."""
        if self._at is not None:
            self._at = self._at._replace(learnt=self.loader.mark().learnt)

    def position(self) -> dict[str, Any]:
        """Return where the run stands behind the last batch that was trained.

        Every rank has to ask.
        """
        state: Any = self.loader.state_dict(self._at)
        kept = {} if self._kept is None else self._kept(state["epoch"])
        return {**kept, "state": state, "batches": self._count}

    def go_to(self, position: Mapping[str, Any]) -> None:
        """Continue behind the last batch of a position."""
        self.loader.load_state_dict(position["state"])
        self._resumed = (self._epoch, position["batches"])


class Follower(pl.Callback):
    """Notes which batch was trained last, on every rank."""

    def __init__(self, module: BatchModule) -> None:
        self._module = module

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self._module.use()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._module.end_epoch()
        self._module.refresh()


class BatchModule(pl.LightningDataModule):
    """The base of data modules: loaders by split, and a state that Lightning keeps."""

    def __init__(self) -> None:
        super().__init__()
        self._handed_out: dict[Strata, SplitBatches] = {}
        self._positions: dict[Strata, Any] = {}
        self._is_followed = False
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

    def end_epoch(self) -> None:
        """Do what is due on every rank when an epoch of training ends."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_handed_out": {}}  # A run under way does not pickle.

    # Lightning's hooks.

    def setup(self, stage: str) -> None:
        """Let every batch that is trained be noted."""
        self._is_followed = stage == "fit"
        callbacks = getattr(self.trainer, "callbacks", [])
        if self._is_followed and not any(isinstance(one, Follower) for one in callbacks):
            # First: a checkpoint that another callback saves has the batch that just ended.
            callbacks.insert(0, Follower(self))

    def teardown(self, stage: str) -> None:
        """Count batches as they are handed out."""
        self._is_followed = False

    def dataloader(self, strata: str, required: bool = True) -> SplitBatches | None:  # noqa: FBT001, FBT002 (as json2vec)
        """Return the batches of a split, made anew from what the model is now.

        Args:
            strata: "train", "validate", "test" or "predict".
            required: Whether a split without data raises; else it is None.
        """
        split = split_named(strata)
        position = self._positions.pop(split, None)
        found = self._batches(split, position)
        if found is None:
            if required:
                raise OptionError(f"no {self._WHAT} configured for strata: {split}")
            return None
        if position is not None:
            found.go_to(position)
        if self._is_followed and split is Strata.train:
            found.trainer = self.trainer
        elif self._is_followed:
            found.validates_for = self.trainer
        self._handed_out[split] = found
        return found

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
        return [] if found is None else found

    def use(self) -> None:
        """Note that a batch of training was trained."""
        if Strata.train in self._handed_out:
            self._handed_out[Strata.train].use()

    def refresh(self) -> None:
        """Note that all batches of an epoch were trained."""
        if Strata.train in self._handed_out:
            self._handed_out[Strata.train].refresh()

    def state_dict(self) -> dict[str, Any]:
        """Return where training stands; every rank has to call it."""
        train = self._handed_out.get(Strata.train)
        return {} if train is None else {"train": train.position()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next loader of training continue where it stood."""
        self._positions = {split_named(split): one for split, one in state_dict.items()}


class TrainerRanks(NamedTuple):
    """Where this process stands among those that share the data."""

    rank: int
    world_size: int
    local_world_size: int = 1


def ranks_of(trainer: Any) -> TrainerRanks:
    """Return the ranks that a trainer knows, or torch.distributed, or that this is alone."""
    from torch import distributed  # noqa: PLC0415 (it takes a second)

    if trainer is not None:
        local = max(1, trainer.world_size // max(1, trainer.num_nodes))
        return TrainerRanks(trainer.global_rank, trainer.world_size, local)
    if distributed.is_available() and distributed.is_initialized():
        return TrainerRanks(distributed.get_rank(), distributed.get_world_size())
    return TrainerRanks(0, 1)
