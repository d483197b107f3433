"""The records of a stream for which a condition holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.datasets import ListSource, TextCondition, read_fields
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from penstock.cli._selection import Batch, Numbered

_STEP = 1000


class Matches(NamedTuple):
    """Records that match, counted through; see `penstock.cli._selection.Stretch`."""

    first: int
    end: int
    records: list[Numbered]

    def take(self, numbers: Collection[int]) -> Iterator[tuple[int, Numbered]]:
        """Yield those that are asked for, each with its place among all matches."""
        for number, record in enumerate(self.records, self.first):
            if number in numbers:
                yield number, record


class Matching:
    """Decides as `source.where` does, some records at a time; a field has the type it has there."""

    def __init__(self, text: str) -> None:
        self._condition = TextCondition(text)
        self._names = list(self._condition.names(ListSource([{}])))
        self._unseen = dict.fromkeys(self._names)

    def among(self, records: list[Numbered]) -> list[Numbered]:
        """Return the records for which the condition holds."""
        if not records:
            return []
        values = [one.value if isinstance(one.value, dict) else {} for one in records]
        # Only what is asked about, because types are found on the way.
        keys = {
            name if any(name in value for value in values) else name.partition(".")[0]
            for name in self._names
        }
        rows = ListSource([{key: value.get(key) for key in keys} for value in values])
        found, start = [], 0
        for columns in read_fields(rows, self._names, len(rows)):
            for name, column in zip(self._names, columns.columns, strict=True):
                if column.null_count < len(column):
                    self._unseen.pop(name, None)
            found += [records[start + row] for row in self._condition.rows(columns).tolist()]
            start += columns.num_rows
        return found

    def batches(self, batches: Iterable[Batch]) -> Iterator[Matches]:
        """Yield what matches in a stream, counted through."""
        total = 0
        for batch in batches:
            everything = range(batch.first, batch.end)
            matches = self.among([record for _, record in batch.take(everything)])
            yield Matches(total, total + len(matches), matches)
            total += len(matches)

    def filter(self, records: Iterable[Numbered]) -> Iterator[Numbered]:
        """Yield those of some records that match."""
        some: list[Numbered] = []
        for record in records:
            some.append(record)
            if len(some) == _STEP:
                yield from self.among(some)
                some = []
        yield from self.among(some)

    def refuse_unseen(self) -> None:
        """Raise where no record at all had a field: it is misspelt, nearly always."""
        for name in self._unseen:
            raise OptionError(f"--where: no record has a field {name!r}.")
