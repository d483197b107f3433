"""JSON objects decoded straight into the fields asked for, each of its type."""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.decode._columns import JsonColumn, Misfit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


def optional(column: JsonColumn, *, nullable: bool) -> Any:  # noqa: ANN401 - a type made at run time
    """Return the annotation of a column for msgspec, with None where null may stand."""
    return column.annotation | None if nullable else column.annotation


class StructClass:
    """A class that msgspec decodes JSON objects as, and arrays of the fields of such objects."""

    def __init__(self, parts: Sequence[tuple[pa.Field, JsonColumn]]) -> None:
        # Numbered, since the names in the text may be no names in Python.
        names = [f"f{number}" for number in range(len(parts))]
        fields: list[tuple[str, Any] | tuple[str, Any, None]] = [
            (name, optional(column, nullable=True), None)
            if field.nullable
            else (name, column.annotation)
            for name, (field, column) in zip(names, parts, strict=True)
        ]
        in_text = {name: field.name for name, (field, _) in zip(names, parts, strict=True)}
        self.type: type[msgspec.Struct] = msgspec.defstruct(
            "Row", fields, rename=in_text, kw_only=True, gc=False
        )
        self.blank = self.type(**dict.fromkeys(names))
        """Stands for a null object."""
        self._parts = [
            (field, column, attrgetter(name))
            for name, (field, column) in zip(names, parts, strict=True)
        ]

    @classmethod
    def of(cls, parts: Sequence[tuple[pa.Field, JsonColumn]]) -> StructClass | None:
        """Return the class of objects with such fields, or None where msgspec cannot have it."""
        try:
            return cls(parts)
        except ValueError:
            # It takes no names with quotes, backslashes or control characters.
            return None

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[object]:
        """What decodes lines of text."""
        return msgspec.json.Decoder(self.type)

    def arrays(self, rows: Sequence[object], blanks: int = 0) -> list[pa.Array]:
        """Return each field of decoded objects as an array; so many of them are blank."""
        arrays = []
        for field, column, getter in self._parts:
            array = column.decoded(list(map(getter, rows)))
            # msgspec takes null for a field of any type.
            if not field.nullable and array.null_count > blanks:
                raise Misfit(column.path, None, f"{field.type} not null")
            arrays.append(array)
        return arrays
