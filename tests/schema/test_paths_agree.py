"""Random nested records under random schemas: columns give what records give, one by one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock
from penstock.errors import PenstockError, SchemaMismatchError
from penstock.schema import (
    Array,
    Category,
    DateParts,
    Entity,
    Number,
    Schema,
    Set,
    Text,
    Vector,
    check_batch,
)
from tests.rounds import rounds
from tests.schema.both_paths import assert_equal

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
    "text": LABELS,
}
ODD = st.sampled_from(
    [True, 0, 2**70, 1e300, "12", "NaT", [], [1], [[]], {}, {"a": 1}, "2024-02-29"]
)
MIXED: list[Any] = [{"x": 1, "c": 1}, {"x": "2", "c": "1"}, {"x": 3, "c": 2}]
KEYS = st.sampled_from(["a", "b", "c", "d", "é", "x y", "x.y", ""])


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def leaf(name: str, kind: str, query: str, draw: Any) -> Any:
    options: dict[str, Any] = {
        "query": query,
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
    if kind == "text":
        return Text(name, model_name="m", max_length=2, tokenizer=letters, **options)
    size = draw(st.integers(1, 3))
    share = draw(st.sampled_from([0.0, 0.5]))
    made = Category if kind == "category" else Set
    return made(name, max_vocab_size=size, p_unavailable=share, **options)


@st.composite
def cases(draw: Any, *, odd: bool) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return nodes, and records that have, miss or hold null for what the nodes ask."""

    def one(kind: str) -> st.SearchStrategy[Any]:
        return st.one_of(*[VALUES[kind]] * 6, ODD) if odd else VALUES[kind]

    def items(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(st.none(), st.lists(inner, max_size=4))

    def nodes(depth: int, above: str) -> tuple[list[Any], st.SearchStrategy[Any]]:
        fields, values = [], {}
        keys = draw(st.lists(KEYS, min_size=1, max_size=3, unique=True))
        for number, key in enumerate(keys):
            name, query = f"n{number}", f"{above}.{json.dumps(key)}"
            kind = draw(st.sampled_from([kind for kind in VALUES if depth or kind != "entity"]))
            ways = ["value", "index", "inside", *["list", "array"] * (depth < 2)]
            way = draw(st.sampled_from(ways))
            length = draw(st.integers(2, 3))
            policy = draw(st.sampled_from(["head", "tail", "error"]))
            if way == "value":
                fields.append(leaf(name, kind, query, draw))
                values[key] = one(kind)
            elif way == "index":
                place = draw(st.integers(-2, 1))
                fields.append(leaf(name, kind, f"{query}[{place}].v", draw))
                values[key] = items(st.fixed_dictionaries({}, optional={"v": one(kind)}))
            elif way == "inside":
                fields.append(leaf(name, kind, f"{query}.v", draw))
                inner = st.fixed_dictionaries({}, optional={"v": one(kind)})
                values[key] = st.one_of(st.none(), inner)
            else:
                below, value = [leaf(name, kind, query, draw)], one(kind)
                if way == "array":
                    below, value = nodes(depth + 1, f"{query}[*]")
                    value = st.one_of(st.none(), value)
                fields.append(Array(*below, name=name, max_length=length, overflow=policy))
                values[key] = items(value)
        return fields, st.fixed_dictionaries({}, optional=values)

    fields, records = nodes(0, "[*]")
    return fields, draw(st.lists(records, min_size=1, max_size=5))


def encoded(fields: list[Any], records: list[Any]) -> Any:
    """Return the batch of records one by one; None where one of them does not fit."""
    try:
        return Schema(*fields).encode(records, "train")
    except SchemaMismatchError:
        return None


def sources(records: list[Any]) -> list[Any]:
    """Return records as a list and, where Arrow holds them, in the middle of a table."""
    names = dict.fromkeys(name for record in records for name in record)
    columns = {name: [record.get(name) for record in records] for name in names}
    try:
        table = pa.table(columns)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return [records]
    around = pa.concat_tables([table[-1:], table, table[:1]])
    return [records, around.combine_chunks()[1:-1]] if names else [records]


@settings(max_examples=rounds(60, 3000), deadline=None)
@given(cases(odd=False))
def test_columns_give_what_records_give(case: tuple[list[Any], list[dict[str, Any]]]) -> None:
    fields, records = case
    expected = encoded(fields, records)
    for source in sources(records):
        own = Schema(*fields)
        loader = penstock.DataLoader(source, own, batch_size=len(records), num_workers=0)
        try:
            (batch,) = loader
        except SchemaMismatchError:
            assert expected is None
            continue
        check_batch(own, batch, "train")
        for address, field in expected.items():
            assert_equal(batch[address], field, address)


@settings(max_examples=rounds(40, 2000), deadline=None)
@given(cases(odd=True))
def test_records_that_do_not_fit_are_masked_and_leave_no_trace(
    case: tuple[list[Any], list[dict[str, Any]]],
) -> None:
    fields, records = case
    plain = Schema(*fields)
    plain.update(p_mask=0.0, p_prune=0.0, p_unavailable=0.0, strict=False)
    nodes = plain.hyperparameters.root.fields
    fits = [encoded([*nodes], [record]) is not None for record in records]
    good = [record for record, fit in zip(records, fits, strict=True) if fit]
    expected = plain.encode(good, "train")
    for source in sources(records):
        own = Schema(*nodes)
        options: Any = {"batch_size": len(records), "num_workers": 0, "on_error": "mask"}
        (batch,) = penstock.DataLoader(source, own, **options)
        assert ([True] * len(records) if batch.valid is None else batch.valid.tolist()) == fits
        assert own.state_dict()["vocabularies"] == plain.state_dict()["vocabularies"]
        for address, field in expected.items():
            assert_equal(_rows(batch[address], fits), field, address)


@pytest.mark.filterwarnings("ignore:.*the vocabulary holds")  # MIXED has 1 and "1".
@settings(max_examples=rounds(12, 1000), deadline=None)
@given(cases(odd=True), st.sampled_from(["raise", "mask"]))
@example(([Number("x"), Category("c", max_vocab_size=4)], MIXED), "raise")
def test_every_way_to_read_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[list[Any], list[dict[str, Any]]],
    on_error: Any,
) -> None:
    fields, records = case
    found: list[Any] = []
    for materialize in (False, "auto", True):
        path = tmp_path_factory.mktemp("way") / "a.jsonl"
        lines = [json.dumps(record) + "\n" for record in records]
        path.write_text("".join(lines) * 60)  # More misfits than columns may set aside.
        options: Any = {"num_workers": 0, "on_error": on_error, "materialize": materialize}
        try:
            found.append([*penstock.DataLoader(path, Schema(*fields), batch_size=50, **options)])
        except PenstockError as why:
            found.append(type(why))
    plain, *others = found
    for other in others:
        if isinstance(plain, type):
            assert other is plain
            continue
        for batch, same in zip(plain, other, strict=True):
            assert [batch.valid is None, *([] if batch.valid is None else batch.valid)] == [
                same.valid is None, *([] if same.valid is None else same.valid)
            ]  # fmt: skip
            for address, field in batch.items():
                assert_equal(same[address], field, address)


def _rows(field: Any, chosen: list[bool]) -> Any:
    return field._of(*(part[chosen] for part in field._parts()))  # noqa: SLF001 (no other way)
