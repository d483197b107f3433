"""Records of text files whose folders hold fields, as those of tables do: `year=2024/a.csv`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets.text._dataset import Dataset
from penstock.index import digest

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.index import SampleIndex


class InFolders(Dataset):
    """Records to which the folders of their files add fields.

    A format calls `_fill` for columns. What a record says itself counts; in a file of a table, the
    column of that name, whatever it holds.
    """

    _folders: tuple[dict[str, pa.DataType], list[dict[str, Any]]]
    """The fields of folders with their types, and the values for each file if there are any."""

    def _take_index(self, sample_index: SampleIndex, name: str | None) -> None:
        super()._take_index(sample_index, name)
        meta = sample_index.meta
        paths = [] if meta is None else [file.path for file in meta.files]
        self._folders = ({}, [])
        if any("=" in path for path in paths):
            from penstock.tables import partitions_of  # noqa: PLC0415 (pyarrow)

            schema, values = partitions_of(paths)
            self._folders = (dict(zip(schema.names, schema.types, strict=True)), values)

    @property
    def folder_fields(self) -> frozenset[str]:
        """The fields in the names of folders, which the profile of an index leaves out."""
        return frozenset(self._folders[0])

    @cached_property
    def fingerprint(self) -> str:
        return self._with_folders(self._sample_index.fingerprint, self._length)

    def _with_folders(self, fingerprint: str, length: int) -> str:
        """Return the fingerprint of the first records, with what their folders say."""
        (types, values), meta = self._folders, self._sample_index.meta
        if not types or meta is None:
            return fingerprint
        files = dict.fromkeys(run.file for run in meta.first(length).runs)
        return digest([fingerprint, [[*values[file].items()] for file in files]])

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        meta = self._sample_index.meta
        if not self._folders[0] or meta is None:
            yield from super()._past(least, most)
            return
        for length, _ in super()._past(least, most):
            known = meta.fingerprint_at(length)
            yield length, self._with_folders(known, length)
            yield length, known  # Of a release that left folders out.

    def _fill(self, batch: pa.RecordBatch, ids: NDArray[np.int64]) -> pa.RecordBatch:
        """Return columns with the values of folders where they are null and a folder has some."""
        (types, values), schema = self._folders, batch.schema
        names = [name for name in types if name in schema.names]
        if not names or not len(ids):
            return batch
        import pyarrow as pa  # noqa: PLC0415 (not for plain records)

        from penstock.decode import fit_batch  # noqa: PLC0415

        files = self._rows[ids, 0].astype(np.int64)
        if files.max() >= len(values):
            raise self._sample_index.damaged(f"it speaks of file {files.max()}")
        for name in names:
            at = schema.get_field_index(name)
            rows = np.flatnonzero(self._is_open(name, batch.column(at), files))
            of_files = pa.array([own.get(name) for own in values], types[name])
            stated = pa.record_batch({name: of_files.take(pa.array(files[rows]))})
            fitted = fit_batch(stated, pa.schema([schema.field(at)]), ids[rows])
            places = np.arange(len(ids))
            places[rows] = len(ids) + np.arange(len(rows))
            both = pa.concat_arrays([batch.column(at), fitted.column(0)])
            batch = batch.set_column(at, schema.field(at), both.take(pa.array(places)))
        return batch

    def _is_open(self, name: str, array: pa.Array, files: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the records that do not say themselves what the value of a field is."""
        is_null: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
        return is_null

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_folders"]
        return state
