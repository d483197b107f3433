"""The records of a stream that match a condition."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from penstock.datasets import ListSource, TextCondition, read_fields
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cli._selection import Record

_MOST = 1024


class StreamCondition:
    """Decides as `source.where` does, some records at a time."""

    def __init__(self, text: str) -> None:
        self._condition = TextCondition(text)
        self._names = list(self._condition.names(ListSource([{}])))
        self._unseen = dict.fromkeys(self._names)

    def among(self, records: list[Record]) -> list[Record]:
        """Return the records for which the condition holds."""
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

    def filter(self, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the records that match."""
        step = 8  # The first matches need not wait for many records.
        while some := list(islice(records, step)):
            yield from self.among(some)
            step = min(2 * step, _MOST)

    def refuse_unseen(self) -> None:
        """Raise where no record had a field: it is misspelt, nearly always."""
        for name in self._unseen:
            raise OptionError(f"--where: no record has a field {name!r}.")
