"""Fields with their types: as the user names them, or all that a batch can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.batch import FieldEncoder
from penstock.datasets import paths_in
from penstock.errors import OptionError, SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

_OPEN, _CLOSE = "<[(", ">])"
_TEXTS = ("string", "text", "binary")
_FLOATS = ("float16", "float32", "float64")


def parse_fields(text: str, option: str = "--fields") -> dict[str, str | None]:
    """Return the names, or paths, of a list such as `id,price:float32`, with the types given.

    Errors name it by `option`.

    >>> parse_fields("id, user.age:int64?, tags:list<int64>, at:timestamp[us, UTC]")
    {'id': None, 'user.age': 'int64?', 'tags': 'list<int64>', 'at': 'timestamp[us, UTC]'}
    """
    fields: dict[str, str | None] = {}
    for part in _parts(text):
        name, colon, type_ = (piece.strip() for piece in part.partition(":"))
        if not name or (colon and not type_):
            raise OptionError(f"{part.strip()!r} in {option}: expected NAME or NAME:TYPE.")
        if name in fields:
            raise OptionError(f"{option} names {name!r} more than once.")
        fields[name] = type_ or None
    return fields


def _parts(text: str) -> list[str]:
    """Split at commas that stand outside of all brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def field_types(given: dict[str, str | None], schema: pa.Schema) -> dict[str, str]:
    """Return a type for each field: the one given, or that of the schema.

    A field that the schema calls an integer gets a mask, because a record that the schema was not
    made from may hold null.

    >>> import pyarrow as pa
    >>> field_types({"n": None, "x": "float32"}, pa.schema({"n": pa.int64(), "x": pa.float64()}))
    {'n': 'int64?', 'x': 'float32'}
    """
    unknown = [name for name, type_ in given.items() if type_ is None]
    known = FieldEncoder.from_schema(unknown, schema).types
    return {name: type_ or _nullable(known[name]) for name, type_ in given.items()}


def schema_types(schema: pa.Schema) -> dict[str, str]:
    """Return every field of a schema that a batch can hold, those inside of objects by path."""
    types: dict[str, str] = {}
    for path in paths_in(schema):
        try:
            types |= FieldEncoder.from_schema([path], schema).types
        except (OptionError, SchemaMismatchError):
            continue  # An object, whose fields have paths of their own, null, numbers of two types.
    return types


def all_types(schema: pa.Schema) -> dict[str, str]:
    """Return the same, each type with a mask where a record may hold null.

    >>> import pyarrow as pa
    >>> user = pa.struct({"age": pa.int8(), "name": pa.string()})
    >>> all_types(pa.schema({"id": pa.int64(), "user": user, "nothing": pa.null()}))
    {'id': 'int64?', 'user.age': 'int8?', 'user.name': 'string'}
    """
    return {name: _nullable(type_) for name, type_ in schema_types(schema).items()}


def cheap_types(types: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that are numbers, or lists of them, at the top of records.

    >>> cheap_types({"id": "int64?", "title": "string", "user.age": "int64?"})
    {'id': 'int64?'}
    """
    return {
        name: type_
        for name, type_ in types.items()
        if not any(text in type_ for text in _TEXTS) and not {".", "["} & set(name)
    }


def _nullable(type_: str) -> str:
    """Return the spelling of a type that takes null, where null has no place of its own."""
    has_place = type_ in _FLOATS or type_.startswith(("list<", "category", *_TEXTS))
    return type_ if has_place else f"{type_}?"
