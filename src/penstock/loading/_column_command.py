"""What somebody types to make the columns of a source once for all."""

# ruff: noqa: SLF001 (where a source was opened from decides what finds it again)

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.datasets import (
    CsvRows,
    Dataset,
    JsonlDataset,
    Materialized,
    ParquetRows,
    origins_of,
    type_text,
    typed_schema,
)
from penstock.errors import OptionError
from penstock.index import CsvScanner, digest

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.datasets import Source

_AMBIGUOUS = re.compile(r"[,:]|^\s|\s$")
"""In a name, what stands between names and types in a list of them."""


def command_for(source: Source, schema: pa.Schema) -> str:
    """Return the command that makes the columns of `schema`; Python where no command would.

    The command line opens a path, so it finds the columns of what was opened by one, and not those
    of a list of files, of an index somewhere else, or of CSV with options of its own.
    """
    types = {field.name: _spelt(field.type) for field in schema}
    if any(text is None for text in types.values()):
        return "source.materialize(encode.fields)"
    origins = [o.origin if isinstance(o, Materialized) else o for o in origins_of(source)]
    paths = [_path_of(origin) for origin in origins]
    known = [path for path in dict.fromkeys(paths) if path is not None]
    if None in paths or not known or any(map(_AMBIGUOUS.search, types)):
        return f"source.materialize({types})"
    fields = shlex.quote(",".join(f"{name}:{type_}" for name, type_ in types.items()))
    return " && ".join(f"penstock materialize {shlex.quote(path)} {fields}" for path in known)


def _spelt(type_: pa.DataType) -> str | None:
    """Return a type as a user writes it; None for one that has no text."""
    text = type_text(type_)
    try:
        schema = typed_schema({"it": text})
    except OptionError:
        return None
    return text if schema is not None and schema.field(0).type == type_ else None


def _path_of(origin: Source) -> str | None:
    """Return the path that opens a source again, with the same columns beside it."""
    if isinstance(origin, ParquetRows):
        len(origin)  # After that the paths are absolute.
        return origin._paths[0] if len(origin._paths) == 1 and origin._names is None else None
    # Whoever decodes in a way of their own has columns of their own.
    if type(origin) not in {CsvRows, JsonlDataset} or not isinstance(origin, Dataset):
        return None
    index = origin._sample_index
    if index.origin is None or index.meta is None:
        return None
    if isinstance(origin, CsvRows) and index.meta.options != _csv_options(origin.files):
        return None
    base, folder = index.origin.base, Path(index.origin.folder)
    if folder == Path(base) / "index" or folder.parent.name == "fetched-indexes":
        return base
    # In the cache an index has the name of what was opened.
    for path in (base, *origin.files[:1]):
        if folder.name == digest([index.meta.kind, index.meta.options, [path]]):
            return path
    return None


def _csv_options(files: list[str]) -> dict[str, object]:
    """Return the options with which `penstock.open` reads such files."""
    is_tabs = all(path.lower().endswith(".tsv") for path in files)
    return CsvScanner("\t" if is_tabs else ",").options()
