"""MdsSamples of MDS folders, as MosaicML Streaming writes them, by number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import pyarrow as pa

from penstock.datasets._foreign_file import Reopened
from penstock.datasets.mds._index import read_mds_index
from penstock.datasets.mds._shard import MdsSamples
from penstock.datasets.mds._values import BadCell, Cells
from penstock.decode import empty_batch, fit_batch, inferred_batch, typed_batch
from penstock.errors import CorruptFileError, SchemaMismatchError
from penstock.storage import StorageOptions, locate

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from penstock.datasets._source import Location

_SAMPLED = 1000
"""Records that decide the types of columns whose encoding has no type."""
_SIZE_BYTES = 4


class MdsRows(Reopened[MdsSamples]):
    """The samples of an MDS folder (MosaicML Streaming, format 2), local or remote, read only.

    Values are what the writer was given: numbers, texts, bytes, JSON, NumPy arrays; images come as
    their bytes, and pickles are refused. Columns have the types of the encodings; an array of one
    axis is a list. Plain shards are mapped, or read by ranges where they are remote; compressed
    ones are decompressed whole, and the last ones (256 MiB) are kept: `blocks` are the shards. The
    fingerprint changes with what `index.json` says, and with the hashes, ends or ETags of shards.

    >>> import json
    >>> from pathlib import Path
    >>> from struct import pack
    >>> columns = {"column_names": ["a", "b"], "column_encodings": ["str", "uint8"]}
    >>> file = {"basename": "shard.00000.mds", "bytes": 20}
    >>> shard = {**columns, "column_sizes": [None, 1], "raw_data": file, "samples": 1}
    >>> text = pack("<3I", 1, 12, 20) + pack("<I3sB", 3, b"one", 7)
    >>> _ = Path("shard.00000.mds").write_bytes(text)
    >>> _ = Path("index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    >>> MdsRows(".")[0]
    {'a': 'one', 'b': 7}
    """

    _NAME_IN_CACHE = "penstock.datasets._mds.MdsRows"

    def __init__(
        self, folder: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self._options = StorageOptions(storage_options)
        store, name = locate(folder, self._options)
        self._path = store.path(name)
        self._opened()

    def _open(self) -> MdsSamples:
        index = read_mds_index(self._path, self._options)
        return MdsSamples(index, self._options, by_blocks=self._is_by_blocks)

    def by_blocks(self) -> Self:
        """Return the same samples; remote or compressed shards are brought once for all of a host.

        Whole shards are kept on disk, decompressed; every process maps them.
        """
        index = self._opened().index
        if self._is_by_blocks or all(one.is_mappable for one in index.shards):
            return self
        return self._by_blocks(MdsSamples(index, self._options, by_blocks=True))

    def __len__(self) -> int:
        return int(self._opened().starts[-1])

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        samples = self._opened()
        ends = samples.starts
        for shards in np.flatnonzero((least <= ends) & (ends <= most))[::-1].tolist():
            yield int(ends[shards]), samples.index.fingerprint_of(shards)

    @property
    def schema_is_complete(self) -> bool:
        """Whether all types are known without reading samples."""
        return all(encoding.is_typed for encoding in self._opened().encodings.values())

    @cached_property
    def schema(self) -> pa.Schema:
        """All columns; the first samples decide types that encodings do not have."""
        samples = self._opened()
        first = 0 if self.schema_is_complete or not len(self) else int(samples.starts[1])
        return self._inferred(np.arange(min(first, _SAMPLED), dtype=np.int64)).schema

    @property
    def files(self) -> list[str]:
        """The shards with samples, in the order of the numbers."""
        return [shard.path for shard in self._opened().index.shards]

    @property
    def blocks(self) -> NDArray[np.int64]:
        """The first sample of each shard, and the number of all samples."""
        return self._opened().starts.copy()

    def _places(self, ids: NDArray[np.int64]) -> Location:
        return self._opened().places(ids)

    def raw(self, which: int) -> bytes:
        """Return a sample's own bytes: the sizes of its columns, and their values."""
        return self._opened().read(np.array([self._number(which)], np.int64))[0]

    def _cells(self, ids: NDArray[np.int64]) -> dict[str, Cells]:
        """Return the bytes of each column of some samples."""
        samples = self._opened()
        encodings = samples.encodings
        try:
            cells = cut(samples.read(ids), [one.size for one in encodings.values()])
        except BadCell as bad:
            self._fail(int(ids[bad.row]), bad, "")
        return dict(zip(encodings, cells, strict=True))

    def _values(self, ids: NDArray[np.int64], name: str, cells: Cells) -> list[Any]:
        try:
            return self._opened().encodings[name].values(cells)
        except BadCell as bad:
            self._fail(int(ids[bad.row]), bad, name)

    def _array(self, ids: NDArray[np.int64], name: str, cells: Cells) -> pa.Array:
        encoding = self._opened().encodings[name]
        if encoding.is_parsed:
            rows = [{name: value} for value in self._values(ids, name, cells)]
            return inferred_batch(rows).column(0) if rows else pa.nulls(0)
        try:
            return encoding.array(cells)
        except BadCell as bad:
            self._fail(int(ids[bad.row]), bad, name)

    def _fail(self, number: int, bad: BadCell, column: str) -> NoReturn:
        file, offset, size = self.location(number)
        what = f"column {column!r}" if column else "it"
        place = f"record {number:,} ({file}, {size:,} bytes at byte {offset:,})"
        if bad.is_damage:
            message = f"{place}: {what} cannot be read: {bad.why}. Copy the shard again."
            raise CorruptFileError(message, path=file, offset=offset, record=number) from None
        raise SchemaMismatchError(
            f"{place}: {what} has {bad.why}, which no Arrow column holds together. Read these "
            "records without fields, or leave the column out.",
            field=column,
            record=number,
        ) from None

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        cells = self._cells(ids)
        columns = [self._values(ids, name, own) for name, own in cells.items()]
        if not columns:
            return [{} for _ in ids]
        return [dict(zip(cells, values, strict=True)) for values in zip(*columns, strict=True)]

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        cells, encodings = self._cells(ids), self._opened().encodings
        arrays = {}
        for field in schema:
            name = field.name
            if name not in cells:
                continue
            if encodings[name].is_parsed:
                rows = [{name: value} for value in self._values(ids, name, cells[name])]
                arrays[name] = typed_batch(rows, pa.schema([field]), ids).column(0)
            else:
                arrays[name] = self._array(ids, name, cells[name])
        return fit_batch(_batch(arrays, len(ids)), schema, ids)

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        arrays = {name: self._array(ids, name, own) for name, own in self._cells(ids).items()}
        return _batch(arrays, len(ids))

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("schema", None)
        return state


def cut(texts: Sequence[bytes], sizes: Sequence[int | None]) -> list[Cells]:
    r"""Return where the columns of samples lie; `sizes` are those of columns that have one.

    A sample is the sizes (uint32) of its other columns, then the values of all of them.

    >>> [cells.parts() for cells in cut([b"\2\0\0\0abxyz", b"\0\0\0\0uvw"], [None, 3])]
    [[b'ab', b''], [b'xyz', b'uvw']]
    """
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    begins = np.cumsum(lengths) - lengths
    joined = b"".join(texts)
    head = _SIZE_BYTES * sum(size is None for size in sizes)
    if (lengths < head).any():
        row = int((lengths < head).argmax())
        raise BadCell(row, f"its {lengths[row]:,} bytes are too few for {len(sizes)} columns")
    heads = np.frombuffer(joined, np.uint8)[begins[:, None] + np.arange(head)].view("<u4")
    stated = iter(heads.astype(np.int64).T)
    cells, at = [], begins + head
    for size in sizes:
        end = at + (next(stated) if size is None else size)
        cells.append(Cells(joined, at, end))
        at = end
    if (wrong := at != begins + lengths).any():
        row = int(wrong.argmax())
        raise BadCell(row, f"its columns take {at[row] - begins[row]:,} of {lengths[row]:,} bytes")
    return cells


def _batch(arrays: Mapping[str, pa.Array], rows: int) -> pa.RecordBatch:
    if not arrays:
        return empty_batch(pa.schema([]), rows)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
