"""Records that are in memory already, as sources."""

from __future__ import annotations

import hashlib
import operator
import os
import re
from collections.abc import Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from penstock.datasets._source import Location, Source
from penstock.datasets._table_source import TableSource
from penstock.decode import inferred_batch, typed_batch
from penstock.errors import RecordIndexError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from penstock.datasets.views._subsampled import MapStyle

    Places: TypeAlias = tuple[list[str], NDArray[np.int64], NDArray[np.int64]]
    """Texts that name units, and for each record its unit and its number there, int64[B]."""

_SAMPLE = 1000
"""Records that the schema of a list is taken from."""
_MAP_SAMPLE = 10
"""Records that the schema of a map-style dataset is taken from: each may be costly to make."""


def in_memory(what: object) -> Source | None:
    """Return a source over something in memory, or None when it is nothing of that kind.

    Tables and frames, lists of dicts, also empty ones, and map-style datasets; a source is
    returned as it is. Texts, paths and lists of them are for others to open.
    """
    if isinstance(what, Source):
        return what
    if isinstance(what, type | str | bytes | os.PathLike | Mapping):
        return None
    if hasattr(what, "__arrow_c_stream__") or hasattr(what, "__arrow_c_array__") or _is_frame(what):
        return TableSource(what)
    if isinstance(what, list | tuple):
        if any(isinstance(one, str | bytes | os.PathLike) for one in what):
            return None
        if all(isinstance(one, Mapping) for one in what):
            return ListSource(what)
    if hasattr(what, "__len__") and hasattr(what, "__getitem__"):
        return MapStyleSource(what)
    return None


def _is_frame(what: object) -> bool:
    # pandas before 2.2 hands over no Arrow stream.
    return type(what).__module__.partition(".")[0] == "pandas" and hasattr(what, "columns")


class ObjectSource(Source):
    """The base of sources of Python values, of which columns are made."""

    _sample: ClassVar[int]
    """How many of the first records decide the schema."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the first records; later ones may have more fields."""
        return self._inferred(np.arange(min(len(self), self._sample), dtype=np.int64)).schema

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        return typed_batch(self._mappings(ids), schema, ids)

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        return inferred_batch(self._mappings(ids), keeps_numbers=True)

    def _mappings(self, ids: NDArray[np.int64]) -> list[Mapping[str, Any]]:
        records = self._records(ids)
        for number, record in zip(ids, records, strict=True):
            if not isinstance(record, Mapping):
                raise SchemaMismatchError(
                    f"record {number:,} is a {type(record).__qualname__}, and only dicts have "
                    f"columns. Read it without fields, or let the dataset return dicts"
                )
        return records


class ListSource(ObjectSource):
    """A list of dicts, or of any mappings.

    Records come back as the very objects that were given, not copies: do not change them. They
    travel along when the source is pickled.

    >>> source = ListSource([{"a": 1}, {"a": None, "b": ["x"]}])
    >>> source[1], source.schema.names
    ({'a': None, 'b': ['x']}, ['a', 'b'])
    """

    _sample = _SAMPLE

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self._list = list(records)

    def __len__(self) -> int:
        return len(self._list)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all records, taken when first asked for; the order of fields does not count."""
        (known,) = self._prints(len(self), len(self))
        return known

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        yield from super()._past(least, most)
        # It may have been a shorter list of the same records.
        least, most = max(least, 0), min(most, len(self) - 1)
        if least <= most:
            yield from enumerate(self._prints(least, most), least)

    def _prints(self, least: int, most: int) -> Iterator[str]:
        """Yield the fingerprint of the first `least` records, and so on until that of `most`."""
        digest = hashlib.blake2b(digest_size=16)
        for number, record in enumerate(islice(self._list, most)):
            if number >= least:
                yield digest.hexdigest()
            digest.update(bytes_of(record))
        yield digest.hexdigest()

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        return [self._list[number] for number in ids.tolist()]


def _no_places() -> Places:
    return [], np.zeros(0, np.int64), np.zeros(0, np.int64)


class _Numbered(Source):
    """The base of a few records of many, under the numbers that they have there."""

    schema_is_complete = False
    ids: NDArray[np.int64]
    home: Source | None = None
    """The source whose records these were made of, where they have its numbers in their ids."""
    _units: Callable[[], Places]

    def _number(self, which: Any) -> int:
        return operator.index(which)

    def _numbers(self, ids: Any) -> NDArray[np.int64]:
        return np.asarray(ids, np.int64)

    def _rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which of these records have some numbers."""
        if ids is self.ids:
            return np.arange(len(ids))
        order = np.argsort(self.ids, kind="stable")
        at = np.searchsorted(self.ids, ids, sorter=order)
        is_known = at < len(order)
        is_known[is_known] = self.ids[order[at[is_known]]] == ids[is_known]
        if not is_known.all():
            raise RecordIndexError(f"record {ids[~is_known][0]:,} is not one of these.")
        rows: NDArray[np.int64] = order[at]
        return rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._records(self.ids))

    @property
    def files(self) -> list[str]:
        """The units that the records come from."""
        return self._units()[0]

    def _places(self, ids: NDArray[np.int64]) -> Location:
        _, units, numbers = self._units()
        rows = self._rows(ids)
        return Location(units[rows], numbers[rows], np.zeros(len(rows), np.int64))


