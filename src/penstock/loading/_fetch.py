"""A task becomes what a batch is made of, wherever that is done."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from penstock.datasets import known_bad, knows_bad, missing_fields
from penstock.decode import bad_rows
from penstock.errors import MalformedLineError, SchemaMismatchError
from penstock.loading._order_choice import lies_remote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from penstock.batch import BatchPosition
    from penstock.datasets import Missing, Source
    from penstock.loading._recipes import Recipe
    from penstock.loading._steps import Task

_log = logging.getLogger("penstock.loading")

OnError: TypeAlias = Literal["raise", "mask"]

OF_A_RECORD = (MalformedLineError, SchemaMismatchError)
"""What is wrong with single records; everything else is wrong with the whole batch."""
_SHOWN = 5
_LOOKED_AT, _EACH_OF = 32, 8
"""Records that stand for all that are read together, and for how many each of them stands."""


class Bad(NamedTuple):
    """A record that turned out to be bad."""

    row: int
    id: int
    why: str


class Gathered(NamedTuple):
    """Records that were read and decoded, and are not yet a batch."""

    read: Any
    bad: list[Bad]
    seconds: float


class Fetched(NamedTuple):
    """What the user's process makes a batch of."""

    made: Any
    bad: list[Bad]
    gathering: float
    """Seconds of reading and decoding."""
    encoding: float


