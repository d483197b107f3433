"""Many paths merged into few top-level columns, so that a source is asked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from penstock.datasets.fields._paths import LIST, Steps, is_listlike, like, steps_of
from penstock.datasets.fields._tensor_types import type_text
from penstock.errors import OptionError


@dataclass(frozen=True, slots=True)
class _StructNode:
    """Objects with the fields that are asked for; more are added in place."""

    fields: dict[str, _Node]


@dataclass(frozen=True, slots=True)
class _ListNode:
    """Lists of a kind, of whose items only a part is asked for."""

    kind: pa.DataType
    item: _Node


_Node: TypeAlias = pa.DataType | _StructNode | _ListNode


class Way(NamedTuple):
    """From a top-level column of one layer to the column asked for."""

    layer: int
    steps: Steps


class PathPlan:
    """The top-level columns to read, and the ways from there to the columns asked for.

    There is one layer of columns, unless fields ask for different types of the same one. A field
    has two ways where `a.b` may be a path or a name: the name goes first.

    >>> plan = PathPlan(
    ...     pa.schema({"a.b": pa.int8(), "a.c": pa.bool_()}), frozenset(), complete=True
    ... )
    >>> plan.layers[0].types
    [StructType(struct<b: int8, c: bool>)]
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
            known = tree.setdefault(name, node)
            if known is node or _fits(known, node):
                _merge(known, node)
                return Way(layer, steps)
        self._trees.append({name: node})
        return Way(len(self._trees) - 1, steps)


def _node(steps: Steps, type_: pa.DataType, field: pa.Field) -> _Node:
    if not steps:
        return type_
    step, *rest = steps
    if step is not LIST:
        return _StructNode({step: _node(tuple(rest), type_, field)})
    if not is_listlike(type_):
        raise OptionError(
            f"field {field.name!r} goes into a list by [], so its type is a list, not "
            f"{type_text(field.type)}: ask for list<{type_text(field.type)}>"
        )
    return _ListNode(type_, _node(tuple(rest), type_.value_type, field))


def _fits(one: _Node, other: _Node) -> bool:
    """Whether there is a type that gives both."""
    if isinstance(one, _StructNode) and isinstance(other, _StructNode):
        pairs = ((one.fields.get(name), node) for name, node in other.fields.items())
        return all(known is None or _fits(known, node) for known, node in pairs)
    if isinstance(one, _ListNode) and isinstance(other, _ListNode):
        same = like(one.kind, pa.null()) == like(other.kind, pa.null())
        return same and _fits(one.item, other.item)
    return bool(one == other)


def _merge(one: _Node, other: _Node) -> None:
    """Add what is asked for of one to the other, which fits."""
    if isinstance(one, _StructNode) and isinstance(other, _StructNode):
        for name, node in other.fields.items():
            _merge(one.fields.setdefault(name, node), node)
    elif isinstance(one, _ListNode) and isinstance(other, _ListNode):
        _merge(one.item, other.item)


def _type(node: _Node) -> pa.DataType:
    if isinstance(node, _StructNode):
        return pa.struct([(name, _type(inner)) for name, inner in node.fields.items()])
    if isinstance(node, _ListNode):
        return like(node.kind, _type(node.item))
    return node
