"""The one noun that goes in: records that answer by number."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

import numpy as np

from penstock.datasets._about import AboutSource, ColumnHome
from penstock.errors import OptionError, RecordIndexError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.datasets.columns._bad import OnError
    from penstock.work import View

    Fields: TypeAlias = pa.Schema | Mapping[str, str | pa.DataType] | Sequence[str]
    """Which columns: a schema, names or dotted paths with types, or names alone."""

_STEP = 1000
"""Records that iteration fetches at a time."""


_CONTRACT = frozenset({"_records", "_columns", "_inferred", "_projected"})
"""Methods that take record numbers and return a row for each."""


def _as_many_rows(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of the contract that raises where rows and numbers are not as many.

    Every format, view and encoder reads through these methods: a row that is missing or doubled
    would put all rows behind it beside the number of another record.
    """

    @wraps(read)
    def checked(source: Source, ids: np.ndarray, *fields: Any) -> Any:
        rows = read(source, ids, *fields)
        # Arrow does not always know how many rows there are of no columns.
        if len(rows) != len(ids) and getattr(rows, "num_columns", True):
            raise OptionError(
                f"{type(source).__name__} returned {len(rows):,} rows for {len(ids):,} record "
                "numbers. A dataset returns one row for each number, in the order asked."
            )
        return rows

    return checked


class Location(NamedTuple):
    """Where a record lies; arrays in place of numbers when many were asked for."""

    file: Any
    """The path or URL; for many records an array of positions in `source.files`."""
    offset: Any
    """Where it begins, in the uncompressed text; a row number where rows are no bytes."""
    bytes: Any
    """How long it is; 0 where rows are no bytes."""