class Fetch:
    """Reads and makes batches; small, picklable, used by any number of threads."""

    def __init__(self, source: Source, recipe: Recipe, on_error: OnError) -> None:
        self.source = source
        self.recipe = recipe
        self._on_error = on_error
        self._has_looked = not lies_remote(source)  # Those were looked at before.
        self._knows_bad: bool | None = None
        """Whether columns know bad records; found out by who reads them."""

    def __call__(self, task: Task) -> Fetched:
        """Return what the batch of a task is made of."""
        return self.finish(task, self.gather(task))

    def gather(self, task: Task) -> Gathered:
        """Read and decode the records of a task."""
        began = time.perf_counter()
        bad: list[Bad] = []
        try:
            if self._on_error == "mask" and self._known_bad(task.where.ids).any():
                # To read them all would only say that some of them are bad.
                bad = self._bad_rows(task)
            read = self._read_good(task, bad) if bad else self._read(task.where.ids, task.unread)
        except OF_A_RECORD as why:
            if self._on_error == "raise":
                raise self._told(why, task) from None
            bad = self._bad_rows(task)
            read = self._read_good(task, bad)
        except StopIteration as why:
            raise self._no_end(why, task) from why
        except Exception as why:
            why.add_note(named_batch(task, self.source))
            raise
        self._look_once(read)
        return Gathered(read, bad, time.perf_counter() - began)

    def gather_together(self, task: Task) -> Gathered | None:
        """Read the records of several steps at once; None where each is to be read by itself.

        Whatever is wrong with a record is told by its own batch, when its turn comes.
        """
        if task.unread is not None:
            return None
        began = time.perf_counter()
        try:
            if self.recipe.schema is not None and self._known_bad(task.where.ids).any():
                return None
            read = self.recipe.read(self.source, task.where.ids)
        except Exception as why:  # noqa: BLE001 (raised again by the batch that it belongs to)
            _log.debug("%d batches are read one by one: %r", task.steps, why)
            return None
        self._look_once(read)
        return Gathered(read, [], time.perf_counter() - began)

    def size_about(self, task: Task) -> int:
        """Return how many bytes the records of a task take, judged by some of them."""
        ids = task.where.ids
        some = ids[:: max(_EACH_OF, len(ids) // _LOOKED_AT)]
        if self._known_bad(some).any():
            return 0
        try:
            read = self.recipe.read(self.source, some)
        except Exception as why:  # noqa: BLE001 (likewise)
            _log.debug("the size of %d batches is not known: %r", task.steps, why)
            return 0
        # What is made of them takes about as much again.
        times = 2 if self.recipe.is_cut_last else 1
        return times * self.recipe.size(read) * len(ids) // len(some)

    def make_together(self, task: Task, gathered: Gathered) -> Fetched | None:
        """Make of the records of several steps what is handed over; None where each is by itself.

        What is wrong with a record is told by its own batch, likewise.
        """
        began = time.perf_counter()
        try:
            made = self.recipe.make(gathered.read, task.where)
        except Exception as why:  # noqa: BLE001 (likewise)
            _log.debug("%d batches are made one by one: %r", task.steps, why)
            return None
        return Fetched(made, [], gathered.seconds, time.perf_counter() - began)

    def cut(self, task: Task, gathered: Gathered) -> list[Gathered]:
        """Return what was gathered together apart, a part for each step."""
        seconds = gathered.seconds / task.steps
        parts = self.recipe.cut(gathered.read, task.steps)
        return [Gathered(part, [], seconds) for part in parts]

    def finish(self, task: Task, gathered: Gathered) -> Fetched:
        """Make of gathered records what is handed to the user's process."""
        began = time.perf_counter()
        read, bad, gathering = gathered
        try:
            made = self.recipe.make(read, task.where)
        except StopIteration as why:
            raise self._no_end(why, task) from why
        except Exception as why:
            # A user's own callable decides for itself what is wrong with records.
            if not isinstance(why, OF_A_RECORD) or not self.recipe.is_pure:
                why.add_note(named_batch(task, self.source))
                raise
            if self._on_error == "raise":
                raise self._told(why, task) from None
            bad = self._bad_rows(task)
            made = self.recipe.make(self._read_good(task, bad), task.where)
        return Fetched(made, bad, gathering, time.perf_counter() - began)

    def _read(self, ids: NDArray[np.int64], unread: NDArray[np.bool_] | None) -> Any:  # noqa: ANN401
        if unread is None:
            return self.recipe.read(self.source, ids)
        return self._read_rows(ids, ~unread)

    def _look_once(self, read: Any) -> None:  # noqa: ANN401 (columns, or what else a recipe reads)
        """Warn of fields that are null throughout, if no record seems to have them."""
        if self._has_looked:
            return
        self._has_looked = True
        if getattr(self.recipe, "fields", None) is not None and len(read):
            columns = zip(read.schema.names, read.columns, strict=True)
            empty = [name for name, column in columns if column.null_count == len(column)]
            for missing in missing_fields(self.source, empty):
                warn_of(missing)

    def _read_good(self, task: Task, bad: list[Bad]) -> Any:  # noqa: ANN401
        good = np.ones(len(task.where.ids), bool)
        good[[one.row for one in bad]] = False
        if task.unread is not None:
            good &= ~task.unread
        return self._read_rows(task.where.ids, good)

    def _read_rows(self, ids: NDArray[np.int64], good: NDArray[np.bool_]) -> Any:  # noqa: ANN401
        """Read some rows, with stand-ins for the others."""
        read = self.recipe.read(self.source, ids[good])
        rows = np.where(good, np.cumsum(good) - 1, -1)
        return self.recipe.filled(read, rows, self.source)

    def _known_bad(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which records are known to be bad before they are read."""
        schema = self.recipe.schema
        if self._knows_bad is None:
            self._knows_bad = schema is not None and knows_bad(self.source, schema)
        if schema is None or not self._knows_bad:
            return np.zeros(0, np.bool_)
        return known_bad(self.source, ids, schema)

    def _bad_rows(self, task: Task) -> list[Bad]:
        return [bad for bad, _ in self._found_bad(task)]

    def _found_bad(self, task: Task) -> list[tuple[Bad, Exception]]:
        """Find the rows that cannot be read, or not made into what was asked for."""
        ids = task.where.ids
        rows = np.arange(len(ids)) if task.unread is None else np.flatnonzero(~task.unread)
        known = self._known_bad(ids[rows])
        good = rows[~known] if known.any() else rows

        def attempt(start: int, stop: int) -> None:
            self._try(task.where, good[start:stop])

        found = [(int(good[at]), error) for at, error in bad_rows(len(good), attempt, OF_A_RECORD)]
        # Rows that columns know to be bad are read one by one, for their errors.
        for row in rows[known].tolist() if known.any() else ():
            try:
                self._try(task.where, np.array([row]))
            except OF_A_RECORD as why:
                found.append((row, why))
        bad = []
        for row, error in sorted(found, key=itemgetter(0)):
            number = int(ids[row])
            bad.append((Bad(row, number, self._placed(number, str(error))), error))
        return bad

    def _placed(self, number: int, why: str) -> str:
        """Return what is wrong with a record, with its number here and its place, if not there."""
        place = ""
        if self.source.files:
            file, offset, _ = self.source.location(number)
            place = "" if file in why else f" ({file} at {offset:,})"
        if not place and f"record {number:,}" in why:
            return why
        return f"{why.rstrip('.')}. It is record {number:,} of this source{place}."

    def _try(self, where: BatchPosition, rows: NDArray[np.int64]) -> None:
        part = replace(where, positions=where.positions[rows], ids=where.ids[rows])
        read = self.recipe.read(self.source, part.ids)
        if self.recipe.is_pure:
            self.recipe.make(read, part)

    def _told(self, why: Exception, task: Task) -> Exception:
        """Return the error of a record with both remedies."""
        asked = getattr(self.recipe, "fields", None) or ()
        names: Iterable[str] = getattr(asked, "names", asked)
        missing = missing_fields(self.source, {getattr(why, "field", "")}.intersection(names))
        # A field that nobody has makes every record bad, and none of them is to blame.
        found = [] if missing else self._found_bad(task)
        if missing:
            why.args = (f"{str(why).rstrip('.')}. But {missing[0].text}", *why.args[1:])
        elif found:
            # The first of them is told, whichever the source came upon first.
            first, why = found[0]
            vars(why)["record"] = first.id
            numbers = sorted({one.id for one, _ in found})
            shown = ", ".join(map(str, numbers[:_SHOWN]))
            more = ", …" if len(numbers) > _SHOWN else ""
            them = "it" if len(numbers) == 1 else f"the {len(numbers)} bad records of this batch"
            text = (
                f"{first.why.rstrip('.')}. To leave {them} out: DataLoader(…, "
                f"skip=[{shown}{more}]). To keep a row with valid=False for such records: "
                "on_error='mask'."
            )
            why.args = (text, *why.args[1:])
        why.add_note(named_batch(task, self.source))
        return why

    def _no_end(self, why: StopIteration, task: Task) -> RuntimeError:
        """Return what does not end the loop over the batches, as that error would."""
        told = RuntimeError(f"{why!r} was raised where a batch is made, by encode or the source")
        told.add_note(named_batch(task, self.source))
        return told


def warn_of(missing: Missing) -> None:
    """Tell of a field that is misspelt, as far as anybody can see."""
    _log.warning("%s Where it is missing it is null", missing.text)


def named_batch(task: Task, source: Source) -> str:
    """Return which records a batch has, and where the first of them lies."""
    ids = task.where.ids
    shown = ", ".join(map(str, ids[:_SHOWN].tolist()))
    text = f"In the batch of step {task.step:,} of epoch {task.where.epoch}: "
    text += f"records {shown}{' …' if len(ids) > _SHOWN else ''} ({len(ids):,} in all)"
    if source.files and len(ids):
        file, offset, _ = source.location(int(ids[0]))
        text += f", the first in {file} at {offset:,}"
    return text + "."