class RecordsAt(_Numbered, ListSource):
    """A few records of many, under the numbers that they have there; a feed hands them out.

    >>> RecordsAt([{"a": 1}, {"a": 2}], np.array([700, 12])).read([12])
    [{'a': 2}]
    """

    def __init__(
        self,
        records: Iterable[Any],
        ids: NDArray[np.int64],
        places: Callable[[], Places] = _no_places,
    ) -> None:
        super().__init__(records)
        self.ids, self._units = ids, places

    @cached_property
    def schema(self) -> pa.Schema:
        return self._inferred(self.ids[: self._sample]).schema

    @cached_property
    def field_names(self) -> frozenset[str]:
        # The types of values, which a schema has as well, would cost more than reading them.
        return frozenset().union(*self._mappings(self.ids[: self._sample]))

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        return super()._records(self._rows(ids))


class RowsAt(_Numbered, TableSource):
    """A few rows of many, as `RecordsAt`; the batch has types of `plain_table`.

    >>> import pyarrow as pa
    >>> RowsAt(pa.record_batch({"a": [1, 2]}), np.array([700, 12])).read([12])
    [{'a': 2}]
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        ids: NDArray[np.int64],
        places: Callable[[], Places] = _no_places,
    ) -> None:
        self._table = pa.Table.from_batches([batch])
        self.ids, self._units = ids, places

    def _batch(self, ids: NDArray[np.int64], names: list[str]) -> pa.RecordBatch:
        return super()._batch(self._rows(ids), names)


class MapStyleSource(ObjectSource):
    """Any object with `__len__` and `__getitem__`, such as a torch dataset.

    Its records may be of any kind; columns can be asked for when they are dicts. The length is
    taken once. The fingerprint stands for the dataset's type and length only, because nothing
    else about it is known without reading everything: a resume does not notice other changes.
    Threads and processes use it as they find it, and it travels along when the source is pickled.
    """

    _sample = _MAP_SAMPLE
    no_columns = "a map-style dataset does not say when its records change"

    def __init__(self, dataset: MapStyle[Any]) -> None:
        self._dataset = dataset
        self._length = len(dataset)

    def __len__(self) -> int:
        return self._length

    @property
    def fingerprint(self) -> str:
        kind = type(self._dataset)
        text = f"{kind.__module__}.{kind.__qualname__} {self._length}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        numbers = ids.tolist()
        many = getattr(self._dataset, "__getitems__", None)
        if many is not None:
            return list(many(numbers))
        return [self._dataset[number] for number in numbers]


def bytes_of(record: Mapping[str, Any]) -> bytes:
    """Return bytes that stand for a record, the same in every process."""
    try:
        return _pack(record)
    except (OverflowError, TypeError, ValueError):
        # Integers beyond 64 bits, keys that are no strings, lone surrogates: rare.
        return _pack(_packable(record))


def _packable(value: object) -> object:
    """Return what MessagePack can hold, different for different values."""
    if isinstance(value, Mapping):
        pairs = [[_packable(name), _packable(inner)] for name, inner in value.items()]
        return sorted(pairs, key=_pack)
    if isinstance(value, list | tuple):
        return [_packable(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_packable(item) for item in value), key=_pack)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, int):
        return f"{value:x}"
    return value


def _stand_in(value: object) -> object:
    """Return what stands for a value of a type that MessagePack does not have."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        return [value.dtype.str, value.shape, value.tobytes()]
    if isinstance(value, Mapping):
        return dict(value)
    # Where an object lies is in its text by default, and differs between processes.
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


_pack = msgspec.msgpack.Encoder(enc_hook=_stand_in, order="deterministic").encode
