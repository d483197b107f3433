"""A schema proposed from a profile: kinds of leaves, sizes of vocabularies, lengths of arrays."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from contextlib import suppress
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.schema._documents import document_of
from penstock.schema._nodes import Array, Node
from penstock.schema._query import ROOT, inferred, quoted
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
    builder = _Builder({field["path"]: field for field in document["fields"]})
    return Proposal(builder.inside(None, _Place((), ROOT, set())), builder.left_out)


class _Place(NamedTuple):
    """Where the values of a field lie, and where its node stands."""

    arrays: tuple[str, ...]
    """The names of the arrays above the node."""
    query: str
    taken: set[str]
    """The names of other nodes of the same array."""
    keys: tuple[str, ...] = ()
    """The keys since the last list."""

    def of(self, key: str) -> _Place:
        return self._replace(query=f"{self.query}.{quoted(key)}", keys=(*self.keys, key))

    def named(self) -> tuple[str, dict[str, Any]]:
        """Return a name for a node, and its query where the name alone does not lead there."""
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(self.keys)) or "_"
        numbered = (f"{plain}_{number}" for number in count(2))
        name = next(one for one in chain([plain], numbered) if one not in self.taken)
        self.taken.add(name)
        leads_there = inferred(self.arrays, name) == self.query
        return name, {} if leads_there else {"query": self.query}


class _Builder:
    """Walks the fields of a profile."""

    def __init__(self, fields: Mapping[str, Mapping[str, Any]]) -> None:
        self._fields = fields
        self._below: dict[str | None, list[tuple[str, str]]] = {}
        """The keys and paths inside of each object; those of a record under None."""
        self.left_out: dict[str, str] = {}
        objects = [path for path, field in fields.items() if "object" in field["types"]]
        for path in fields:
            if not path.endswith(_ITEMS) or path.removesuffix(_ITEMS) not in fields:
                # A key may have dots: the longest object that there is holds it.
                above = (one for one in objects if path.startswith(f"{one}."))
                owner = max(above, key=len, default=None)
                key = path if owner is None else path[len(owner) + 1 :]
                self._below.setdefault(owner, []).append((key, path))

    def inside(self, path: str | None, place: _Place) -> list[Node]:
        """Return nodes for the fields inside of an object."""
        inner = self._below.get(path, ())
        return [node for key, path in inner for node in self._nodes(path, place.of(key))]

    def _nodes(self, path: str, place: _Place) -> list[Node]:
        kinds = set(self._fields[path]["types"]) - {"null"}
        if kinds == {"object"}:
            return self.inside(path, place)
        if kinds == {"list"}:
            return self._list(path, place)
        leaf = self._leaf(path, kinds, place)
        return [] if leaf is None else [leaf]

    def _list(self, path: str, place: _Place) -> list[Node]:
        items = f"{path}{_ITEMS}"
        lengths = self._fields[path]["types"]["list"]["lengths"]
        kinds = set(self._fields.get(items, {"types": {}})["types"]) - {"null"}
        size = max(1, math.ceil(lengths["quantiles"][_LENGTH]))
        if kinds and kinds <= _NUMBERS:
            name, query = place.named()
            if lengths["min"] == lengths["max"]:
                return [Vector(name, n_dim=lengths["max"], **query)]
            return [Array(Number(name, query=place.query), name=name, max_length=size)]
        if kinds and kinds <= {"string", "bool", "int"}:
            name, query = place.named()
            return [Set(name, max_vocab_size=_room(self._fields[items]), **query)]
        if kinds == {"object"}:
            name, _ = place.named()
            inner = _Place((*place.arrays, name), f"{place.query}[*]", set())
            nodes = self.inside(items, inner)
            return [Array(*nodes, name=name, max_length=size)] if nodes else []
        self.left_out[path] = "lists of other things than numbers, texts or objects"
        return []

    def _leaf(self, path: str, kinds: set[str], place: _Place) -> Node | None:
        field = self._fields[path]
        if not kinds or kinds - {"string", "bool", *_NUMBERS}:
            self.left_out[path] = f"values of the types {', '.join(sorted(kinds)) or 'null'}"
            return None
        dates = _dates(field.get("examples", ())) if kinds == {"string"} else ()
        is_plain = kinds <= _NUMBERS or kinds == {"bool"} or bool(dates)
        if not is_plain and field["distinct"] * _TIMES_EACH > field["count"]:
            self.left_out[path] = (
                "nearly every record has another value: a key, or a text "
                f"(Text({place.keys[-1]!r}, model_name=…))"
            )
            return None
        name, query = place.named()
        if kinds <= _NUMBERS:
            return Number(name, **query)
        if dates:
            return DateParts(name, dateparts=dates, **query)
        return Category(name, max_vocab_size=2 if kinds == {"bool"} else _room(field), **query)


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
