"""Where the values of a leaf lie in a record: JMESPath, of which simple paths are walked."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock._lazy import require
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EACH = None
"""The step to all items of a list; others are the key of an object or the number of an item."""
Step: TypeAlias = str | int | None

ROOT = "[*]"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEP = re.compile(r'\.([A-Za-z_][A-Za-z0-9_]*)|\.("(?:[^"\\]|\\.)*")|\[(\*|-?\d+)\]')


class FailedQueryError(Exception):
    """A query that cannot be evaluated; the schema adds address and record."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row, self.why = row, why


class Query:
    """A query of one observation, which is a list of one record.

    >>> Query("[*].items[*].price").steps
    ('items', None, 'price')
    >>> Query("[*].items[?price > `1`].name").steps is None
    True
    """

    def __init__(self, text: str, label: str = "query") -> None:
        self.text = text
        self.steps = _steps(text)
        """The steps of a simple path from the record on; None where only JMESPath knows."""
        self._compiled: Any = None if self.steps is not None else _compiled(text, label)

    def __reduce__(self) -> tuple[type[Query], tuple[str]]:
        return Query, (self.text,)

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The top-level fields that it reads; None for whole records."""
        if self.steps is None:
            return _fields(self._compiled.parsed)
        if not self.steps:
            return None
        return tuple(step for step in self.steps[:1] if isinstance(step, str))

    def search(self, records: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Return what a general query finds in each record, as a list over the root."""
        for row, record in enumerate(records):
            found = self._found(self._compiled, [record], row)
            yield found if isinstance(found, list) else [found]

    def _found(self, compiled: Any, value: Any, row: int) -> Any:
        try:
            return compiled.search(value)
        except ValueError as why:  # A function got a value of another type.
            raise FailedQueryError(row, f"{self.text} fails: {why}") from None


class BatchQuery(Query):
    """A query of all observations of a batch at once, as json2vec evaluates it.

    Values that are null or missing leave no trace: those behind them move up, and a query without
    a root, or with a pipe, may find fewer rows than there are records.

    >>> [*BatchQuery("[*].v").search([{"v": 1}, {}, {"v": 3}])]
    [[1], [], [3]]
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.steps, self._compiled = None, _compiled(text, "query")
        self._of_batch = _compiled(ROOT + text, "null_semantics='jmespath'")

    def __reduce__(self) -> tuple[type[Query], tuple[str]]:
        return BatchQuery, (self.text,)

    def search(self, records: Sequence[Any]) -> Iterator[Sequence[Any]]:
        found = self._found(self._of_batch, [[record] for record in records], 0)
        for one in found or ():
            yield one if isinstance(one, list) else ()


def _compiled(text: str, label: str) -> Any:
    jmespath = require("jmespath", extra="schema", purpose=f"the query {text!r}")
    try:
        return jmespath.compile(text)
    except ValueError as why:
        raise OptionError(f"{label}: query={text!r} is no JMESPath: {why}.") from None


def inferred(arrays: Sequence[str], name: str) -> str:
    """Return the query of a leaf that has none of its own.

    >>> inferred(["line-items"], "qty")
    '[*]."line-items"[*].qty'
    """
    return ROOT + "".join(f".{quoted(one)}[*]" for one in arrays) + f".{quoted(name)}"


def quoted(name: str) -> str:
    """Return a key as a query writes it."""
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _steps(text: str) -> tuple[Step, ...] | None:
    compact = text.strip()
    if not compact.startswith(ROOT):
        return None
    steps: list[Step] = []
    at = len(ROOT)
    while at < len(compact):
        match = _STEP.match(compact, at)
        if match is None:
            return None
        plain, quoted, number = match.groups()
        if number is not None:
            steps.append(EACH if number == "*" else int(number))
        else:
            steps.append(plain if quoted is None else json.loads(quoted))
        at = match.end()
    return tuple(steps)


_LIST, _RECORD, _INSIDE = range(3)
"""What an expression is applied to: the list of one record, the record, or a value inside of it."""


class _WholeRecordError(Exception):
    """An expression uses a record in another way than by its fields."""


def _fields(parsed: dict[str, Any]) -> tuple[str, ...] | None:
    """Return the top-level fields that a parsed expression reads; None for whole records."""
    found: dict[str, None] = {}
    try:
        _use(parsed, _LIST, found)
    except _WholeRecordError:
        return None
    return tuple(found)


def _use(node: dict[str, Any], at: int, found: dict[str, None]) -> None:
    """Add the fields that a value is made of, which must not be the record itself."""
    if _collect(node, at, found) != _INSIDE:
        raise _WholeRecordError


def _collect(node: dict[str, Any], at: int, found: dict[str, None]) -> int:
    """Add the fields that an expression reads of a record; return what it leads to."""
    kind, children = node["type"], node["children"]
    if kind in ("identity", "current", "slice"):
        return at
    if kind in ("subexpression", "index_expression", "pipe", "flatten"):
        for child in children:
            at = _collect(child, at, found)
        return at
    if kind == "index":
        return _RECORD if at == _LIST else _INSIDE
    if kind.endswith("projection"):
        left = _collect(children[0], at, found)
        if left == _RECORD and kind == "value_projection":
            raise _WholeRecordError
        item = _RECORD if left == _LIST else _INSIDE
        for condition in children[2:]:
            _use(condition, item, found)
        return _LIST if _collect(children[1], item, found) == _RECORD else _INSIDE
    if kind == "field" and at == _RECORD:
        found[node["value"]] = None
    # The function of `map` or `sort_by` gets items of another argument, which is no record.
    for child in children if kind != "expref" else ():
        _use(child, at, found)
    return _INSIDE
