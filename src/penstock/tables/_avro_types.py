"""The types of Avro as those of Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.decode import NumbersType
from penstock.errors import SchemaMismatchError

_PRIMITIVE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_INTEGERS, _FLOATS = ("int", "long"), ("float", "double")
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_MOST_SHORT, _MOST_DIGITS = 38, 76


def arrow_schema(schema: Any, named: dict[str, Any]) -> pa.Schema:  # noqa: ANN401 (JSON)
    """Return the columns of the records of a parsed schema; `named` are the types with a name.

    >>> record = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "int"]}]}
    >>> arrow_schema(record, {"r": record})
    a: int32
    """
    type_ = _Types(named).arrow(schema, "")
    if not pa.types.is_struct(type_) or not type_.num_fields:
        text = f"its records are {type_}, and have no fields. Write it again with named fields."
        raise SchemaMismatchError(text)
    return pa.schema(list(type_))


class _Types:
    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._around: list[str] = []
        """Names of the records around a field."""

    def arrow(self, schema: Any, path: str) -> pa.DataType:  # noqa: ANN401 (JSON)
        """Return the type of a schema; `path` names its field."""
        if isinstance(schema, list):
            return self._union(schema, path)
        if not isinstance(schema, dict):
            if schema in _PRIMITIVE:
                return _PRIMITIVE[schema]
            return self.arrow(self._named[schema], path)
        return self._complex(schema, path)

    def _complex(self, schema: dict[str, Any], path: str) -> pa.DataType:
        kind, logical = schema["type"], schema.get("logicalType")
        if kind in ("record", "error"):
            return self._record(schema, path)
        if kind == "enum":
            return pa.string()
        if kind == "array":
            items = self.arrow(schema["items"], f"{path}[]")
            if not _has_bytes(items):
                raise SchemaMismatchError(f"field {path!r} is a list of nothing but nulls.")
            return pa.list_(items)
        if kind == "map":
            return pa.map_(pa.string(), self.arrow(schema["values"], f"{path}{{}}"))
        if logical == "decimal" and schema["precision"] <= _MOST_DIGITS:
            decimal = pa.decimal128 if schema["precision"] <= _MOST_SHORT else pa.decimal256
            return decimal(schema["precision"], schema.get("scale", 0))
        if kind == "fixed":
            return pa.binary(schema["size"])
        return _LOGICAL.get((kind, str(logical))) or self.arrow(kind, path)

    def _record(self, schema: dict[str, Any], path: str) -> pa.DataType:
        name = schema["name"]
        if name in self._around:
            raise SchemaMismatchError(
                f"field {path!r} holds records of {name!r} inside of themselves, and no type of "
                "Arrow does. Write the inner ones as text."
            )
        self._around.append(name)
        before = f"{path}." if path else ""
        fields = [
            (one["name"], self.arrow(one["type"], before + one["name"])) for one in schema["fields"]
        ]
        self._around.pop()
        return pa.struct(fields)

    def _union(self, schemas: list[Any], path: str) -> pa.DataType:
        kinds = [one for one in schemas if one != "null"]
        if not kinds[1:]:
            return self.arrow(kinds[0] if kinds else "null", path)
        if all(one in _INTEGERS + _FLOATS for one in kinds):
            widest = [
                max(set(some) & set(kinds), key=some.index, default="")
                for some in (_INTEGERS, _FLOATS)
            ]
            types = [_PRIMITIVE[one] for one in widest if one]
            return types[0] if len(types) == 1 else NumbersType.of((type_, "") for type_ in types)
        shown = " or ".join(str(one if isinstance(one, str) else one.get("type")) for one in kinds)
        raise SchemaMismatchError(
            f"field {path!r} holds {shown}, and no type of Arrow holds each of them. Write it with "
            "one type, or one type and null."
        )


def _has_bytes(type_: pa.DataType) -> bool:
    """Whether each value takes some bytes, so that a block cannot claim any number of them."""
    if pa.types.is_struct(type_):
        return any(_has_bytes(field.type) for field in type_)
    return not pa.types.is_null(type_)
