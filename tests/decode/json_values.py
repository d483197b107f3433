"""Hypothesis strategies: JSON records that agree on types, that do not, and their texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

EDGES = [0, -1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1]

strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(
    ["2020-01-01", "2020-01-01T10:00:00Z", "null", "1", "{", "}", "} null {", "NaN", "é", "\0"]
)
naturals = st.integers(0, 100)
integers = st.integers(-100, 100)
any_integers = integers | st.sampled_from(EDGES) | st.integers(-(10**25), 10**25)
floats = st.floats(width=64) | st.sampled_from([1e19, -1e30, 0.5, 1e300])
any_leaf = st.none() | st.booleans() | any_integers | floats | strings
names = st.sampled_from(["a", "b", "c", "d", "é", "a b"])


def nested(leaf: SearchStrategy[object]) -> SearchStrategy[object]:
    """Values of `leaf`, lists and objects of them."""
    return st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=5,
    )


@st.composite
def shapes(draw: st.DrawFn, depth: int = 2) -> SearchStrategy[object]:
    """Draw a strategy whose values agree on their type, nulls aside."""
    kind = draw(st.sampled_from(["leaf", "leaf", "list", "object"] if depth else ["leaf"]))
    if kind == "leaf":
        leaves = [st.none(), st.booleans(), naturals, integers, floats, integers | floats, strings]
        some = draw(st.sampled_from(leaves))
    elif kind == "list":
        some = st.lists(draw(shapes(depth - 1)), max_size=3)
    else:
        parts = draw(st.dictionaries(names, shapes(depth - 1), max_size=3))
        some = st.fixed_dictionaries({}, optional=parts)
    return st.none() | some if draw(st.booleans()) else some


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, object]]:
    """Draw records whose fields mostly agree; some streams have a few that do not."""
    fields = draw(st.dictionaries(names, shapes(), max_size=4))
    regular = st.fixed_dictionaries({}, optional=fields)
    wild = st.dictionaries(names, nested(any_leaf), max_size=4)
    choices = draw(st.sampled_from([[regular], [regular] * 6 + [wild], [wild]]))
    return draw(st.lists(st.one_of(choices), max_size=12))


@st.composite
def cut_records(draw: st.DrawFn) -> list[list[dict[str, object]]]:
    """Draw the records of a stream, cut into texts."""
    rows = draw(records())
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


@st.composite
def texts(draw: st.DrawFn, rows: list[dict[str, object]]) -> bytes:
    """Draw one of the ways to write records as lines."""
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    ascii_only = draw(st.booleans())
    end = draw(st.sampled_from(["\n", "\r\n", "\n\n", "\n \t\n"]))
    lines = [json.dumps(row, separators=separators, ensure_ascii=ascii_only) for row in rows]
    text = end.join(lines)
    return (text + draw(st.sampled_from(["", end])) if lines else text).encode()
