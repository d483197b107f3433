"""The records of any source as texts: read by number, in ranges that processes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.decode import OF_A_RECORD, as_records, read_around_bad
from penstock.errors import OptionError, PenstockError
from penstock.index._formats import load
from penstock.index.checked._checks import Aside
from penstock.index.tokens._documents import BATCH_BYTES, DocumentMaker, TokenProbe
from penstock.index.tokens._texts import BadText, Document
from penstock.index.tokens._units import TextInput, TokensFound, TokenUnit
from penstock.work import shares

if TYPE_CHECKING:
    from penstock.index.tokens._documents import TokenWork, Write
    from penstock.storage import StorageOptions

_FIRST = 64
"""Records by which the size of all is estimated."""
_FILE_BYTES = 4 << 30
"""Text of a token file, about."""


def is_source(what: object) -> bool:
    """Whether an object is a `Source`, whose room comes after this one."""
    return isinstance(what, load("penstock.datasets:Source"))


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Records with consecutive numbers, which belong to one token file."""

    text: int
    start: int
    stop: int
    size: int
    """Bytes, about."""


class RecordWork(NamedTuple):
    """What units of records have in common."""

    work: TokenWork
    source: Any
    at_once: int
    """Records that are read together."""


@dataclass(frozen=True)
class RecordUnit(TokenUnit):
    """Ranges of records that are tokenised."""

    def __str__(self) -> str:
        return f"records {self.parts[0].start:,} to {self.parts[-1].stop - 1:,}"

    def _tokenised(
        self, part: RecordRange, add: Write, advance: Callable[[int], object]
    ) -> TokensFound:
        shared: RecordWork = self.shared.value
        maker = RecordDocuments(shared.work, shared.source, add)
        borders = [*range(part.start, part.stop, shared.at_once), part.stop]
        for start, stop in pairwise(borders):
            maker.add(start, stop)
            advance(part.size * (stop - start) // (part.stop - part.start))
        return TokensFound.of(maker)


class RecordDocuments(DocumentMaker):
    """Documents of the records of a source."""

    def __init__(self, work: TokenWork, source: Any, write: Write) -> None:  # noqa: ANN401 (see `is_source`)
        super().__init__(work, write)
        self._source, self._start = source, 0
        self._records: Sequence[Any] = ()

    def add(self, start: int, stop: int) -> None:
        """Add the records of some numbers."""
        self._start = start
        self._records = records_of(self._source, start, stop, self._work.text.fields)
        self._add([*range(len(self._records))])

    def _text(self, number: int) -> Document:
        record = self._records[number]
        if isinstance(record, PenstockError):
            fact = record.fact.removeprefix(f"record {self._start + number:,}: ")
            raise BadText(fact.rstrip("."))
        if not hasattr(record, "keys"):
            raise BadText(f"it is a {type(record).__qualname__}, not a dict")
        return self._work.text.of(record)

    def _place(self, number: int) -> tuple[int, str]:
        record = self._start + number
        with suppress(OptionError):  # Records in memory lie in no file.
            at = self._source.location(record)
            self.path = str(at.file)
            what = "byte" if at.bytes else "row"
            return record + 1, f"record {record:,} ({what} {at.offset:,} of {self.path})"
        return record + 1, f"record {record:,}"

    def _aside(self, number: int, reason: str) -> Aside:
        return Aside(self._start + number, 0, 0, f"{self._place(number)[1]}: {reason}")


def records_of(source: Any, start: int, stop: int, fields: Sequence[str] | None) -> list[Any]:  # noqa: ANN401 (see `is_source`)
    """Return records as mappings; only these fields where the source can leave out others.

    In place of a record that cannot be read there is its error.
    """
    names: list[str] = []
    if fields is not None and source.schema_is_complete:
        names = [name for name in source.schema.names if _is_needed(name, fields)]

    def read(low: int, high: int) -> list[Any]:
        ids = np.arange(start + low, start + high, dtype=np.int64)
        return as_records(source.read(ids, names), ids) if names else list(source.read(ids))

    records: list[Any] = []
    for found in read_around_bad(stop - start, read, OF_A_RECORD):
        records += found.value if found.why is None else [found.why]
    return records


def _is_needed(name: str, fields: Sequence[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for path in fields)


@dataclass(frozen=True)
class SourceRecords(TextInput):
    """The records of a source; see `TextInput`."""

    source: Any
    what: Any
    """What it was opened from; None where it was given as a source."""
    options: StorageOptions
    unit = RecordUnit

    @property
    def files(self) -> int:
        return len(self.source.files)

    @property
    def in_memory(self) -> bool:
        return not self.source.files

    @cached_property
    def _record_bytes(self) -> int:
        """Bytes of a record, about; the same for the same records."""
        some = records_of(self.source, 0, min(_FIRST, len(self.source)), None)
        return max(1, sum(len(str(record)) for record in some) // max(1, len(some)))

    @property
    def bytes(self) -> int:
        return len(self.source) * self._record_bytes

    @cached_property
    def _texts(self) -> list[tuple[int, int]]:
        """The records of each token file."""
        return self._cut(0, len(self.source), _FILE_BYTES) or [(0, 0)]

    def _cut(self, start: int, stop: int, most: int) -> list[tuple[int, int]]:
        """Cut records into ranges of about `most` bytes, between units of reading."""
        records = max(1, most // self._record_bytes)
        if self.in_memory:
            return [*pairwise([*range(start, stop, records), stop])]
        borders = self.source.unit_borders
        inside = borders[borders > start] - start
        ranges = shares(stop - start, inside, records)
        return [(start + low, start + high) for low, high in ranges]

    @property
    def names(self) -> list[str]:
        return [f"part-{number:05}" for number in range(len(self._texts))]

    def again(self) -> SourceRecords:
        if self.what is None:
            return self
        opens = load("penstock.datasets:open")
        return replace(self, source=opens(self.what, storage_options=self.options))

    def refuse_changed(self) -> None:
        """A source compares its files with its index whenever it reads them."""

    def key(self) -> object:
        if any(origin.no_columns for origin in load("penstock.datasets:origins_of")(self.source)):
            return None  # Their fingerprint does not change with the records.
        return ["source", self.source.fingerprint, len(self.source)]

    def probes(self) -> Iterator[TokenProbe]:
        count = min(_FIRST, len(self.source))
        if count:
            yield TokenProbe(
                lambda work, write: RecordDocuments(work, self.source, write).add(0, count),
                len(self.source) / count,
            )

    def shared(self, work: TokenWork) -> RecordWork:
        return RecordWork(work, self.source, max(1, BATCH_BYTES // self._record_bytes))

    def parts(self, unit_bytes: int) -> list[RecordRange]:
        return [
            RecordRange(number, start, stop, (stop - start) * self._record_bytes)
            for number, text in enumerate(self._texts)
            for start, stop in self._cut(*text, unit_bytes)
        ]

    def number_of(self, part: RecordRange) -> int:
        return part.text
