"""A schema as a document of plain JSON types, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import OptionError
from penstock.schema._nodes import Array, Leaf
from penstock.schema.leaves._category import Category, Entity, Set
from penstock.schema.leaves._dateparts import DateParts
from penstock.schema.leaves._number import Number
from penstock.schema.leaves._text import Text
from penstock.schema.leaves._vector import Vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.schema._nodes import Node

    Kind = TypeVar("Kind", bound=type[Leaf])

_ARRAY = "array"
LEAVES: dict[str, type[Leaf]] = {
    kind.kind: kind for kind in (Category, DateParts, Entity, Number, Set, Text, Vector)
}
"""The kinds of leaves by name."""


def register_leaf(kind: Kind) -> Kind:
    """Make a kind of leaf known to saved schemas, by its `kind`; a class decorator."""
    if not getattr(kind, "kind", ""):
        raise OptionError(f"{kind!r} is no kind of leaf: expected a subclass of Leaf with `kind`.")
    known = LEAVES.setdefault(kind.kind, kind)
    if known is not kind and (known.__module__, known.__qualname__) != (
        kind.__module__,
        kind.__qualname__,
    ):
        raise OptionError(f"kind={kind.kind!r} is that of {known.__qualname__} already.")
    LEAVES[kind.kind] = kind
    return kind


def document_of(node: Node, *, is_exact: bool = True) -> dict[str, Any]:
    """Return a node, with all that lie below it, in plain JSON types.

    Options of other types raise, or without `is_exact` are texts that only describe them.
    """
    options = node.options()
    below = {}
    if isinstance(node, Array):
        inner = options.pop("fields")
        below = {"fields": [document_of(child, is_exact=is_exact) for child in inner]}
    try:
        text = json.dumps(options, default=None if is_exact else repr, skipkeys=not is_exact)
    except TypeError as why:
        raise OptionError(f"{node!r} cannot be saved: {why}.") from None
    return {"kind": getattr(node, "kind", _ARRAY), **json.loads(text), **below}


def node_of(document: Mapping[str, Any]) -> Node:
    """Return the node of a document."""
    options = dict(document)
    kind = options.pop("kind", None)
    if kind == _ARRAY:
        return Array(**{**options, "fields": [node_of(one) for one in options["fields"]]})
    if kind not in LEAVES:
        raise OptionError(
            f"there is no kind of leaf {kind!r}; there are: {', '.join(LEAVES)}. Register your own "
            "with penstock.schema.register_leaf before the schema is loaded."
        )
    return LEAVES[kind](**options)
