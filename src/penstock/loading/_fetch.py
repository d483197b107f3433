"""Requests become the parts of batches: read, decode, make, in whichever thread or process."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from penstock._words import warn_once
from penstock.datasets import (
    known_bad,
    knows_bad,
    may_be_missing,
    missing_fields,
    parsed,
    record_place,
)
from penstock.decode import OF_A_RECORD, bad_rows
from penstock.errors import CorruptFileError, OptionError
from penstock.loading._feed import Opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.batch import BatchPosition
    from penstock.datasets import Missing, Source
    from penstock.errors import PenstockError
    from penstock.loading._feed import Reader
    from penstock.loading._recipes import Recipe
    from penstock.loading._steps import Task

_log = logging.getLogger("penstock.loading")

Masked: TypeAlias = tuple[type[Exception], ...]
"""Errors of records that keep their row, with `valid` False; all others are raised."""

_SHOWN = 5
_LOOKED_AT, _EACH_OF = 32, 8
"""How many records stand for all that are read together, and for how many each stands at least."""


class Bad(NamedTuple):
    """A record that turned out to be bad."""

    row: int
    id: int
    why: str


class BadRow(NamedTuple):
    """A row of a task that is bad, and its error."""

    row: int
    error: PenstockError


class ReadRows(NamedTuple):
    """Records that were read and decoded, and are not yet a batch."""

    read: Any
    bad: list[Bad]
    seconds: float
    opened: Opened


class Fetched(NamedTuple):
    """What the user's process makes a batch of."""

    made: Any
    bad: list[Bad]
    gathering: float
    """Seconds of reading and decoding."""
    encoding: float
    task: Task | None = None
    """The task that a request became; None where the request was one."""


