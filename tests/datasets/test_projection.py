"""Fields by path and type, held against a plain-Python reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.datasets._memory import ListSource
from penstock.datasets._projection import projected
from penstock.datasets._table_source import TableSource
from penstock.datasets.fields._grammar import arrow_type
from penstock.datasets.fields._paths import paths_in, steps_of, type_at
from penstock.errors import OptionError, SchemaMismatchError
from tests.datasets.sample import Record, pick, sample_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy
    from numpy.typing import NDArray

    from penstock.datasets import Source

NAMES = ["a", "b", "c"]


@dataclass(frozen=True)
class Shape:
    """A type, the values it may have, and those of its parts."""

    type: pa.DataType
    values: SearchStrategy[Any]
    parts: dict[str, Shape]

    def paths(self, at: str) -> dict[str, pa.DataType]:
        """Return every path to this shape and into it, with the column's type."""
        found = {at: self.type}
        for step, part in self.parts.items():
            for path, type_ in part.paths(f"{at}{step}").items():
                found[path] = pa.list_(type_) if step == "[]" else type_
        return found


@st.composite
def shapes(draw: st.DrawFn, depth: int = 3) -> Shape:
    kind = draw(st.sampled_from(["leaf", "list", "struct", "struct"] if depth else ["leaf"]))
    if kind == "leaf":
        type_, values = draw(
            st.sampled_from([(pa.int32(), st.integers(-9, 9)), (pa.string(), st.text(max_size=2))])
        )
        return Shape(type_, st.none() | values, {})
    if kind == "list":
        item = draw(shapes(depth - 1))
        lists = st.none() | st.lists(item.values, max_size=3)
        return Shape(pa.list_(item.type), lists, {"[]": item})
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    inner = {name: draw(shapes(depth - 1)) for name in names}
    structs = st.fixed_dictionaries({}, optional={name: inner[name].values for name in names})
    type_ = pa.struct([(name, shape.type) for name, shape in inner.items()])
    return Shape(type_, st.none() | structs, {f".{name}": inner[name] for name in names})


