"""The batches of a split as Lightning asks for them.

Lightning reads one batch ahead of a loader without a length, may save while a batch is trained, and
keeps only the state of rank 0. So every batch leaves a mark, and the data module says which batch
was trained last, on every rank.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import finalize

from penstock.decode import OF_A_RECORD
from penstock.errors import ChangedSourceError, OptionError
from penstock.lightning._lightning import CombinedLoader

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from penstock.loading import DataLoader
    from penstock.loading._run import Mark

PositionExtras: TypeAlias = Callable[..., Mapping[str, Any]]
"""Returns what the position of a run keeps besides the state of the loader, by epoch."""


class BatchEnd(NamedTuple):
    """Where a run stands behind a batch."""

    mark: Mark
    batches: int
    """Batches of the epoch up to here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFacts:
    """What a data module knows of the batches of a split before they are made."""

    steps: int | None = None
    """How many an epoch has; None where only reading shows it."""
    layout: object = None
    """What `steps` depends on. The rest of an epoch that began with another layout has an unknown
    number of batches."""
    is_cut: bool = False
    """Whether the loader makes more than `steps`, which are left out."""
    is_endless: bool = False
    """Whether an epoch of the loader has no end: one of Lightning then goes on where the one before
    ended."""
    are_alike: bool = True
    """Whether each epoch has the same batches."""
    extras: PositionExtras | None = None
    rows_of: Callable[[Any], tuple[list[Any], list[int]]] | None = None
    """Returns the file of each record, or None, and its row there, by the ids of batches."""
    remedy: Callable[[Exception], str] | None = None
    """Returns what to do about a bad record, in place of the loader's own words."""
    resume_remedy: str = ""
    """What to do where a position cannot be continued, likewise."""
    unread: Callable[[], int] | None = None
    """Returns how many records were tried where none can be read. A pass without a batch does not
    show that: a preprocessor may have dropped all records."""