class Source(AboutSource, ABC):
    """Records by number: what `penstock.open` returns, and every view of it.

    A source is read by any number of threads and survives fork, forkserver and spawn at any
    time; it pickles small, without its index or data. Records never change their number while
    `fingerprint` is the same.

    A format implements the five abstract methods; the surface is the same for all.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _CONTRACT & vars(cls).keys():
            setattr(cls, name, _as_many_rows(vars(cls)[name]))

    @abstractmethod
    def __len__(self) -> int: ...

    @classmethod
    def _cache_name(cls) -> str:
        """The name of this class in keys of the cache.

        A class of our own keeps the name that it had in 0.1.0, so that what lies in the cache is
        found; a subclass may read in another way and has a name of its own.
        """
        named: str | None = vars(cls).get("_NAME_IN_CACHE")
        return named or f"{cls.__module__}.{cls.__qualname__}"

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Changes whenever records or their numbers do; what is appended changes it, too."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema, as far as it is known without reading everything."""

    @abstractmethod
    def _records(self, ids: np.ndarray) -> list[Any]:
        """Return the records of valid numbers (int64), in the order asked."""

    @abstractmethod
    def _columns(self, ids: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
        """Return just these top-level columns, of exactly these types, in the order asked.

        What is missing is null; a value that does not fit raises an error that names its record.
        """

    @abstractmethod
    def _inferred(self, ids: np.ndarray) -> pa.RecordBatch:
        """Return all columns of these records, with types as wide as these records need."""

    def was(self, fingerprint: str, length: int) -> bool:
        """Whether this had that fingerprint when it had `length` records: now, or before.

        Data that was appended since changes the fingerprint but not the records before it.
        """
        return any(
            known == fingerprint and records == length
            for records, known in self._past(length, length)
        )

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        """Yield each length from `least` to `most` that this had, with its fingerprint then.

        Only the present, where it is not known what was appended; a length may come twice.
        """
        if least <= len(self) <= most:
            yield len(self), self.fingerprint

    def _about(self) -> str:
        """Return what a row is, where that needs saying: of tokens, how many."""
        return ""

    @property
    def files(self) -> list[str]:
        """The files that the records lie in; empty for records in memory."""
        return []

    @property
    def unit_borders(self) -> np.ndarray:
        """Record offsets (int64) at which reading may begin without reading what lies before."""
        return self.blocks

    def column_home(self) -> ColumnHome:
        """Return where columns of these records lie."""
        return ColumnHome([self._cache_name(), self.fingerprint])

    @property
    def blocks(self) -> np.ndarray:
        """Record offsets (int64) of the natural units of reading: first 0, last `len(self)`."""
        return np.array([0, len(self)][: 1 + bool(len(self))], np.int64)

    def by_blocks(self) -> Source:
        """Return the same records, under the same numbers, read by whole blocks.

        A block (see `blocks`) of a remote file is fetched when a record of it is asked for, once
        for all processes of this host, and kept on its disk: see `cache_dir` and `cache_limit` in
        `penstock.storage.StorageOptions`. So are large compressed blocks of local files, of which
        no process could keep enough. For those who read whole blocks sooner or later. What else is
        local, or can only be streamed, is read as ever.
        """
        return self

    def _over(self, change: Callable[[Source], Source]) -> Source:
        """Return the same records, out of what `change` makes of the source that they lie in.

        Of a view those are the sources that it is made of.
        """
        return change(self)

    def materialize(
        self,
        fields: Fields,
        path: str | os.PathLike[str] | None = None,
        progress: bool | View | None = True,  # noqa: FBT001, FBT002 (as the surface has it)
        *,
        on_error: OnError = "raise",
        workers: int | None = None,
    ) -> Source:
        """Return the same records with these fields decoded once, kept as columns on disk.

        Reading them is then a gather; everything else is as before. `fields` are those of `read`.
        Columns lie beside the index where that may be written to, else in the cache directory;
        `path` names another folder, also a remote one, where they are published for everybody.
        Those that are there are used; only what is new or changed is decoded.

        A value that does not fit its type is an error; with `on_error="null"` it is null and
        counted, with `"mask"` only reading it is an error. `workers` processes decode, by default
        one a processor and none where it takes no longer than a moment.
        """
        from penstock.datasets.columns._materialize import materialize  # noqa: PLC0415 (pyarrow)

        return materialize(self, fields, path, progress, on_error=on_error, workers=workers)

    @overload
    def location(self, which: int) -> Location: ...
    @overload
    def location(self, which: np.ndarray) -> Location: ...
    def location(self, which: Any) -> Location:
        """Return where a record lies, or each of an array of them."""
        raise OptionError(f"{type(self).__name__} has records in memory, which lie in no file.")

    def raw(self, which: int) -> bytes:
        """Return a record's own bytes, where it has some."""
        raise OptionError(f"a record of {type(self).__name__} has no bytes of its own.")

    def read(self, ids: Any, fields: Fields | None = None) -> Any:
        """Return the records of `ids` in the order asked: dicts, or with `fields` columns."""
        numbers = self._numbers(ids)
        if fields is None:
            return self._records(numbers)
        return self._projected(numbers, fields)

    @overload
    def __getitem__(self, which: int) -> Any: ...
    @overload
    def __getitem__(self, which: slice | Sequence[int] | np.ndarray) -> list[Any]: ...
    def __getitem__(self, which: Any) -> Any:
        """Return the record of a number, or a list for a slice, a list or an array of them."""
        if isinstance(which, slice):
            return self._records(np.arange(*which.indices(len(self)), dtype=np.int64))
        if isinstance(which, list | tuple | np.ndarray | range) and np.ndim(which):
            return self._records(self._numbers(which))
        return self._records(np.array([self._number(which)], np.int64))[0]

    def __getitems__(self, ids: Sequence[int]) -> list[Any]:
        """Return many records at once, as torch's own loader asks for a batch."""
        return self._records(self._numbers(ids))

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _STEP):
            yield from self._records(np.arange(start, min(start + _STEP, len(self))))

    def head(self, n: int = 5) -> list[Any]:
        """Return the first records."""
        return self[: max(0, operator.index(n))]

    def _number(self, which: Any) -> int:
        """Return a record number from 0 on, or raise for one that there is not."""
        try:
            if isinstance(which, bool):
                raise TypeError  # noqa: TRY301 (True is 1 to Python, and a mistake here)
            number = operator.index(which)
        except TypeError:
            raise TypeError(
                f"records are numbered: expected an integer, a slice or a list of integers, "
                f"not {type(which).__name__}"
            ) from None
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise RecordIndexError(f"there is no record {which}: there are {len(self):,}.")
        return number

    def _numbers(self, ids: Any) -> np.ndarray:
        """Return record numbers from 0 on as int64, or raise for one that there is not."""
        if isinstance(ids, slice):
            return np.arange(*ids.indices(len(self)), dtype=np.int64)
        # What a loader asks with; the checks below cost a fifth of gathering a batch.
        is_plain = type(ids) is np.ndarray and ids.dtype == np.int64 and ids.ndim == 1 and ids.size
        if is_plain and ids.min() >= 0 and ids.max() < len(self):
            found: np.ndarray = ids
            return found
        numbers = np.asarray(ids)
        if not numbers.size:
            return np.empty(0, np.int64)
        if numbers.dtype == bool or not np.issubdtype(numbers.dtype, np.integer):
            raise TypeError(f"records are numbered by integers, not {numbers.dtype}")
        if numbers.ndim != 1:
            shown = "one number" if not numbers.ndim else f"{numbers.ndim} axes"
            raise TypeError(f"expected a flat list of record numbers, not {shown}")
        if numbers.dtype == np.uint64 and numbers.max() > np.iinfo(np.int64).max:
            raise RecordIndexError(f"there is no record {numbers.max()}: there are {len(self):,}.")
        numbers = numbers.astype(np.int64, copy=False)
        if numbers.min() < 0:
            numbers = np.where(numbers < 0, numbers + len(self), numbers)
        bad = (numbers < 0) | (numbers >= len(self))
        if bad.any():
            raise RecordIndexError(
                f"there is no record {np.asarray(ids)[bad][0]}: there are {len(self):,}."
            )
        return numbers

    def arrow(self, ids: Any = None, fields: Fields | None = None) -> pa.Table | pa.RecordBatch:
        """Return a batch of the records of `ids`, or without them a table of all records."""
        from penstock.datasets._arrow import batch_of, table_of  # noqa: PLC0415 (pyarrow)

        return table_of(self, fields) if ids is None else batch_of(self, self._numbers(ids), fields)

    def _projected(self, ids: np.ndarray, fields: Fields) -> pa.RecordBatch:
        from penstock.datasets.fields._projection import projected  # noqa: PLC0415 (pyarrow)

        return projected(self, ids, fields)

    def __arrow_c_schema__(self) -> object:
        from penstock.datasets._arrow import whole_schema  # noqa: PLC0415 (pyarrow)

        return whole_schema(self).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand all records to polars, pandas, pyarrow or duckdb, batch by batch."""
        from penstock.datasets._arrow import stream_of  # noqa: PLC0415 (pyarrow)

        return stream_of(self).__arrow_c_stream__(requested_schema)

    def split(self, *, by: str | None = None, seed: int = 0, **shares: float) -> tuple[Source, ...]:
        """Return disjoint views that cover all records, one a share, in the order named.

        A record's part is decided by a hash of its field `by`, or of its number: it stays the
        same when data is appended, and records of one key stay together; so do all records
        that do not have the field.
        """
        from penstock.datasets._split import split  # noqa: PLC0415 (only when used)

        return split(self, by, seed, shares)

    def where(self, expression: Any) -> Source:
        """Return a view of the records for which an expression holds.

        A comparison as text (`"age >= 18 and country in ('de', 'fr')"`) or a pyarrow compute
        expression over the fields. It is evaluated once.
        """
        from penstock.datasets.where._where import where  # noqa: PLC0415 (only when used)

        return where(self, expression)

    def take(self, ids: Any) -> Source:
        """Return a view of the records of these numbers, in this order."""
        from penstock.datasets._views import Taken  # noqa: PLC0415 (only when used)

        return Taken(self, self._numbers(ids))

    def __add__(self, other: object) -> Source:
        """Return a view of the records of both, one after the other."""
        from penstock.datasets._views import Concatenated  # noqa: PLC0415 (only when used)

        return Concatenated([self, other]) if isinstance(other, Source) else NotImplemented

    def __repr__(self) -> str:
        from penstock.datasets._look import text_of  # noqa: PLC0415 (only when used)

        return text_of(self)

    def _repr_html_(self) -> str:
        from penstock.datasets._look import html_of  # noqa: PLC0415 (only when used)

        return html_of(self)
