"""The records of a stream that match a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.datasets import ListSource, TextCondition, read_fields
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from penstock.cli._selection import Numbered, NumberedText

_STEP = 1000


class Matches(NamedTuple):
    """Records that match, with numbers; see `penstock.cli._selection.Stretch`."""

    first: int
    end: int
    records: list[Numbered]

    def take(self, numbers: Collection[int]) -> Iterator[tuple[int, Numbered]]:
        """Yield the matches with these numbers, each with its number."""
        for number, record in enumerate(self.records, self.first):
            if number in numbers:
                yield number, record


class StreamCondition:
    """Decides as `source.where` does, some records at a time."""

    def __init__(self, text: str) -> None:
        self._condition = TextCondition(text)
        self._names = list(self._condition.names(ListSource([{}])))
        self._unseen = dict.fromkeys(self._names)

    def among(self, records: list[Numbered]) -> list[Numbered]:
        """Return the records for which the condition holds."""
        if not records:
            return []
        values = [one.value if isinstance(one.value, dict) else {} for one in records]
        # Types are inferred, so only the fields of the condition are looked at.
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

    def batches(self, batches: Iterable[NumberedText]) -> Iterator[Matches]:
        """Yield the matches of a stream, with numbers."""
        total = 0
        for batch in batches:
            everything = range(batch.first, batch.end)
            matches = self.among([record for _, record in batch.take(everything)])
            yield Matches(total, total + len(matches), matches)
            total += len(matches)

    def filter(self, records: Iterable[Numbered]) -> Iterator[Numbered]:
        """Yield the records that match."""
        some: list[Numbered] = []
        for record in records:
            some.append(record)
            if len(some) == _STEP:
                yield from self.among(some)
                some = []
        yield from self.among(some)

    def refuse_unseen(self) -> None:
        """Raise where no record had a field: it is misspelt, nearly always."""
        for name in self._unseen:
            raise OptionError(f"--where: no record has a field {name!r}.")
