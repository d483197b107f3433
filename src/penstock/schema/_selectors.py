"""Which nodes of a schema are meant: `where("kind") == "number"`, combined by `&`, `|` and `~`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.schema._nodes import Node

    Selector: TypeAlias = "NodePredicate | NodeAttribute | Callable[[Node], bool]"

_MISSING = object()


class NodePredicate:
    """A condition on nodes."""

    def __init__(self, key: object, holds: Callable[[Node], bool]) -> None:
        self.key = key
        """Names it in messages."""
        self._holds = holds

    def __call__(self, node: Node) -> bool:
        return bool(self._holds(node))

    def __repr__(self) -> str:
        return f"predicate({self.key!r})"

    def __and__(self, other: Selector) -> NodePredicate:
        right = as_predicate(other)
        return NodePredicate((self.key, "&", right.key), lambda node: self(node) and right(node))

    def __or__(self, other: Selector) -> NodePredicate:
        right = as_predicate(other)
        return NodePredicate((self.key, "|", right.key), lambda node: self(node) or right(node))

    def __invert__(self) -> NodePredicate:
        return NodePredicate(("~", self.key), lambda node: not self(node))


class NodeAttribute:
    """An option of nodes, to be compared; by itself the condition that it is there and true."""

    def __init__(self, name: str) -> None:
        self.name = name

    __hash__ = object.__hash__

    def _such(self, what: object, holds: Callable[[Any], bool]) -> NodePredicate:
        def check(node: Node) -> bool:
            value = getattr(node, self.name, _MISSING)
            return value is not _MISSING and holds(value)

        return NodePredicate((self.name, what), check)

    def exists(self) -> NodePredicate:
        """Nodes that have this option."""
        return self._such("exists", lambda _: True)

    def is_in(self, values: Iterable[Any]) -> NodePredicate:
        """Nodes whose option is one of these values."""
        known = list(values)
        return self._such(("in", *known), lambda value: value in known)

    def matches(self, pattern: str | re.Pattern[str]) -> NodePredicate:
        """Nodes whose option, a text, holds a match of a regular expression."""
        compiled = re.compile(pattern)
        return self._such(compiled.pattern, lambda value: bool(compiled.search(str(value))))

    def contains(self, item: Any) -> NodePredicate:
        """Nodes whose option holds an item."""
        return self._such(("contains", item), lambda value: value is not None and item in value)

    def is_null(self) -> NodePredicate:
        """Nodes whose option is None."""
        return self._such(None, lambda value: value is None)

    def is_not_null(self) -> NodePredicate:
        """Nodes whose option is not None."""
        return self._such("set", lambda value: value is not None)

    def __eq__(self, other: object) -> NodePredicate:  # type: ignore[override]
        return self._such(("==", other), lambda value: value == other)

    def __ne__(self, other: object) -> NodePredicate:  # type: ignore[override]
        return self._such(("!=", other), lambda value: value != other)

    def __and__(self, other: Selector) -> NodePredicate:
        return as_predicate(self) & other

    def __or__(self, other: Selector) -> NodePredicate:
        return as_predicate(self) | other

    def __invert__(self) -> NodePredicate:
        return ~as_predicate(self)

    def __bool__(self) -> NoReturn:
        raise TypeError("`and`, `or` and `not` cannot combine conditions: write &, | and ~.")


def where(name: str) -> NodeAttribute:
    """Return an option of nodes, as in `name`, `kind`, `address` or `p_mask`.

    >>> from penstock.schema import Number
    >>> ((where("kind") == "number") & ~where("target"))(Number("price"))
    True
    """
    return NodeAttribute(name)


def predicate(key: str | tuple[Any, ...], func: Callable[[Node], bool]) -> NodePredicate:
    """Return a condition that a function decides; `key` names it in messages."""
    return NodePredicate(key, func)


def as_predicate(selector: Selector) -> NodePredicate:
    if isinstance(selector, NodePredicate):
        return selector
    if isinstance(selector, NodeAttribute):
        return selector._such(True, bool)  # noqa: FBT003, SLF001 (of the same module)
    if callable(selector):
        return NodePredicate(getattr(selector, "__name__", "function"), selector)
    raise TypeError(f"{selector!r} is no condition on nodes: write where('name') == {selector!r}.")
