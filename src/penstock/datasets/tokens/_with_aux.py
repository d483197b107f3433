"""Token samples with further arrays beside the tokens, found through an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets.text._dataset import Dataset
from penstock.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.index import SampleIndex


class TokensWithAuxDataset(Dataset):
    """Samples of several arrays of one length, such as tokens and a loss mask.

    `sample_schema.json` in the index has their names and types. A sample is a dict of arrays, and
    each array is a field: `ds.read(ids, {"tokens": "int64[1024]"})`, `DataLoader(ds, {…})`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.index import ArraySpec, IndexStore, SampleSchema
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.bin").write_bytes(bytes([7, 0, 8, 0, 1, 0]))
    >>> store = IndexStore(folder)
    >>> store.init_store()
    >>> arrays = [ArraySpec("tokens", "uint16", 0), ArraySpec("loss_mask", "uint8", 4)]
    >>> store.set_sample_schema(SampleSchema(2, arrays))
    >>> store.add_sample(str(folder / "a.bin"), 0, 6)
    >>> store.close()
    >>> TokensWithAuxDataset.create_from_index_on_filesystem(folder)[0]
    {'tokens': array([7, 8], dtype=uint16), 'loss_mask': array([1, 0], dtype=uint8)}
    """

    _NAME_IN_CACHE = "penstock.datasets.tokens.TokensWithAuxDataset"
    schema_is_complete = True

    def __init__(self, sample_index: SampleIndex, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(sample_index, name, **kwargs)
        if sample_index.sample_schema is None:
            raise OptionError(
                "the index has no sample_schema: its samples are tokens alone. Open it by "
                "TokensDataset or penstock.open()."
            )
        self._row = sample_index.sample_schema.row()

    @property
    def schema(self) -> pa.Schema:
        """The arrays as lists of a fixed length."""
        import pyarrow as pa  # noqa: PLC0415

        types = {name: self._row[name] for name in self._row.names or ()}
        return pa.schema(
            [(name, pa.list_(pa.from_numpy_dtype(t.base), t.shape[0])) for name, t in types.items()]
        )

    def _process_sample(self, sample_bytes: bytes) -> dict[str, NDArray[Any]]:
        (sample,) = self._samples(bytearray(sample_bytes))
        return sample

    def _records(self, ids: NDArray[np.int64]) -> list[dict[str, NDArray[Any]]]:
        return self._samples(self._bytes_in_one(ids))

    def _samples(self, data: bytearray) -> list[dict[str, NDArray[Any]]]:
        names = self._row.names or ()
        return [{name: row[name] for name in names} for row in np.frombuffer(data, self._row)]

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        from penstock.decode import fit_batch  # noqa: PLC0415 (pyarrow)

        names = [name for name in schema.names if name in (self._row.names or ())]
        return fit_batch(self._inferred(ids).select(names), schema, ids)

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        import pyarrow as pa  # noqa: PLC0415

        rows, schema = np.frombuffer(self._bytes_in_one(ids), self._row), self.schema
        arrays = [
            pa.FixedSizeListArray.from_arrays(
                pa.array(np.ascontiguousarray(rows[field.name]).ravel()), type=field.type
            )
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _bytes_in_one(self, ids: NDArray[np.int64]) -> bytearray:
        """Return the bytes of samples one after the other, which the caller may write to."""
        sizes = self._sample_index.rows_of(ids)[:, 2]
        if (wrong := sizes != self._row.itemsize).any():
            at = int(wrong.argmax())
            raise self._sample_index.damaged(
                f"sample {ids[at]:,} has {sizes[at]:,} bytes, and sample_schema.json says "
                f"{self._row.itemsize:,}"
            )
        return bytearray().join(self._bytes_of(ids))