class Fetch:
    """Reads and makes batches; small, picklable, used by any number of threads."""

    def __init__(self, reader: Reader, recipe: Recipe, masked: Masked) -> None:
        self.reader = reader
        self.recipe = recipe
        self._masked = masked
        # An encoder with `loose_fields` takes a missing field for null, and warns by itself.
        is_loose = getattr(recipe, "loose", None) is not None
        self._has_looked = is_loose or (reader.is_numbered and not reader.is_remote)
        self._knows_bad: bool | None = None
        """Whether columns know bad records; found out by the thread or process that reads them."""

    def __call__(self, request: Any) -> Fetched:  # noqa: ANN401 (a feed's own)
        """Return what the batch of a request is made of."""
        return self.finished(request, self.gather(request))

    def finished(self, request: Any, rows: ReadRows) -> Fetched:  # noqa: ANN401
        """Return what `finish` makes of the rows of a request, with the task that it became."""
        task = rows.opened.task
        if not len(task.where.ids):
            return Fetched(None, [], rows.seconds, 0.0, task)
        fetched = self.finish(rows)
        return fetched if task is request else fetched._replace(task=task)

    def gather(self, request: Any) -> ReadRows:  # noqa: ANN401
        """Read and decode the records of a request."""
        began = time.perf_counter()
        try:
            opened = self.reader.opened(request)
        except Exception as why:  # noqa: BLE001 (raised again)
            _raise_named(why, self.reader.name(request))
        source, task = opened
        bad: list[Bad] = []
        if not len(task.where.ids):
            return ReadRows(None, bad, time.perf_counter() - began, opened)
        try:
            if self._masked and self._known_bad(source, task.where.ids).any():
                # To read them all would only say that some of them are bad.
                bad = self._rows_to_mask(opened)
            read = self._read(opened, bad)
        except Exception as why:  # noqa: BLE001 (raised again, or of a record)
            bad = self._rows_to_mask(opened, why)
            read = self._read(opened, bad)
        self._look_once(read, source)
        return ReadRows(read, bad, time.perf_counter() - began, opened)

    def gather_together(self, task: Task) -> ReadRows | None:
        """Read several steps at once; None where each is read, and raises, by itself."""
        if task.unread is not None:
            return None
        began = time.perf_counter()
        opened = self.reader.opened(task)
        source, ids = opened.source, task.where.ids
        try:
            if self.recipe.schema is not None and self._known_bad(source, ids).any():
                return None
            read = self.recipe.read(source, ids)
        except Exception as why:  # noqa: BLE001 (raised again by the batch that it belongs to)
            _log.debug("%d batches are read one by one: %r", task.steps, why)
            return None
        self._look_once(read, source)
        return ReadRows(read, [], time.perf_counter() - began, opened)

    def size_about(self, task: Task) -> int:
        """Return about how many bytes the records of a task take, judged by some of them."""
        source, ids = self.reader.opened(task).source, task.where.ids
        some = ids[:: max(_EACH_OF, len(ids) // _LOOKED_AT)]
        if self._known_bad(source, some).any():
            return 0
        try:
            read = self.recipe.read(source, some)
        except Exception as why:  # noqa: BLE001 (likewise)
            _log.debug("the size of %d batches is not known: %r", task.steps, why)
            return 0
        # The arrays made of them take about as much again.
        times = 2 if self.recipe.is_cut_last else 1
        return times * self.recipe.size(read) * len(ids) // len(some)

    def make_together(self, rows: ReadRows) -> Fetched | None:
        """Make several steps at once; None where each is made, and raises, by itself."""
        began = time.perf_counter()
        task = rows.opened.task
        try:
            made = self.recipe.make(rows.read, task.where)
        except Exception as why:  # noqa: BLE001 (likewise)
            _log.debug("%d batches are made one by one: %r", task.steps, why)
            return None
        return Fetched(made, [], rows.seconds, time.perf_counter() - began)

    def cut(self, rows: ReadRows) -> list[ReadRows]:
        source, task = rows.opened
        seconds = rows.seconds / task.steps
        parts = zip(self.recipe.cut(rows.read, task.borders), task.apart(), strict=True)
        return [ReadRows(part, [], seconds, Opened(source, own)) for part, own in parts]

    def finish(self, rows: ReadRows) -> Fetched:
        """Make of rows that were read what is handed to the user's process."""
        began = time.perf_counter()
        read, bad, gathering, opened = rows
        where = opened.task.where
        try:
            made = self.recipe.make(read, where)
        except Exception as why:  # noqa: BLE001 (raised again, or of a record)
            # A user's own callable decides for itself which records are bad.
            if not isinstance(why, OF_A_RECORD) or not self.recipe.is_pure:
                _raise_named(why, named_batch(opened.task, opened.source))
            bad = self._rows_to_mask(opened, why)
            made = self.recipe.make(self._read(opened, bad), where)
        return Fetched(made, bad, gathering, time.perf_counter() - began)

    def _read(self, opened: Opened, bad: Sequence[Bad] = ()) -> Any:  # noqa: ANN401
        """Read the rows of a task, with stand-ins for bad and unread ones."""
        source, task = opened
        ids, unread = task.where.ids, task.unread
        if unread is None and not bad:
            return self.recipe.read(source, ids)
        good = np.ones(len(ids), bool) if unread is None else ~unread
        good[[one.row for one in bad]] = False
        read = self.recipe.read(source, ids[good])
        rows = np.where(good, np.cumsum(good) - 1, -1)
        return self.recipe.filled(read, rows, source)

    def _look_once(self, read: Any, source: Source) -> None:  # noqa: ANN401 (what a recipe reads)
        """Refuse fields that are null throughout, if no record seems to have them."""
        if self._has_looked:
            return
        found: list[Missing] = []
        if getattr(self.recipe, "fields", None) is not None and len(read):
            columns = zip(read.schema.names, read.columns, strict=True)
            empty = [name for name, column in columns if column.null_count == len(column)]
            found = missing_fields(source, empty)
            # Each batch that is made meanwhile in another thread raises by itself, too.
            check_missing(found, self.recipe.types)
        is_first, self._has_looked = not self._has_looked, True
        if is_first:
            warn_of(found)

    def _known_bad(self, source: Source, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which records are known to be bad before they are read."""
        schema = self.recipe.schema
        if self._knows_bad is None:
            self._knows_bad = schema is not None and knows_bad(source, schema)
        if schema is None or not self._knows_bad:
            return np.zeros(len(ids), np.bool_)
        return known_bad(source, ids, schema)

    def _rows_to_mask(self, opened: Opened, why: Exception | None = None) -> list[Bad]:
        """Return the bad rows of a task, one of which failed; raise where they are not masked."""
        if why is not None and not isinstance(why, (*OF_A_RECORD, *self._masked)):
            _raise_named(why, named_batch(opened.task, opened.source))
        if isinstance(why, OF_A_RECORD) and not self._masked:
            raise self._explained(why, opened) from None
        bad = self._bad_rows(opened)
        for row in bad:
            if not isinstance(row.error, self._masked):
                raise self._explained(row.error, opened) from None
        ids = opened.task.where.ids
        return [
            Bad(row, int(ids[row]), _placed(opened.source, int(ids[row]), error))
            for row, error in bad
        ]

    def _bad_rows(self, opened: Opened) -> list[BadRow]:
        """Find the rows that cannot be read, or not made into what was asked for."""
        source, task = opened
        ids = task.where.ids
        rows = np.arange(len(ids)) if task.unread is None else np.flatnonzero(~task.unread)
        known = self._known_bad(source, ids[rows])
        good = rows[~known]

        found: list[BadRow] = []
        for own in _by_file(source, ids, good):

            def attempt(start: int, stop: int, own: NDArray[np.int64] = own) -> None:
                self._try(source, task.where, own[start:stop])

            try:
                bad = list(bad_rows(len(own), attempt, OF_A_RECORD))
            except CorruptFileError as why:  # Of all that is read together.
                bad = [(at, why) for at in range(len(own))]
            found += [BadRow(int(own[at]), error) for at, error in bad]
        # Rows that columns know to be bad are read one by one, for their errors.
        for row in rows[known].tolist():
            try:
                self._try(source, task.where, np.array([row]))
            except OF_A_RECORD as why:
                found.append(BadRow(row, why))
        return sorted(found, key=itemgetter(0))

    def _try(self, source: Source, where: BatchPosition, rows: NDArray[np.int64]) -> None:
        bins = None if where.bins is None else np.searchsorted(rows, where.bins)
        part = replace(where, positions=where.positions[rows], ids=where.ids[rows], bins=bins)
        read = self.recipe.read(source, part.ids)
        if self.recipe.is_pure:
            self.recipe.make(read, part)

    def _explained(self, why: PenstockError, opened: Opened) -> PenstockError:
        """Return the error of a record with both remedies."""
        source, task = opened
        asked = getattr(self.recipe, "fields", None) or ()
        names: Iterable[str] = getattr(asked, "names", asked)
        missing = missing_fields(source, {getattr(why, "field", "")}.intersection(names))
        # A field that no record has makes every record bad, and none of them is to blame.
        found = [] if missing else self._bad_rows(opened)
        found = [bad for bad in found if not isinstance(bad.error, self._masked)]
        if missing:
            why.fact = f"{str(why).rstrip('.')}."
            why.advise(f"But {missing[0].text}")
        elif found:
            # The first of them is named, whichever the source came upon first.
            row, why = found[0]
            first = int(task.where.ids[row])
            fact = _placed(source, first, why)
            vars(why).update(record=first, fact=f"{fact.rstrip('.')}.")
            numbers = sorted({int(task.where.ids[bad.row]) for bad in found})
            them = "it" if len(numbers) == 1 else f"the {len(numbers)} bad records of this batch"
            way = f"DataLoader(…, skip=[{listed(numbers)}])"
            if not self.reader.is_numbered:
                way = "let Stream.map(f) return [] for such records"
            why.advise(
                f"To leave {them} out: {way}. To keep a row with valid=False for such records: "
                "on_error='mask'."
            )
        why.add_note(named_batch(task, source))
        return why


def _by_file(
    source: Source, ids: NDArray[np.int64], rows: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Return the rows of each file."""
    if not source.files or not len(rows):
        return [rows]
    files = np.asarray(source.location(ids[rows]).file)
    return [rows[files == file] for file in np.unique(files)]


def _raise_named(why: Exception, note: str) -> NoReturn:
    """Raise an error with its batch; a StopIteration as another, for it would end the loop."""
    why.add_note(note)
    if isinstance(why, StopIteration):
        error = RuntimeError(f"{why!r} was raised where a batch is made, by encode or the source")
        error.__notes__ = why.__notes__
        raise error from why
    raise why


def _placed(source: Source, number: int, error: Exception) -> str:
    """Return the fault of a record with its number here and its place, if not there already."""
    why, where = str(error), ""
    if isinstance(error, CorruptFileError):
        return why  # It is not of this record alone.
    place = record_place(source, number, with_line=False)
    if place is not None and place.path not in why:
        where = f" ({record_place(source, number)})"
    if not where and f"record {number:,}" in why:
        return why
    return f"{why.rstrip('.')}. It is record {number:,} of this source{where}."


def check_missing(found: Iterable[Missing], types: Mapping[str, str]) -> None:
    """Raise for a field that no record seems to have, unless its type says that it may be missing.

    `types` are those given as texts. An Arrow type has no sign for it: a field of one is refused
    only if it is certain to be missing.
    """
    for missing in found:
        remedy, text = "Name one that is there, or leave it out.", types.get(missing.path)
        if text is not None and not may_be_missing(parsed(text)):
            allowed = f"{{{missing.path!r}: '{text}?'}}"
            remedy += f" If it may be missing in all records, say so: {allowed}"
            raise OptionError(missing.text, remedy=remedy)
        if text is None and missing.is_certain:
            raise OptionError(missing.text, remedy=remedy)


def warn_of(found: Iterable[Missing]) -> None:
    """Warn of fields that may be missing, and may be misspelt as well."""
    for missing in found:
        warn_once(_log, f"{missing.text} Where it is missing it is null")


def listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:_SHOWN])) + " …" * (len(numbers) > _SHOWN)


def named_batch(task: Task, source: Source) -> str:
    """Return which records a batch has, and where the first of them lies."""
    ids = task.where.ids
    text = f"In the batch of step {task.step:,} of epoch {task.where.epoch}: "
    text += f"records {listed(ids[: _SHOWN + 1].tolist())} ({len(ids):,} in all)"
    if source.files and len(ids):
        file, offset, _ = source.location(int(ids[0]))
        text += f", the first in {file} at {offset:,}"
    return text + "."
