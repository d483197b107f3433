"""Random records of random types: what comes out equals a model that goes value by value."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.batch import Categories, FieldEncoder, Masked, Padded
from penstock.errors import SchemaMismatchError
from tests.batch.encoder_contract import plain, position
from tests.rounds import rounds

WORDS = ["a", "b", "größer", ""]
FLOATS = {"float16": 16, "float32": 32, "float64": 64}
INTEGERS = {f"{u}int{bits}": (u, bits) for u in ("", "u") for bits in (8, 16, 32, 64)}


class Refused(Exception):  # noqa: N818 (what the model says of a value)
    pass


@dataclass(frozen=True)
class Model:
    """A type as text, its values, and what a batch should hold for each of them."""

    kind: str
    name: str = ""
    size: int = 0
    default: Any = None
    item: Model | None = None

    @property
    def text(self) -> str:
        default = "" if self.default is None else f" = {json.dumps(self.default)}"
        match self.kind:
            case "optional":
                return f"{self.name}?"
            case "dense":
                return f"{self.name}[{self.size}]{default}"
            case "optional dense":
                return f"{self.name}[{self.size}]?"
            case "up to":
                return f"{self.name}[:{self.size}]{default}"
            case "list":
                assert self.item is not None
                return f"list<{self.item.text}>"
            case "category":
                return "category"
        return f"{self.name}{default}"

    def values(self) -> st.SearchStrategy[Any]:
        match self.kind:
            case "list":
                assert self.item is not None
                inner = st.lists(self.item.values(), max_size=4)
            case "category":
                inner = st.sampled_from([*WORDS, "unknown"])
            case "dense" | "optional dense":
                inner = st.lists(numbers(self.name), min_size=self.size, max_size=self.size)
            case "up to":
                inner = st.lists(numbers(self.name), max_size=5)
            case _:
                inner = texts if self.name == "string" else numbers(self.name).filter(present)
        return st.none() | inner

    def expected(self, value: Any) -> Any:
        match self.kind:
            case "category":
                return WORDS.index(value) if value in WORDS else -1
            case "list":
                assert self.item is not None
                return [self.item.expected(one) for one in value or []]
            case "optional":
                return (0 if value is None else value), value is not None
            case "dense":
                if value is None and self.default is None:
                    raise Refused
                return [self.number(one) for one in value or [None] * self.size]
            case "optional dense":
                if value is None:
                    return [0] * self.size, False
                return [self.number(one) for one in value], True
            case "up to":
                own = [self.number(one) for one in (value or [])[: self.size]]
                return own + [self.default or 0] * (self.size - len(own)), len(own)
        if self.name == "string":
            return self.default if value is None else value
        return self.number(value)

    def number(self, value: Any) -> Any:
        if value is not None:
            return value
        if self.default is not None:
            return self.default
        if self.name in FLOATS:
            return "NaN"
        raise Refused


def present(value: object) -> bool:
    return value is not None


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def numbers(name: str) -> st.SearchStrategy[Any]:
    if name in FLOATS:
        width: Any = FLOATS[name]
        some: Any = st.floats(width=width, allow_nan=False, allow_infinity=False)
    elif name == "bool":
        some = st.booleans()
    else:
        u, bits = INTEGERS[name]
        some = st.integers(0 if u else -(2 ** (bits - 1)), 2 ** (bits - bool(not u)) - 1)
    return some | some | some | st.none()


names = st.sampled_from(["bool", *FLOATS, *INTEGERS])


@st.composite
def scalars(draw: st.DrawFn, kind: str = "number") -> Model:
    name = draw(names)
    default = draw(st.none() | numbers(name))
    return Model(kind, name, draw(st.integers(1, 3)), default)


leaves = scalars() | st.builds(Model, st.just("text"), st.just("string"), default=st.none() | texts)
items = leaves | scalars("dense")
types = (
    leaves
    | scalars("dense")
    | scalars("up to")
    | st.builds(Model, st.just("optional"), names)
    | st.builds(Model, st.just("optional dense"), names, st.integers(1, 3))
    | st.just(Model("category"))
    | st.recursive(items, lambda one: st.builds(Model, st.just("list"), item=one), max_leaves=2)
)


@st.composite
def tables(draw: st.DrawFn, most: int = 4) -> tuple[dict[str, Model], list[dict[str, Any]]]:
    models = draw(st.dictionaries(st.sampled_from("abcd"), types, min_size=1, max_size=most))
    rows = st.fixed_dictionaries({}, optional={n: m.values() for n, m in models.items()})
    return models, draw(st.lists(rows, min_size=1, max_size=8))


def rows_of(value: Any) -> list[Any]:
    """Return what stands in each row of a field."""
    if isinstance(value, Masked | Padded):
        return list(zip(*plain(value), strict=True))
    return list(plain(value.codes if isinstance(value, Categories) else value))


def check(models: dict[str, Model], records: list[dict[str, Any]], source: Any) -> None:
    encoder = FieldEncoder({name: model.text for name, model in models.items()})
    encoder = encoder.with_vocabularies(dict.fromkeys(encoder.categories, WORDS))
    ids = np.random.default_rng(0).permutation(np.arange(len(records)).repeat(2))
    try:
        expected = {
            name: [model.expected(records[i].get(name)) for i in ids]
            for name, model in models.items()
        }
    except Refused:
        with pytest.raises(SchemaMismatchError) as failure:
            encoder.encode(source.read(ids, encoder.fields), position(ids))
        record, field = failure.value.record, failure.value.field  # type: ignore[attr-defined]
        with pytest.raises(Refused):
            models[field].expected(records[record].get(field))
        return
    batch = encoder.encode(source.read(ids, encoder.fields), position(ids))
    assert {name: rows_of(value) for name, value in batch.items()} == expected


@given(tables())
@settings(max_examples=rounds(50, 5000))
def test_records_in_memory_are_encoded_as_the_model_says(
    table: tuple[dict[str, Model], list[dict[str, Any]]],
) -> None:
    models, records = table
    check(models, records, penstock.open(records))


@given(tables())
@settings(max_examples=rounds(15, 500))
def test_json_lines_are_encoded_as_the_model_says(
    table: tuple[dict[str, Model], list[dict[str, Any]]],
) -> None:
    models, records = table
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        check(models, records, penstock.open(path))


@given(tables())
@settings(max_examples=rounds(15, 500))
def test_parquet_rows_are_encoded_as_the_model_says(
    table: tuple[dict[str, Model], list[dict[str, Any]]],
) -> None:
    models, records = table
    fields = FieldEncoder({name: model.text for name, model in models.items()}).fields
    # As files have them: lists of any length, whatever is asked for.
    schema = pa.schema(
        [
            (name, pa.list_(type_.value_type) if pa.types.is_fixed_size_list(type_) else type_)
            for name, type_ in fields.items()
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.parquet")
        pq.write_table(pa.Table.from_pylist(records, schema), path, row_group_size=3)
        check(models, records, penstock.open(path))
