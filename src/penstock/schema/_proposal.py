"""A schema proposed from a profile: kinds of leaves, sizes of vocabularies, lengths of arrays."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.schema._documents import document_of
from penstock.schema._nodes import Array, Node
from penstock.schema._query import inferred
from penstock.schema.leaves._category import Category, Set
from penstock.schema.leaves._dateparts import DateParts
from penstock.schema.leaves._number import Number
from penstock.schema.leaves._vector import Vector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NUMBERS = {"int", "float"}
_LENGTH = "p99"
"""The share of lists that an array holds whole."""
_DATE = ("day_of_week", "month_of_year")
_TIME = (*_DATE, "hour_of_day")
_TIMES_EACH = 2
"""How often a label comes, at the least on average, in a field of labels."""
_ITEMS = "[]"


class Proposal(NamedTuple):
    """Nodes for the fields of a profile, and the fields that have none."""

    nodes: list[Node]
    left_out: dict[str, str]
    """Paths, each with the reason."""

    def text(self, *, as_json: bool) -> str:
        """Return the schema as a file for `load_schema`, or as Python."""
        if as_json:
            return json.dumps({"fields": [document_of(node) for node in self.nodes]}, indent=1)
        lines = as_python(self.nodes)
        names = {"Schema", *re.findall(r"^ *(\w+)\(", lines, re.MULTILINE)}
        left_out = (f"    # left out: {path}: {why}" for path, why in self.left_out.items())
        head = f"from penstock.schema import {', '.join(sorted(names))}\n\nschema = Schema("
        return "\n".join([head, *([lines] if lines else []), *left_out, ")"])


def proposed(document: Mapping[str, Any]) -> Proposal:
    """Return a schema for the records that a profile describes; `document` is `profile.json`.

    A vocabulary has room for twice the labels that were seen, and an array for all items of 99 %
    of the lists.
    """
    fields = {field["path"]: field for field in document["fields"]}
    builder = _Builder(fields)
    return Proposal(builder.below("", [], []), builder.left_out)


class _Builder:
    """Walks the fields of a profile."""

    def __init__(self, fields: Mapping[str, Mapping[str, Any]]) -> None:
        self._fields = fields
        self.left_out: dict[str, str] = {}

    def below(self, path: str, arrays: Sequence[str], keys: Sequence[str]) -> list[Node]:
        """Return nodes for the fields inside of one.

        `arrays` are the names of the arrays above, `keys` the objects passed since the last one.
        """
        prefix = f"{path}." if path else ""
        nodes: list[Node] = []
        for inner in self._fields:
            name = inner.removeprefix(prefix)
            if not inner.startswith(prefix) or "." in name or _ITEMS in name:
                continue
            nodes += self._nodes(inner, arrays, [*keys, name])
        return _distinct(nodes)

    def _nodes(self, path: str, arrays: Sequence[str], keys: list[str]) -> list[Node]:
        kinds = set(self._fields[path]["types"]) - {"null"}
        if kinds == {"object"}:
            return self.below(path, arrays, keys)
        if kinds == {"list"}:
            return self._list(path, arrays, keys)
        leaf = self._leaf(path, kinds, *_named(arrays, keys))
        return [] if leaf is None else [leaf]

    def _list(self, path: str, arrays: Sequence[str], keys: list[str]) -> list[Node]:
        items = f"{path}{_ITEMS}"
        lengths = self._fields[path]["types"]["list"]["lengths"]
        kinds = set(self._fields.get(items, {"types": {}})["types"]) - {"null"}
        name, query = _named(arrays, keys)
        size = max(1, math.ceil(lengths["quantiles"][_LENGTH]))
        if kinds and kinds <= _NUMBERS:
            if lengths["min"] == lengths["max"]:
                return [Vector(name, n_dim=lengths["max"], **query)]
            inner = Number(name, query=query.get("query") or inferred(arrays, keys[-1]))
            return [Array(inner, name=name, max_length=size)]
        if kinds and kinds <= {"string", "bool", "int"}:
            return [Set(name, max_vocab_size=_room(self._fields[items]), **query)]
        if kinds == {"object"} and not query:
            nodes = self.below(items, [*arrays, name], [])
            return [Array(*nodes, name=name, max_length=size)] if nodes else []
        self.left_out[path] = "lists of other things than numbers, texts or objects"
        if kinds == {"object"}:
            self.left_out[path] = "a list inside of an object: give the leaves queries"
        return []

    def _leaf(self, path: str, kinds: set[str], name: str, query: dict[str, Any]) -> Node | None:
        field = self._fields[path]
        if kinds and kinds <= _NUMBERS:
            return Number(name, **query)
        if kinds == {"bool"}:
            return Category(name, max_vocab_size=2, **query)
        if kinds == {"string"} and (parts := _dates(field.get("examples", ()))):
            return DateParts(name, dateparts=parts, **query)
        if not kinds or kinds - {"string", "int", "float", "bool"}:
            self.left_out[path] = f"values of the types {', '.join(sorted(kinds)) or 'null'}"
        elif field["distinct"] * _TIMES_EACH > field["count"]:
            self.left_out[path] = (
                "nearly every record has another value: a key, or a text "
                f"(Text({name!r}, model_name=…))"
            )
        else:
            return Category(name, max_vocab_size=_room(field), **query)
        return None


def as_python(nodes: Sequence[Node], indent: str = "    ") -> str:
    """Return nodes as the lines of a call, each with its comma."""
    lines = []
    for node in nodes:
        options = node.options()
        fields = options.pop("fields", ())
        name = "" if fields else repr(options.pop("name"))
        given = [name] * bool(name) + [f"{key}={value!r}" for key, value in options.items()]
        kind = type(node).__name__
        if fields:
            inside = as_python(fields, f"{indent}    ")
            lines += [f"{indent}{kind}(", inside, f"{indent}    {', '.join(given)},", f"{indent}),"]
        else:
            lines.append(f"{indent}{kind}({', '.join(given)}),")
    return "\n".join(lines)


def _named(arrays: Sequence[str], keys: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return a name for a leaf, and its query where the name alone does not lead there."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(keys))
    if list(keys) == [name]:
        return name, {}
    above = inferred(arrays, "")[: -len('.""')]
    path = "".join(inferred([], key).removeprefix("[*]") for key in keys)
    return name, {"query": f"{above}{path}"}


def _distinct(nodes: list[Node]) -> list[Node]:
    """Return nodes with different names."""
    seen: set[str] = set()
    found = []
    for node in nodes:
        name, number = node.name, 2
        while name in seen:
            name, number = f"{node.name}_{number}", number + 1
        seen.add(name)
        found.append(node if name == node.name else node.replaced(name=name))
    return found


def _room(field: Mapping[str, Any]) -> int:
    """Return the size of a vocabulary: twice the labels seen, rounded up to a power of two."""
    return 1 << max(1, math.ceil(math.log2(2 * max(1, int(field["distinct"])))))


def _dates(examples: Sequence[Any]) -> tuple[str, ...]:
    """Return the parts of texts that are all dates; none for other texts."""
    with suppress(ValueError, TypeError):
        times = [dt.datetime.fromisoformat(one) for one in examples]
        if times:
            return _TIME if any(time.time() != dt.time() for time in times) else _DATE
    return ()
