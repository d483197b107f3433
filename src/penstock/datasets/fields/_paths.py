"""Paths to fields inside records, as `items[].price`, and the few columns that hold many."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa

from penstock.datasets.fields._tensor_types import type_text
from penstock.errors import OptionError

LIST = None
"""The step into the items of a list; other steps are the names of fields."""

Steps = tuple[str | None, ...]

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_SHOWN = 10
_LIKE = 0.6
_PART = re.compile(r"([^.\[\]]+)((?:\[\])*)")


@lru_cache(4096)
def steps_of(path: str) -> Steps:
    """Return the steps of a path; a text that is no path is the name of one field.

    >>> steps_of("a.b[].c"), steps_of("a..b")
    (('a', 'b', None, 'c'), ('a..b',))
    """
    steps: list[str | None] = []
    for part in path.split("."):
        match = _PART.fullmatch(part)
        if not match:
            return (path,)
        steps += [match[1], *[LIST] * (len(match[2]) // 2)]
    return tuple(steps)


def is_listlike(type_: pa.DataType) -> bool:
    """Return whether a path goes into values of this type by `[]`."""
    return any(is_list(type_) for is_list in _LISTS)


def type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    """Return the type of the column that a path names, or None.

    >>> schema = pa.schema({"items": pa.list_(pa.struct({"price": pa.float32()}))})
    >>> type_at(schema, "items[].price"), type_at(schema, "items[].cost")
    (ListType(list<item: float>), None)
    """
    whole = schema.get_field_index(path)
    if whole >= 0:
        return schema.field(whole).type
    name, *steps = steps_of(path)
    first = schema.get_field_index(name)
    return None if first < 0 else _inside(schema.field(first).type, tuple(steps))


def _inside(type_: pa.DataType, steps: Steps) -> pa.DataType | None:
    if not steps:
        return type_
    step, *rest = steps
    if step is LIST:
        type_ = without_maps(type_)
        if not is_listlike(type_):
            return None
        item = _inside(type_.value_type, tuple(rest))
        return item and like(type_, item)
    if not pa.types.is_struct(type_) or type_.get_field_index(step) < 0:
        return None
    return _inside(type_.field(step).type, tuple(rest))


def without_maps(type_: pa.DataType) -> pa.DataType:
    """Return a type with lists of keys and values in place of maps.

    >>> without_maps(pa.map_(pa.string(), pa.int64()))
    ListType(list<item: struct<key: string, value: int64>>)
    """
    if pa.types.is_map(type_):
        entry = {"key": without_maps(type_.key_type), "value": without_maps(type_.item_type)}
        return pa.list_(pa.struct(entry))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(without_maps(field.type)) for field in type_])
    return like(type_, without_maps(type_.value_type)) if is_listlike(type_) else type_


def like(lists: pa.DataType, item: pa.DataType | pa.Field) -> pa.DataType:
    """Return a type of lists of the same kind with other items."""
    if pa.types.is_fixed_size_list(lists):
        return pa.list_(item, lists.list_size)
    is_large = pa.types.is_large_list(lists) or pa.types.is_large_list_view(lists)
    return pa.large_list(item) if is_large else pa.list_(item)


def doubled(names: Sequence[str]) -> list[str]:
    """Return the names that are there more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def paths_in(schema: pa.Schema) -> list[str]:
    """Return every path that leads to a field of a schema.

    >>> paths_in(pa.schema({"a": pa.list_(pa.struct({"b": pa.int8()}))}))
    ['a', 'a[].b']
    """
    found: list[str] = []
    pending = [(field.name, field.type) for field in reversed(list(schema))]
    while pending:
        path, type_ = pending.pop()
        if not path.endswith("[]"):
            found.append(path)
        if is_listlike(type_):
            pending.append((f"{path}[]", type_.value_type))
        elif pa.types.is_struct(type_):
            pending += [(f"{path}.{field.name}", field.type) for field in reversed(list(type_))]
    return found


def closest(name: str, there: Sequence[str]) -> str:
    """Return a sentence with the names that are most like one, or with some that there are.

    >>> closest("pirce", ["id", "price"]), closest("x", ["id", "price"])
    ("did you mean 'price'?", 'they have id, price.')
    """
    names = list(dict.fromkeys(there))
    near = difflib.get_close_matches(name, names, 3, _LIKE)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    few = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"they have {few}." if names else "they have none."


_Node: TypeAlias = "pa.DataType | dict[str, _Node] | tuple[pa.DataType, _Node]"
"""A type, the fields asked for of objects, or a kind of lists and what is asked of their items."""
Way: TypeAlias = tuple[int, Steps]
"""A layer, and the steps from its top-level columns to the column asked for."""


class PathPlan:
    """The top-level columns to read, and the ways from there to the columns asked for.

    There is one layer of columns, unless fields ask for different types of the same one. A field
    has two ways where `a.b` may be a path or a name: the name goes first.
    """

    def __init__(self, schema: pa.Schema, names: frozenset[str], *, complete: bool) -> None:
        """Plan for a source with top-level fields `names`, and no others if `complete`."""
        self._trees: list[dict[str, _Node]] = []
        self.ways: list[list[Way]] = []
        for field in schema:
            steps = steps_of(field.name)
            is_path = len(steps) > 1 and field.name not in names
            ways = [] if is_path and complete else [self._add((field.name,), field)]
            if is_path:
                ways.append(self._add(steps, field))
            self.ways.append(ways)
        self.layers = [
            pa.schema([(name, _type(node)) for name, node in tree.items()]) for tree in self._trees
        ]

    def _add(self, steps: Steps, field: pa.Field) -> Way:
        name, *inner = steps
        assert name is not LIST  # noqa: S101 (a path begins with a name)
        node = _node(tuple(inner), field.type, field)
        for layer, tree in enumerate(self._trees):
            both = _merged(tree[name], node) if name in tree else node
            if both is not None:
                tree[name] = both
                return layer, steps
        self._trees.append({name: node})
        return len(self._trees) - 1, steps


def _node(steps: Steps, type_: pa.DataType, field: pa.Field) -> _Node:
    if not steps:
        return type_
    step, *rest = steps
    if step is not LIST:
        return {step: _node(tuple(rest), type_, field)}
    if not is_listlike(type_):
        raise OptionError(
            f"field {field.name!r} goes into a list by [], so its type is a list, not "
            f"{type_text(field.type)}: ask for list<{type_text(field.type)}>"
        )
    return type_, _node(tuple(rest), type_.value_type, field)


def _merged(one: _Node, other: _Node) -> _Node | None:
    """Return a node that gives both; None where no type does."""
    if isinstance(one, dict) and isinstance(other, dict):
        merged = dict(one)
        for name, node in other.items():
            both = _merged(one[name], node) if name in one else node
            if both is None:
                return None
            merged[name] = both
        return merged
    if isinstance(one, tuple) and isinstance(other, tuple):
        item = _merged(one[1], other[1])
        same = like(one[0], pa.null()) == like(other[0], pa.null())
        return (one[0], item) if same and item is not None else None
    return one if one == other else None


def _type(node: _Node) -> pa.DataType:
    if isinstance(node, dict):
        return pa.struct([(name, _type(inner)) for name, inner in node.items()])
    if isinstance(node, tuple):
        return like(node[0], _type(node[1]))
    return node
