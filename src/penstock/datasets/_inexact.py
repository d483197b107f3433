"""Columns without a type whose numbers no type holds exactly: they are refused, not rounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasets.fields._paths import is_listlike
from penstock.decode import WHOLE_FLOATS, list_items, numbers_in
from penstock.errors import PenstockError, SchemaMismatchError

if TYPE_CHECKING:
    from penstock.datasets._source import Source

_LOOKED_AT = 65_536


def refuse_numbers(schema: pa.Schema, source: Source | None = None) -> None:
    """Raise where a field has numbers of several types, which no type holds exactly."""
    for path, numbers in (one for field in schema for one in numbers_in(field.type, field.name)):
        places: dict[str, list[str]] = {}
        for type_, place in numbers.parts:
            places.setdefault(place, []).append(str(type_))
        if "" in places:
            held = f"holds integers and floats{_examples(source, path)}"
        else:
            files = (f"{' and '.join(types)} in {file}" for file, types in places.items())
            held = f"is {' and '.join(files)}"
        name, lists = path.removesuffix("[]"), path.count("[]")
        whole, rounded = (f"{'list<' * lists}{one}{'>' * lists}" for one in ("int64", "float64"))
        raise SchemaMismatchError(
            f"field {path!r} {held}, and no type holds them all exactly.",
            remedy=f"Ask for the field with a type: {{{name!r}: {whole!r}}} takes whole numbers, "
            f"{rounded!r} rounds large ones, 'json' keeps each as it is, and so do records.",
            field=path,
        )


def _examples(source: Source | None, path: str) -> str:
    """Return where the first integer and the first float of some records lie."""
    found: dict[type, str] = {}
    if source is not None and source.files:
        ids = np.arange(min(len(source), _LOOKED_AT))
        with suppress(PenstockError):
            values = source._projected(ids, [path]).column(0).to_pylist()  # noqa: SLF001
            for number, value in enumerate(values):
                if isinstance(value, int | float) and type(value) not in found:
                    found[type(value)] = f"{value} in {source.location(number).file}"
    return f" ({' and '.join(found.values())})" if found else ""


def refuse_rounded(batch: pa.RecordBatch) -> None:
    """Raise where doubles may stand for integers that they do not equal.

    The type is that of other records: these may hold larger integers.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for floats in _floats_in(column):
            largest = pc.max(pc.abs(floats)).as_py()
            if largest is not None and largest >= WHOLE_FLOATS:
                text = f"field {name!r} holds {largest}, which may be another integer."
                raise SchemaMismatchError(text, field=name)


def _floats_in(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_floating(array.type):
        yield array
    elif is_listlike(array.type):
        yield from _floats_in(list_items(array))
    elif pa.types.is_struct(array.type):
        for part in array.flatten():
            yield from _floats_in(part)
