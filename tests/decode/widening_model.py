"""What a stream of records must come out as: a model with sets of what was seen, no Arrow logic."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import pyarrow as pa

NUMBERS = ("negative", "natural", "big", "float", "inexact")
FAMILY = dict.fromkeys(NUMBERS, "number")


@dataclass
class Seen:
    """All that a field held in the texts so far."""

    atoms: set[str] = field(default_factory=set)
    fields: dict[str, Seen] = field(default_factory=dict)
    text_for_good: bool = False

    def add(self, value: object) -> None:
        if value is None:
            return
        self.atoms.add(atom(value))
        if type(value) is int and -(2**63) <= value < 2**64 and float(value) != value:
            self.atoms.add("inexact")
        if isinstance(value, list):
            items = self.fields.setdefault("[]", Seen())
            for item in value:
                items.add(item)
        if isinstance(value, dict):
            for name, inner in value.items():
                self.fields.setdefault(name, Seen()).add(inner)

    def end_text(self) -> None:
        self.text_for_good |= self.is_text()
        for inner in self.fields.values():
            inner.end_text()

    def is_text(self) -> bool:
        families = {FAMILY.get(seen, seen) for seen in self.atoms}
        wide = {"negative", "big"} <= self.atoms and "float" not in self.atoms
        inexact = {"inexact", "float"} <= self.atoms
        return self.text_for_good or len(families) > 1 or "huge" in self.atoms or wide or inexact

    def type(self) -> pa.DataType:
        if self.is_text():
            return pa.string()
        for seen, type_ in (
            ("str", pa.string()),
            ("bool", pa.bool_()),
            ("float", pa.float64()),
            ("big", pa.uint64()),
            ("negative", pa.int64()),
            ("natural", pa.int64()),
        ):
            if seen in self.atoms:
                return type_
        if "list" in self.atoms:
            return pa.list_(self.fields["[]"].type())
        if "dict" in self.atoms:
            return pa.struct([(name, inner.type()) for name, inner in self.fields.items()])
        return pa.null()


def atom(value: object) -> str:
    if type(value) is not int:
        return type(value).__name__
    if not -(2**63) <= value < 2**64:
        return "huge"
    return "negative" if value < 0 else "natural" if value < 2**63 else "big"


def schema_after(texts: list[list[dict[str, object]]]) -> pa.Schema:
    """Return the schema of a stream of texts, each a list of records."""
    record = Seen()
    for rows in texts:
        for row in rows:
            record.add(row)
        record.end_text()
    return pa.schema([(name, inner.type()) for name, inner in record.fields.items()])


def holds(got: object, value: object, type_: pa.DataType) -> bool:
    """Return whether a table's value is the record's value under the type."""
    if value is None or got is None:
        return value is got
    if pa.types.is_list(type_):
        pairs = zip(got, value, strict=False)
        return len(got) == len(value) and all(holds(*pair, type_.value_type) for pair in pairs)
    if pa.types.is_struct(type_):
        return list(got) == [part.name for part in type_] and all(
            holds(got[part.name], value.get(part.name), part.type) for part in type_
        )
    if pa.types.is_string(type_):
        return got == value if isinstance(value, str) else alike(json.loads(got), value)
    return type(got) is type(type_to_python(type_)) and alike(got, value)


def type_to_python(type_: pa.DataType) -> object:
    if pa.types.is_boolean(type_):
        return True
    return 0.0 if pa.types.is_floating(type_) else 0


def alike(got: object, value: object) -> bool:
    """Return whether JSON text says the value."""
    if isinstance(value, dict) and isinstance(got, dict):
        names = {name for part in (got, value) for name in part if part[name] is not None}
        return all(alike(got.get(name), value.get(name)) for name in names)
    if isinstance(value, list) and isinstance(got, list):
        pairs = zip(got, value, strict=False)
        return len(got) == len(value) and all(alike(*pair) for pair in pairs)
    if type(value) in (int, float) and type(got) in (int, float):
        same_nan = math.isnan(got) and math.isnan(value)
        return got == value or same_nan
    if type(value) is not str and type(got) is str:
        # Inside mixed lists and objects a value can already have been text of its own.
        return alike(json.loads(got), value)
    return type(got) is type(value) and got == value