class SplitBatches:
    """The batches of one split."""

    def __init__(self, loader: DataLoader, facts: SplitFacts) -> None:
        self.loader = loader
        """Makes the batches: `explain()` and `stats()` say how."""
        self.facts = facts
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
        self._epoch = -1
        """Lightning's epoch that is under way, if one is."""
        self._pass: Generator[Any] = (_ for _ in ())
        """Its batches. One that is not closed holds this object, and so its workers."""
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
        self._is_trained = self._is_trained_alone()
        if not self._is_trained:
            yield from self._begun()
            return
        epoch = self._trainer.current_epoch
        if self._epoch < 0 or (epoch != self._epoch and not self.facts.is_endless):
            self.close()
            if not self.facts.is_endless:
                # Lightning sets the epoch behind the first batch where it reads ahead.
                self.loader.set_epoch(epoch)
            self._epoch, self._pass = epoch, self._begun()
        yield from self._untrained()

    def _is_trained_alone(self) -> bool:
        return self._end_epoch is not None and only_loader(self._trainer) is self

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
        count, made = before if is_rest else 0, self._made
        self._at = BatchEnd(present, count)
        left = None
        if self.facts.is_cut and self.facts.steps is not None:
            left = max(0, self.facts.steps - count)
        for number, batch in enumerate(islice(self._advised(), left), count + 1):
            is_rest = False
            end = BatchEnd(self.loader.mark(), number)
            if self._is_trained:
                self._ahead.append((batch, end))
                self._made += 1
            else:
                self._at = end
            yield batch
        if self._is_trained and count == 0 and self._made == made:
            warnings.warn(
                "an epoch of training has no batch: a preprocessor or sample_rate= leaves out all "
                "records, or the dataset yields none, as an iterator does that is used up.",
                stacklevel=2,
            )
        if not self._is_trained and left is None:
            self._at = BatchEnd(self.loader.mark(), 0)  # Where the next epoch begins.
        if is_rest and self._is_trained and self._was_last():
            # Resumed behind the last batch of an epoch: Lightning goes on with the next one.
            self._resumed = (epoch, before)
            self._epoch = epoch + 1
            self.loader.set_epoch(epoch + 1)
            yield from self._begun()

    def _was_last(self) -> bool:
        """Whether Lightning knew that the batch before a resume was the last one of its epoch.

        It does not where limit_train_batches= stands for a length, and then ends the epoch by
        asking for one more batch.
        """
        return bool(self._trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)

    def _advised(self) -> Iterator[Any]:
        try:
            yield from self.loader
        except OF_A_RECORD as why:
            if self.facts.remedy is not None:
                why.advise(self.facts.remedy(why))
            raise
        seen, unread = self.loader.stats(), self.facts.unread
        if not seen["records"] and (tried := int(seen["bad_records"]) or (unread and unread())):
            raise RuntimeError(
                f"no record can be read, and {tried:,} were tried: see the warnings of the log."
            )

    def close(self) -> None:
        """End the pass that is under way."""
        self._pass.close()
        self._ahead.clear()
        self._epoch = -1

    def __len__(self) -> int:
        if self.facts.steps is None:
            raise TypeError("the number of batches is not known before they are made")
        return self.facts.steps

    # Lightning asks loaders for these. Where the data module knows which batch was trained last, it
    # keeps the state.

    def state_dict(self) -> dict[str, Any]:
        return {} if self._is_trained else self.position()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if state_dict:
            self.go_to(state_dict)
        elif self._trainer is None:
            warnings.warn(
                "the data module holds the position of this checkpoint: give the module itself to "
                "Trainer.fit. Its loader alone begins the epoch anew.",
                stacklevel=2,
            )

    @property
    def batch_sampler(self) -> object:
        """Where Lightning sets the epoch, except that of batches which the data module counts."""
        return None if self._is_trained_alone() else self.loader.batch_sampler

    _iterator = property(lambda _: None, lambda self, _: self.loader.close())
    """What Lightning sets to None where a run ends, as of torch's loader, whose workers it ends."""

    def without_workers(self) -> SplitBatches:
        """Return the same batches, for their position alone: the workers end with this object.

        A data module keeps them so. It may be part of a cycle of Lightning's, which ends late.
        """
        twin = object.__new__(SplitBatches)
        twin.__dict__ = self.__dict__
        finalize(self, self.loader.close)
        return twin

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        # The trainer and the pass that is under way stay: the copy begins an epoch.
        return SplitBatches, (self.loader, self.facts)

    def use(self) -> None:
        """Note that the next batch was trained."""
        if self._ahead:
            _, self._at = self._ahead.popleft()

    def refresh(self) -> None:
        """Let the position have what an encoder learnt from other ranks at the end of an epoch."""
        if not self.facts.is_endless and self._epoch == self._trainer.current_epoch:
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
        # A batch that is not counted was used when the next one is asked for, and loaders beside
        # this one may have taught its encoder since.
        state: Any = self.loader.state_dict(mark if self._is_trained else None)
        extras = {} if self.facts.extras is None else self.facts.extras(state["epoch"])
        return {**extras, "state": state, "batches": count, "layout": self.facts.layout}

    def go_to(self, position: Mapping[str, Any]) -> None:
        """Continue behind the last batch of a position."""
        try:
            self.loader.load_state_dict(position["state"])
        except (ChangedSourceError, OptionError) as why:
            if why.remedy and self.facts.resume_remedy:
                why.advise(self.facts.resume_remedy)
            raise
        self._resumed = (self.loader.mark().point.epoch, position["batches"])
        if position["layout"] != self.facts.layout:
            if self.facts.is_cut:
                raise OptionError(
                    "equalize='drop' continues an epoch with as many ranks and workers, and the "
                    "batch size, that it began with: bring them back, or use 'wrap'."
                )
            self.facts = replace(self.facts, steps=None)


def only_loader(trainer: Any) -> Any:
    """Return the loader that a trainer trains with; None before it has one, and of several."""
    loaders = getattr(trainer, "train_dataloader", None)
    if isinstance(loaders, SplitBatches | None):
        return loaders
    found = CombinedLoader(loaders).flattened
    return found[0] if len(found) == 1 else None
