"""Random nested records under random schemas: columns give what records give, one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schema import Array, Category, DateParts, Entity, Number, Set, Vector
from tests.rounds import rounds
from tests.schema.both_paths import both

NUMBERS = st.one_of(st.none(), st.integers(-(2**40), 2**40), st.floats(width=32))
LABELS = st.one_of(st.none(), st.sampled_from(["a", "b", "", "é"]))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "number": NUMBERS,
    "category": LABELS,
    "entity": LABELS,
    "set": st.one_of(st.none(), st.lists(LABELS, max_size=3)),
    "vector": st.one_of(st.none(), st.lists(st.integers(-9, 9), min_size=2, max_size=2)),
    "date": st.one_of(
        st.none(), st.datetimes().map(lambda time: time.isoformat(timespec="minutes"))
    ),
}


def leaf(name: str, kind: str, draw: Any) -> Any:
    options: dict[str, Any] = {
        "p_mask": draw(st.sampled_from([0.0, 0.3])),
        "p_prune": draw(st.sampled_from([0.0, 0.4, 1.0])),
    }
    if kind == "number":
        return Number(name, **options)
    if kind == "vector":
        return Vector(name, n_dim=2, **options)
    if kind == "date":
        return DateParts(name, dateparts=["day_of_week", "week_of_year"], **options)
    if kind == "entity":
        return Entity(name, **options)
    size = draw(st.integers(1, 3))
    share = draw(st.sampled_from([0.0, 0.5]))
    made = Category if kind == "category" else Set
    return made(name, max_vocab_size=size, p_unavailable=share, **options)


@st.composite
def cases(draw: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return nodes, and records that have, miss or hold null for what the nodes ask."""

    def nodes(depth: int) -> tuple[list[Any], st.SearchStrategy[Any]]:
        fields, values = [], {}
        for number in range(draw(st.integers(1, 3))):
            name = f"n{number}"
            kinds = [kind for kind in VALUES if depth or kind != "entity"]
            if depth < 2 and draw(st.booleans()):
                below, items = nodes(depth + 1)
                length = draw(st.integers(2, 3))
                policy = draw(st.sampled_from(["head", "tail"]))
                fields.append(Array(*below, name=name, max_length=length, overflow=policy))
                items = st.one_of(st.none(), items)
                values[name] = st.one_of(st.none(), st.lists(items, max_size=4))
            else:
                kind = draw(st.sampled_from(kinds))
                fields.append(leaf(name, kind, draw))
                values[name] = VALUES[kind]
        return fields, st.fixed_dictionaries({}, optional=values)

    fields, records = nodes(0)
    return fields, draw(st.lists(records, min_size=1, max_size=5))


@settings(max_examples=rounds(40, 2000))
@given(cases())
def test_columns_give_what_records_give(case: tuple[list[Any], list[dict[str, Any]]]) -> None:
    fields, records = case
    both(records, *fields)