def as_column(value: Any, type_: pa.DataType) -> Any:
    """Return a value as Arrow gives it back: structs have all of their fields."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: as_column(value.get(field.name), field.type) for field in type_}
    if pa.types.is_list(type_):
        return [as_column(item, type_.value_type) for item in value]
    return value


@given(st.data())
def test_columns_are_what_a_plain_reader_finds(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True))
    fields = {name: data.draw(shapes()) for name in names}
    one = st.fixed_dictionaries({}, optional={name: fields[name].values for name in names})
    records = data.draw(st.lists(one, min_size=1, max_size=8))
    paths = {path: t for name in names for path, t in fields[name].paths(name).items()}
    asked = data.draw(st.lists(st.sampled_from(sorted(paths)), min_size=1, unique=True))
    ids = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=10))
    wanted = {path: [as_column(pick(records[i], path), paths[path]) for i in ids] for path in asked}

    schema = pa.schema([(name, shape.type) for name, shape in fields.items()])
    before = data.draw(st.integers(0, 3))
    padded = pa.Table.from_pylist([*[{}] * before, *records, {}], schema)
    for source in (ListSource(records), TableSource(padded.slice(before, len(records)))):
        batch = source.read(ids, {path: paths[path] for path in asked})
        batch.validate(full=True)
        assert batch.schema == pa.schema([(path, paths[path]) for path in asked])
        assert batch.to_pydict() == wanted


def test_one_call_reads_the_columns_of_all_paths() -> None:
    class Counting(ListSource):
        asked: list[pa.Schema]

        def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
            self.asked.append(schema)
            return super()._columns(ids, schema)

    source = Counting(sample_records(20))
    source.asked = []
    fields = {
        "items[].price": "list<float32>",
        "user.home.city": "string",
        "id": "int8",
        "items[].sku": "list<int64>",
        "user.age": "int16",
    }
    batch = source.read([1, 2], fields)
    assert batch.schema.names == list(fields)
    (schema,) = source.asked
    of_user = pa.struct([("home", pa.struct([("city", pa.string())])), ("age", pa.int16())])
    assert schema.field("user").type == of_user


def test_a_field_and_a_part_of_it_may_have_types_that_contradict_each_other() -> None:
    source = ListSource([{"u": {"age": 1}}, {"u": None}, {}])
    whole = pa.struct({"age": pa.int64()})
    batch = source.read([0, 1, 2], {"u": whole, "u.age": "float32"})
    assert batch.to_pydict() == {"u": [{"age": 1}, None, None], "u.age": [1.0, None, None]}
    assert batch.schema.types == [whole, pa.float32()]


@pytest.mark.parametrize("kind", [ListSource, lambda rows: TableSource(pa.Table.from_pylist(rows))])
def test_a_name_with_a_dot_wins_over_a_path(kind: Callable[[list[Record]], Source]) -> None:
    source = kind([{"a.b": 1, "a": "no struct"}, {"a.b": None, "a": "nor this"}])
    assert source.read([1, 0], {"a.b": "int8"})["a.b"].to_pylist() == [None, 1]
    assert source.read([1, 0], ["a.b"])["a.b"].to_pylist() == [None, 1]


MIXED: list[Record] = [
    {"a.b": 1, "a": "no struct"},
    {"a": {"b": 2}},
    {"a.b": None, "a": {"b": 3}},
    {"a.b": 4, "a": {"b": 5}},
    {"a.b": None, "a": 6},
    {},
    {"a": None},
]


@pytest.mark.parametrize("without", [(), (0, 4)], ids=["any parent", "objects only"])
def test_a_name_with_a_dot_wins_only_in_records_that_have_it(without: tuple[int, ...]) -> None:
    records = [record for row, record in enumerate(MIXED) if row not in without]
    source = ListSource(records)
    ids = [*range(len(records)), 0, 1]
    wanted = [pick(records[i], "a.b") for i in ids]
    assert 2 in wanted
    assert source.read(ids, {"a.b": "int8"})["a.b"].to_pylist() == wanted
    assert [source.read([i], {"a.b": "int8"})["a.b"][0].as_py() for i in ids] == wanted
    for text in ("json", "text"):
        expected = [None if one is None else str(one) for one in wanted]
        assert source.read(ids, {"a.b": text})["a.b"].to_pylist() == expected


def test_a_path_that_does_not_fit_is_told_beside_a_name_with_a_dot() -> None:
    source = ListSource([{"a.b": 1, "a": "x"}, {"a": {"b": "no number"}}])
    with pytest.raises(SchemaMismatchError, match="'no number'"):
        source.read([0, 1], {"a.b": "int8"})
    with pytest.raises(SchemaMismatchError, match=r"record 1: field 'a\.b' holds None"):
        ListSource([{"a.b": 1}, {"a": {}}]).read(
            [0, 1], pa.schema([pa.field("a.b", pa.int8(), nullable=False)])
        )


def test_a_late_name_with_a_dot_is_found_beside_the_path() -> None:
    early = [{"a": {"b": i}} for i in range(1500)]
    source = ListSource([*early, {"a.b": 7}, {"a.b": 8, "a": {"b": 9}}])
    assert "a.b" not in source.schema.names
    assert source.read([3, 1500, 1501], {"a.b": "int16"})["a.b"].to_pylist() == [3, 7, 8]


def test_lists_of_any_kind_are_rebuilt_as_asked() -> None:
    rows = [{"xs": [{"v": 1}, {"v": 2}]}, {"xs": None}, {"xs": [{"v": None}, None]}]
    for source in (ListSource(rows), TableSource(pa.Table.from_pylist(rows).slice(0))):
        for type_ in (
            pa.list_(pa.int8()),
            pa.large_list(pa.int64()),
            pa.list_(pa.float32(), 2),
            pa.list_(pa.field("element", pa.int32())),
        ):
            batch = source.read([2, 1, 0], {"xs[].v": type_})
            batch.validate(full=True)
            assert batch.schema.types == [type_]
            assert batch["xs[].v"].to_pylist() == [[None, None], None, [1, 2]]
            assert source.read([0], {"xs[]": pa.list_(pa.struct({"v": pa.int8()}))}).num_rows == 1


def test_lists_of_lists_keep_their_shape() -> None:
    rows = [{"m": [[{"x": 1}], [], None, [{"x": 2}, {}]]}, {"m": []}, {}]
    batch = ListSource(rows).read([2, 0, 1, 0], {"m[][].x": "list<list<int64>>"})
    first = [[1], [], None, [2, None]]
    assert batch["m[][].x"].to_pylist() == [None, first, [], first]


@pytest.mark.parametrize(
    ("field", "record"),
    [
        (pa.field("a.b", pa.int8(), nullable=False), 1),
        (pa.field("xs[].v", pa.list_(pa.int8()), nullable=False), 3),
        (pa.field("xs[].v", pa.list_(pa.field("item", pa.int8(), nullable=False))), 4),
        (
            pa.field(
                "m[][].x",
                pa.list_(pa.list_(pa.field("item", pa.int8(), nullable=False))),
            ),
            2,
        ),
    ],
)
def test_a_null_where_none_may_be_names_its_record(field: pa.Field, record: int) -> None:
    rows: list[Record] = [
        {"a": {"b": 1}, "xs": [{"v": 1}], "m": [[{"x": 1}], []]} for _ in range(5)
    ]
    rows[1]["a"] = None
    rows[2]["m"] = [[], [{"x": 1}, {"x": None}]]
    rows[3]["xs"] = None
    rows[4]["xs"] = [{"v": 1}, {"v": None}]
    ids = np.array([0, 1, 2, 3, 4, 0])
    with pytest.raises(SchemaMismatchError, match=rf"record {record}: field '{field.name[0]}"):
        projected(ListSource(rows), ids, pa.schema([field]))


def test_a_schema_keeps_its_metadata_and_flags() -> None:
    schema = pa.schema(
        [pa.field("user.age", pa.int8(), metadata={"k": "v"}), pa.field("id", pa.int8(), False)],  # noqa: FBT003
        metadata={"m": "n"},
    )
    batch = ListSource(sample_records(5)).read([0, 1], schema)
    assert batch.schema.equals(schema, check_metadata=True)


def test_an_unknown_name_tells_what_is_near() -> None:
    source = ListSource(sample_records(20))
    with pytest.raises(OptionError, match=r"no field 'user\.agee'.*'user\.age'"):
        source.read([0], ["user.agee"])
    with pytest.raises(OptionError, match=r"no field 'zzzz'.*they have id, score"):
        source.read([0], ["zzzz"])
    with pytest.raises(OptionError, match="they have none"):
        ListSource([{}]).read([0], ["zzzz"])


def test_a_name_that_only_these_records_have_gets_its_type_from_them() -> None:
    source = ListSource([*({"a": None} for _ in range(2000)), {"a": 1.5, "late": [1]}])
    assert "late" not in source.schema.names
    batch = source.read([2000, 0], ["late", "a"])
    assert batch.schema == pa.schema({"late": pa.list_(pa.int64()), "a": pa.float64()})
    assert source.arrow(fields=["late"])["late"].to_pylist()[-2:] == [None, [1]]


def test_fields_that_cannot_be_meant_are_refused() -> None:
    source = ListSource([{"a": [{"b": 1}]}])
    with pytest.raises(OptionError, match="ask for list<int8>"):
        source.read([0], {"a[].b": "int8"})
    with pytest.raises(OptionError, match="more than once"):
        source.read([0], ["a", "a"])
    with pytest.raises(OptionError, match=r"write \['a'\]"):
        source.read([0], "a")
    with pytest.raises(OptionError, match="named by a text"):
        source.read([0], [1])
    with pytest.raises(OptionError, match="did you mean int64"):
        source.read([0], {"a": "int65"})
    with pytest.raises(OptionError, match="not 7"):
        source.read([0], {"a": 7})


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("int8", pa.int8()),
        ("uint64", pa.uint64()),
        ("float16", pa.float16()),
        (" bool ", pa.bool_()),
        ("binary", pa.binary()),
        ("date32", pa.date32()),
        ("timestamp[ms]", pa.timestamp("ms")),
        ("timestamp[us, tz=Europe/Berlin]", pa.timestamp("us", "Europe/Berlin")),
        ("list< list<string> >", pa.list_(pa.list_(pa.string()))),
        ("large_list<int64>", pa.large_list(pa.int64())),
    ],
)
def test_types_are_written_as_text(text: str, type_: pa.DataType) -> None:
    assert arrow_type(text) == type_
    assert arrow_type(type_) == type_


@pytest.mark.parametrize("text", ["", "list", "list<>", "list<int64", "int", "list<int65>"])
def test_a_text_that_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="this is no field type"):
        arrow_type(text)


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "[]", "a[].", "a[", "a]b", "a[]b"])
def test_a_text_that_is_no_path_is_a_name(name: str) -> None:
    assert steps_of(name) == (name,)
    assert ListSource([{name: 1}]).read([0], {name: "int8"})[name].to_pylist() == [1]


def test_every_path_of_a_schema_has_its_type() -> None:
    schema = ListSource(sample_records(20)).schema
    for path in paths_in(schema):
        assert type_at(schema, path) is not None
    assert type_at(schema, "items[].price") == pa.list_(pa.float64())
    assert type_at(schema, "id[]") is None


def test_a_name_like_a_path_into_a_list_may_hold_what_is_no_list() -> None:
    source = ListSource([{"e[]": False}, {"e": [True]}, {"e[]": True}])
    columns = projected(source, np.arange(3), {"e[]": "bool"})
    assert columns.column(0).to_pylist() == [False, None, True]
