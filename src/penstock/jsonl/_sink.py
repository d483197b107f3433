"""`penstock.writer`: records or columns into the sink that a path names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from itertools import compress
from typing import TYPE_CHECKING, Any, Self

from penstock._words import counted
from penstock.errors import OptionError
from penstock.jsonl._dir import JsonlDir
from penstock.jsonl._file import JsonlFile
from penstock.jsonl._names import names_file
from penstock.storage import StorageOptions

if TYPE_CHECKING:
    from penstock.jsonl._sync_writers import JsonlWriterSync


def writer(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 (the options of the sink, checked there)
) -> RecordSink:
    """Return a sink for `path`: a `.jsonl[.zst|.gz|.bz2]` file, or else a directory of shards.

    Args:
        path: A local path, or a URL of an object store. Nothing is visible there before the `with`
            block ends well, or for a directory before a shard is full.
        storage_options: Options of the object store, such as keys and an endpoint, where they are
            not in the environment; see `docs/storage.md`.
        options: Those of `JsonlFile.writer_sync` for a file, where `overwrite` is False unless
            given, or those of `JsonlDir.writer_sync` for a directory.

    >>> import tempfile
    >>> with writer(tempfile.mkdtemp() + "/a.jsonl") as sink:
    ...     sink.write([{"id": 1}, {"id": 2}], valid=[True, False])
    """
    storage_options = StorageOptions(storage_options)
    text = os.fspath(path)
    if names_file(text):
        options.setdefault("overwrite", False)
        return RecordSink(JsonlFile(text, storage_options).writer_sync(**options))
    return RecordSink(JsonlDir(text, storage_options).writer_sync(**options))


class RecordSink:
    """Takes records or columns; published when the `with` block ends well."""

    def __init__(self, lines: JsonlWriterSync) -> None:
        self._lines = lines

    @property
    def path(self) -> str:
        """Where the records go."""
        return self._lines.path

    def write(self, data: object, valid: object = None) -> None:
        """Write a dict, an iterable of dicts, or columns.

        Columns are an Arrow table or batch, a data frame, a NumPy structured array, or a dict
        of NumPy arrays, torch tensors or Arrow arrays, lists of the same length beside them.
        Where `valid` (one bool a row) is false, the row is left out.
        """
        rows = _rows(data)
        if valid is not None:
            rows, chosen = list(rows), _plain_list(valid)
            if len(rows) != len(chosen):
                raise OptionError(
                    f"valid has {counted(len(chosen), 'value')} for {counted(len(rows), 'row')}."
                )
            rows = compress(rows, chosen)
        self._lines.write_many(rows)

    def close(self) -> None:
        """Publish; a `with` block does this when it ends well."""
        self._lines.close()

    def __enter__(self) -> Self:
        self._lines.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._lines.__exit__(*failure)


def _rows(data: Any) -> Iterable[object]:  # noqa: ANN401 (whatever the user has)
    if isinstance(data, dict):
        return _transposed(data) if _are_columns(data) else [data]
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        import pyarrow as pa  # noqa: PLC0415 (only for Arrow data)

        is_arrow = isinstance(data, pa.Table | pa.RecordBatch)  # `pa.table` cuts names at a NUL.
        rows: list[object] = (data if is_arrow else pa.table(data)).to_pylist()
        return rows
    names = getattr(getattr(data, "dtype", None), "names", None)
    if names:
        return _transposed({name: data[name] for name in names})
    if isinstance(data, str | bytes) or not hasattr(data, "__iter__"):
        raise OptionError(f"cannot write {type(data).__qualname__}: expected records or columns.")
    records: Iterable[object] = data
    return records


def _are_columns(data: dict[str, object]) -> bool:
    """Whether a dict holds columns: nothing but arrays, or arrays and lists."""
    values = data.values()
    return any(map(_is_array, values)) and all(_is_array(v) or isinstance(v, list) for v in values)


def _transposed(data: Mapping[str, object]) -> list[object]:
    columns = {name: _plain_list(column) for name, column in data.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise OptionError(
            f"columns of different lengths cannot be rows: {lengths}. "
            "A single record of arrays is written as a list: write([record])."
        )
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _is_array(value: object) -> bool:
    numpy, torch, arrow = (sys.modules.get(name) for name in ("numpy", "torch", "pyarrow"))
    return (
        (numpy is not None and isinstance(value, numpy.ndarray) and value.ndim > 0)
        or (torch is not None and isinstance(value, torch.Tensor) and value.ndim > 0)
        or (arrow is not None and isinstance(value, arrow.Array | arrow.ChunkedArray))
    )


def _plain_list(column: Any) -> list[object]:  # noqa: ANN401
    # An Arrow column iterates as scalars of its own, and a chunked one has no tolist.
    if getattr(getattr(column, "dtype", None), "kind", "") in ("M", "m"):
        return list(column)  # As lists of numbers, dates would lose what they are.
    for name in ("to_pylist", "tolist"):
        if hasattr(column, name):
            column = getattr(column, name)()
            break
    return [column] if isinstance(column, bool) else list(column)
