"""The batches of a split as Lightning asks for them, and the module that hands them out.

Lightning reads one batch ahead of a loader without a length, may save while a batch is trained, and
keeps only the state of rank 0. So the data module keeps the states itself: every batch leaves a
mark, and a callback says which batch was trained last, on every rank.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from penstock.decode import OF_A_RECORD
from penstock.errors import OptionError
from penstock.lightning._lightning import pl
from penstock.schema import Strata, split_named

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from penstock.loading import DataLoader
    from penstock.loading._run import Mark

    Kept: TypeAlias = Callable[..., Mapping[str, Any]]
    """What a position keeps besides the state of the loader, by epoch."""

T = TypeVar("T")


class BatchEnd(NamedTuple):
    """Where a run stands behind a batch."""

    mark: Mark
    batches: int
    """Batches of the epoch up to here."""


class SplitBatches:
    """The batches of one split."""

    def __init__(  # noqa: PLR0913 (what the data modules know of them)
        self,
        loader: DataLoader,
        steps: int | None = None,
        kept: Kept | None = None,
        layout: object = None,
        *,
        is_cut: bool = False,
        is_endless: bool = False,
        remedy: str = "",
        unread: Callable[[], int] = lambda: 0,
    ) -> None:
        """Hand out batches.

        Args:
            loader: Makes them.
            steps: How many an epoch has, where that is known.
            kept: What a position keeps besides the state of the loader.
            layout: What decides how many batches an epoch has; a rest of it with another layout
                has an unknown number.
            is_cut: Whether the loader makes more of them, which are left out.
            is_endless: Whether an epoch of the loader has no end: one of Lightning then goes on
                where the one before ended.
            remedy: What to do about a bad record, in place of the loader's own words.
            unread: Returns how many records there are where none can be read, as a pass without
                a batch does not say whether a preprocessor dropped them.
        """
        self._kept, self._layout, self._remedy, self._unread = kept, layout, remedy, unread
        self.loader = loader
        """Makes the batches: `explain()` and `stats()` say how."""
        self._steps, self._is_cut, self._is_endless = steps, is_cut, is_endless
        self._resumed = (-1, 0)
        """An epoch, and how many of its batches were trained before."""
        self._trainer: Any = None
        self._end_epoch: Callable[[], None] | None = None
        self._is_trained = False
        """Whether the trainer trains with these batches, so that `use` is called for each."""
        self._at: BatchEnd | None = None
        """Where the last batch that was used ends."""
        self._ahead: deque[tuple[Any, BatchEnd]] = deque()
        """Batches that were handed out, and not trained yet."""
        self._epoch, self._pass = -1, self._begun()
        """Lightning's epoch that is under way, if one is, and its batches."""
        self._made = 0
        """How many batches were made to be trained."""

    def follow(self, trainer: Any, end_epoch: Callable[[], None] | None = None) -> None:
        """Have the epochs of a trainer.

        Args:
            trainer: Says which epoch it is.
            end_epoch: Of training: called where Lightning takes an epoch for ended by a resume.
        """
        self._trainer, self._end_epoch = trainer, end_epoch

    def __iter__(self) -> Iterator[Any]:
        # A generator: Lightning makes an iterator, and after a resume says the epoch behind that.
        is_training = self._end_epoch is not None
        self._is_trained = is_training and self._trainer.train_dataloader is self
        if not self._is_trained:
            if self._trainer is not None:
                self.loader.set_epoch(self._trainer.current_epoch)
            yield from self._begun()
            return
        epoch = self._trainer.current_epoch
        if self._epoch < 0 or (epoch != self._epoch and not self._is_endless):
            self.close()
            if not self._is_endless:
                # Lightning sets the epoch behind the first batch where it reads ahead.
                self.loader.set_epoch(epoch)
            self._epoch, self._pass = epoch, self._begun()
        yield from self._untrained()

    def _untrained(self) -> Iterator[Any]:
        """Yield the batches that were not trained yet.

        Lightning begins a run twice, and a callback may look at batches. All share one pass: each
        batch is trained, and an encoder that learns does not see it twice.
        """
        present = self._pass
        number = self._made - len(self._ahead)
        while self._pass is present:
            if number == self._made and next(present, None) is None:
                return
            trained = self._made - len(self._ahead)
            number = max(number, trained)
            batch, _ = self._ahead[number - trained]
            number += 1
            yield batch

    def _begun(self) -> Generator[Any]:
        present = self.loader.mark()
        (epoch, before), self._resumed = self._resumed, (-1, 0)
        is_rest = present.point.epoch == epoch
        if self._is_trained and self._end_epoch and epoch >= 0 and not is_rest:
            self._end_epoch()  # Lightning takes the epoch for ended.
        count = before if is_rest else 0
        self._at = BatchEnd(present, count)
        left = None
        if self._is_cut and self._steps is not None:
            left = max(0, self._steps - count)
        for number, batch in enumerate(islice(self._advised(), left), count + 1):
            is_rest = False
            end = BatchEnd(self.loader.mark(), number)
            if self._is_trained:
                self._ahead.append((batch, end))
                self._made += 1
            else:
                self._at = end
            yield batch
        if is_rest and self._is_trained:
            # Resumed behind the last batch of an epoch: Lightning goes on with the next one.
            self._resumed = (epoch, before)
            self._epoch = epoch + 1
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
        if not seen["records"] and (tried := int(seen["bad_records"]) or self._unread()):
            raise RuntimeError(
                f"no record can be read, and {tried:,} were tried: see the warnings of the log."
            )

    def close(self) -> None:
        """End the pass that is under way."""
        self._pass.close()
        self._ahead.clear()
        self._epoch = -1

    def __len__(self) -> int:
        if self._steps is None:
            raise TypeError("the number of batches is not known before they are made")
        return self._steps

    # As Lightning asks for, which else warns of a resume. The data module keeps the state.

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Do nothing."""

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        # The trainer and the pass that is under way stay: the copy begins an epoch.
        flags: dict[str, Any] = {
            "is_cut": self._is_cut,
            "is_endless": self._is_endless,
            "remedy": self._remedy,
        }
        made = partial(SplitBatches, **flags)
        return made, (self.loader, self._steps, self._kept, self._layout)

    def use(self) -> None:
        """Note that the next batch was trained."""
        if self._ahead:
            _, self._at = self._ahead.popleft()

    def refresh(self) -> None:
        """Note that an encoder learnt from other ranks, with all batches trained."""
        if not self._is_endless and self._epoch == self._trainer.current_epoch:
            # Lightning may count the batches, and not ask for the end. After a resume, the pass of
            # the next epoch may have begun.
            self._pass.close()
        if self._at is not None:
            mark = self._at.mark._replace(learnt=self.loader.mark().learnt)
            self._at = self._at._replace(mark=mark)

    def position(self) -> dict[str, Any]:
        """Return where the run stands behind the last batch that was used.

        Every rank has to ask.
        """
        mark, count = self._at or (None, 0)
        state: Any = self.loader.state_dict(mark)
        kept = {} if self._kept is None else self._kept(state["epoch"])
        return {**kept, "state": state, "batches": count, "layout": self._layout}

    def go_to(self, position: Mapping[str, Any]) -> None:
        """Continue behind the last batch of a position."""
        self.loader.load_state_dict(position["state"])
        self._resumed = (self.loader.mark().point.epoch, position["batches"])
        if position["layout"] != self._layout:
            if self._is_cut:
                raise OptionError(
                    "equalize='drop' continues an epoch with as many ranks and workers, and the "
                    "batch size, that it began with: bring them back, or use 'wrap'."
                )
            self._steps = None


class Follower(pl.Callback):
    """Notes which batch was trained last, on every rank."""

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if isinstance(trainer.datamodule, BatchModule):
            trainer.datamodule.use()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if isinstance(trainer.datamodule, BatchModule):
            trainer.datamodule.end_epoch()
            trainer.datamodule.refresh()


class BatchModule(pl.LightningDataModule):
    """The base of data modules: loaders by split, and a state that Lightning keeps."""

    def __init__(self) -> None:
        super().__init__()
        # A rank without a file predicts nothing; elsewhere all ranks have as many batches.
        self.allow_zero_length_dataloader_with_multiple_devices = True
        self._handed_out: dict[Strata, SplitBatches] = {}
        self._positions: dict[Strata, Any] = {}
        self._stage: str | None = None
        """What Lightning does at present."""
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

    # Lightning's hooks.

    def setup(self, stage: str) -> None:
        """Let every batch that is trained be noted."""
        self._stage = stage
        callbacks = getattr(self.trainer, "callbacks", [])
        if stage == "fit" and not any(isinstance(one, Follower) for one in callbacks):
            # First: a checkpoint that another callback saves has the batch that just ended.
            callbacks.insert(0, Follower())

    def teardown(self, stage: str) -> None:
        """End a pass that Lightning left early, and all workers."""
        self._stage = None
        self._positions.clear()
        for one in self._handed_out.values():
            one.close()
            one.loader.close()

    def on_exception(self, exception: BaseException) -> None:
        """Do so where a run fails: Lightning leaves out `teardown` then."""
        del exception
        self.teardown("")

    def dataloader(self, strata: str, required: bool = True) -> SplitBatches | None:  # noqa: FBT001, FBT002 (as json2vec)
        """Return the batches of a split, made anew from what the model is now.

        Args:
            strata: "train", "validate", "test" or "predict".
            required: Whether a split without data raises; else it is None.
        """
        split = split_named(strata)
        # Lightning's own loader may not be the first one: a model asks for a length.
        is_kept = self._stage == "fit"
        position = self._positions.get(split) if is_kept else self._positions.pop(split, None)
        found = self._batches(split, position)
        if found is None:
            if required:
                raise OptionError(f"no {self._WHAT} configured for strata: {split}")
            return None
        if position is not None:
            found.go_to(position)
        if self._stage == "fit":
            found.follow(self.trainer, self.end_epoch if split is Strata.train else None)
        if split in self._handed_out:
            self._handed_out[split].loader.close()
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

    def _trained(self) -> SplitBatches | None:
        """Return the batches that are trained with, or were handed out last."""
        used = getattr(self.trainer, "train_dataloader", None) if self._stage == "fit" else None
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
        """Let the next loader of training continue where it stood."""
        if self._stage in (None, "fit"):  # A checkpoint may be loaded to validate or predict, too.
            self._positions = {split_named(split): one for split, one in state_dict.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_handed_out": {}}
