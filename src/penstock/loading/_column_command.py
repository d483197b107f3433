"""The command that makes the columns of a source."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from penstock.datasets import Materialized, origins_of, type_text, typed_schema
from penstock.errors import OptionError

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
    paths = [origin.reopens_as for origin in origins]
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
