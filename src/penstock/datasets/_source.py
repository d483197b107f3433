"""`Source`: records that answer by number, the contract of every format and view."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, overload

import numpy as np

from penstock._words import counted
from penstock.datasets._about import AboutSource, ColumnHome
from penstock.datasets._numbers import record_number, record_numbers
from penstock.errors import OptionError

if TYPE_CHECKING:
    import os

    import pyarrow as pa

    from penstock.datasets.columns._bad import OnError
    from penstock.work import View

    Fields: TypeAlias = pa.Schema | Mapping[str, str | pa.DataType] | Sequence[str]
    """Which columns: a schema, names or dotted paths with types, or names alone."""

_STEP = 1000
"""Records that iteration fetches at a time."""
_CONTRACT = frozenset({"_records", "_columns", "_inferred", "_projected"})
"""Methods that take record numbers and return a row for each."""


@cache
def _loaded(name: str) -> Any:
    """Return what a dotted name in this package stands for; its module is imported on first use."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(f"penstock.datasets.{module}"), attribute)


def _as_many_rows(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of the contract that raises unless it returns one row a number.

    Every format, view and encoder reads through these methods: a missing or doubled row would
    put all rows behind it beside the number of another record.
    """

    @wraps(read)
    def checked(source: Source, ids: np.ndarray, *fields: Any) -> Any:
        rows = read(source, ids, *fields)
        # A batch without columns does not always know its number of rows.
        if len(rows) != len(ids) and getattr(rows, "num_columns", True):
            raise OptionError(
                f"{type(source).__name__} returned {counted(len(rows), 'row')} for {len(ids):,} "
                "record numbers. A dataset returns one row for each number, in the order asked."
            )
        return rows

    return checked


class Location(NamedTuple):
    """Where a record lies; for many records each part is an array."""

    file: Any
    """The path or URL; for many records an array of positions in `source.files`."""
    offset: Any
    """Its first byte in the uncompressed text; a row number in formats without record bytes."""
    bytes: Any
    """Its length; 0 in formats without record bytes."""


class Source(AboutSource, ABC):
    """Records by number: what `penstock.open` returns, and every view of it.

    Any number of threads read a source. It survives fork, forkserver and spawn at any time, and
    pickles small, without its index or data. Records keep their numbers while `fingerprint` is
    the same.

    A format implements the five abstract methods; the surface is the same for all. One whose
    records are bytes found through an index inherits `penstock.datasets.Dataset`.
    """

    _SURFACE: ClassVar[dict[str, str]] = {
        "__add__": "_concatenated.Concatenated",
        "__arrow_c_schema__": "_arrow.whole_schema",
        "__arrow_c_stream__": "_arrow.stream_of",
        "__repr__": "_display.text_of",
        "_projected": "_projection.projected",
        "_repr_html_": "_display.html_of",
        "arrow": "_arrow.arrow_of",
        "map": "_mapped.Mapped",
        "materialize": "columns._materialize.materialize",
        "read": "_arrow.read_plainly",
        "split": "views._split.split",
        "take": "views._views.Taken",
        "value_counts": "_vocabulary.value_counts",
        "vocabulary": "_vocabulary.words_of",
        "where": "where._where.where",
    }
    """Method of the surface → the function or class of `penstock.datasets` that does its work.

    This contract stands before all other modules of the room, which import it. Its methods that
    return views, columns or tables need those modules: this table is the only place where the
    contract reaches forward, and a module is imported when its method is first called. A kind of
    source whose views are of another class extends the table, as `TokenSource` does.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _CONTRACT & vars(cls).keys():
            setattr(cls, name, _as_many_rows(vars(cls)[name]))

    def _later(self, method: str) -> Any:
        """Return what does the work of a method of the surface; see `_SURFACE`."""
        return _loaded(self._SURFACE[method])

    @abstractmethod
    def __len__(self) -> int: ...

    @classmethod
    def _cache_name(cls) -> str:
        """Return the name of this class in keys of the cache.

        A class of Penstock keeps its name of 0.1.0 in `_NAME_IN_CACHE`, so that existing entries
        are found; a newer one sets its own name there. A subclass without one may read records in
        another way: its columns lie in the cache directory, not beside the index.
        """
        named: str | None = vars(cls).get("_NAME_IN_CACHE")
        return named or f"{cls.__module__}.{cls.__qualname__}"

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes with records and their numbers, and when records are appended."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema, as far as it is known without reading everything.

        A bad record is no reason to raise: reading that record raises.
        """

    @abstractmethod
    def _records(self, ids: np.ndarray) -> list[Any]:
        """Return the records of valid numbers (int64), in the order asked.

        A bad record raises `MalformedLineError` whose text names number, file and offset.
        """

    @abstractmethod
    def _columns(self, ids: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
        """Return just these top-level columns, of exactly these types, in the order asked.

        A missing value is null; a value that does not fit raises an error that names its record.
        """

    @abstractmethod
    def _inferred(self, ids: np.ndarray) -> pa.RecordBatch:
        """Return all columns of these records, with types as wide as these records need."""

    def was(self, fingerprint: str, length: int) -> bool:
        """Whether this source has, or had, that fingerprint with `length` records.

        Appended data changes the fingerprint but not the records before it.
        """
        return (length, fingerprint) in self._past(length, length)

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        """Yield each past length from `least` to `most`, with its fingerprint.

        Here only the present one: formats that know what was appended yield more. A length may
        come twice.
        """
        if least <= len(self) <= most:
            yield len(self), self.fingerprint

    def _has_finished(self, least: int, most: int) -> bool:
        """Whether a record was completed since there were from `least` to `most` records.

        Its file ended in the middle of it. Its number and the fingerprint stay, its value may not.
        Only where other records came with its rest: else nothing tells before from after.
        """
        del least, most
        return False

    def _about(self) -> str:
        """Return what `repr` adds about rows, as the number of tokens; empty for records."""
        return ""

    @property
    def files(self) -> list[str]:
        """The files that the records lie in; empty for records in memory."""
        return []

    @property
    def field_names(self) -> frozenset[str]:
        """The names of the top-level fields of `schema`."""
        return frozenset(self.schema.names)

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

        A block (see `blocks`) of a remote file is fetched with its first record, once for all
        processes of this host, and kept on its disk: see `cache_dir` and `cache_limit` in
        `penstock.storage.StorageOptions`. Large compressed blocks of local files are kept the same
        way, because a process cannot hold enough of them. Other local files, and files that can
        only be streamed, are read as before. It pays for readers that use all records of a block.
        """
        return self

    def _over(self, change: Callable[[Source], Source]) -> Source:
        """Return the same records over `change(origin)` in place of each origin.

        Origins of a view are the sources that its records lie in; any other source is its own.
        """
        return change(self)

    @property
    def _bare(self) -> Source:
        """The same records without materialised columns."""
        return self

    @property
    def _has_columns(self) -> bool:
        """Whether some fields are gathered from materialised columns."""
        return False

    def materialize(
        self,
        fields: Fields,
        path: str | os.PathLike[str] | None = None,
        progress: bool | View | None = True,  # noqa: FBT001, FBT002 (as the surface has it)
        *,
        on_error: OnError = "raise",
        workers: int | None = None,
    ) -> Source:
        """Return the same records with these fields decoded once and kept as columns on disk.

        Reading the fields is then a gather; everything else stays the same. Existing columns are
        used; only new or changed records are decoded.

        Args:
            fields: The fields of `read`. Types save one more pass over all records.
            path: The folder of the columns, if another disk is faster; a remote one is published to
                for all hosts. By default beside the index, or in the cache directory. A loader
                finds columns elsewhere only through the source that is returned.
            progress: Whether a terminal shows a bar. An object with `add(count)` counts records.
            on_error: What a value that does not fit its type does: `"raise"` stops, `"null"`
                stores null and counts it, `"mask"` raises only when the record is read.
            workers: Processes that decode, of about 100 MB each. By default one for each
                processor, and none for work of less than a second.
        """
        work = self._later("materialize")
        view: Source = work(self, fields, path, progress, on_error=on_error, workers=workers)
        return view

    def location(self, which: Any) -> Location:
        """Return where a record lies, or each of an array of them."""
        if np.ndim(which):
            return self._places(self._numbers(which))
        file, offset, size = self._places(np.array([self._number(which)], np.int64))
        return Location(self.files[int(file[0])], int(offset[0]), int(size[0]))

    def _places(self, ids: np.ndarray) -> Location:
        """Return where each of some records lies."""
        raise OptionError(f"{type(self).__name__} has records in memory, which lie in no file.")

    def raw(self, which: int) -> bytes:
        """Return the bytes of a record as they are stored, in formats that have them."""
        raise OptionError(f"a record of {type(self).__name__} has no bytes of its own.")

    def read(self, ids: Any, fields: Fields | None = None) -> Any:
        """Return the records of `ids` in the order asked: dicts, or with `fields` columns."""
        numbers = self._numbers(ids)
        if fields is None:
            return self._records(numbers)
        return self._later("read")(self, self._projected(numbers, fields), fields)

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
        return record_number(which, len(self))

    def _numbers(self, ids: Any) -> np.ndarray:
        return record_numbers(ids, len(self))

    def arrow(self, ids: Any = None, fields: Fields | None = None) -> pa.Table | pa.RecordBatch:
        """Return a batch of the records of `ids`, or without them a table of all records."""
        found: pa.Table | pa.RecordBatch = self._later("arrow")(self, ids, fields)
        return found

    def _projected(self, ids: np.ndarray, fields: Fields) -> pa.RecordBatch:
        batch: pa.RecordBatch = self._later("_projected")(self, ids, fields)
        return batch

    def __arrow_c_schema__(self) -> object:
        return self._later("__arrow_c_schema__")(self).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand all records to polars, pandas, pyarrow or duckdb, batch by batch."""
        return self._later("__arrow_c_stream__")(self).__arrow_c_stream__(requested_schema)

    def split(self, *, by: str | None = None, seed: int = 0, **shares: float) -> tuple[Source, ...]:
        """Return disjoint views that cover all records, one a share, in the order named.

        A hash of the field `by`, or of the record's number, decides the part of a record. Its part
        stays the same when data is appended, records of one key stay together, and so do all
        records without the field.
        """
        parts: tuple[Source, ...] = self._later("split")(self, by, seed, shares)
        return parts

    def where(self, expression: Any) -> Source:
        """Return a view of the records for which an expression holds.

        `expression` is a comparison as text (`"age >= 18 and country in ('de', 'fr')"`), a
        pyarrow compute expression over the fields, or a function of a record. It is evaluated
        once; a function costs Python for every record, and its numbers are not kept on disk.
        """
        view: Source = self._later("where")(self, expression)
        return view

    def map(self, function: Callable[[Any], Any]) -> Source:
        """Return a view in which each record is what `function` makes of it, when it is asked for.

        It returns a dict, whose fields can be encoded, or anything else. It runs where batches are
        made, and has to pickle for worker processes. A run resumes although its code was changed:
        the fingerprint has the function's name.
        """
        view: Source = self._later("map")(self, function)
        return view

    def vocabulary(self, field: str) -> list[Any]:
        """Return the values of a `category`, in the order of their codes: those of all views."""
        return list(self._later("vocabulary")(self, field))

    def value_counts(self, field: str) -> dict[Any, int]:
        """Return how many of these records hold each value of `vocabulary(field)`."""
        return dict(self._later("value_counts")(self, field))

    def take(self, ids: Any) -> Source:
        """Return a view of the records of these numbers, in this order."""
        view: Source = self._later("take")(self, self._numbers(ids))
        return view

    def __add__(self, other: object) -> Source:
        """Return a view of the records of both, one after the other."""
        if not isinstance(other, Source):
            return NotImplemented
        view: Source = self._later("__add__")([self, other])
        return view

    def __repr__(self) -> str:
        return str(self._later("__repr__")(self))

    def _repr_html_(self) -> str:
        return str(self._later("_repr_html_")(self))
