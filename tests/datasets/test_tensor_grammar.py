from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import FieldEncoder
from penstock.errors import OptionError

if TYPE_CHECKING:
    import random

INTEGERS = {f"{u}int{bits}": (u, bits) for u in ("", "u") for bits in (8, 16, 32, 64)}
FLOATS = ["float16", "float32", "float64"]
MOMENTS = ["date32", "date64", "timestamp[us]", "timestamp[ms, UTC]", "duration[ns]", "time32[s]"]


def defaults(name: str) -> st.SearchStrategy[str]:
    if name == "bool":
        return st.sampled_from(["true", "false"])
    if name in FLOATS:
        return st.sampled_from(["0.0", "-1.5", "nan", "inf", "1000.0"])
    u, bits = INTEGERS.get(name, ("", 32))
    low, high = (0, 2**bits - 1) if u else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(low, high).map(str)


@st.composite
def type_texts(draw: st.DrawFn) -> str:
    """Return any type in the spelling that types are shown in."""
    name = draw(st.sampled_from(["bool", *INTEGERS, *FLOATS, *MOMENTS]))
    sizes = "".join(f"[{n}]" for n in draw(st.lists(st.integers(1, 99), max_size=2)))
    default = draw(st.just("") | defaults(name).map(" = {}".format))
    shape = draw(st.sampled_from(["plain", "optional", "padded", "list", "text", "category"]))
    if shape == "optional":
        return f"{name}{sizes}?"
    if shape == "padded":
        return f"{name}{sizes}[:{draw(st.integers(1, 99))}]{default}"
    if shape == "category":
        return shape
    text = f"{name}{sizes}{default}"
    if shape == "text":
        text = draw(st.sampled_from(["string", "binary", 'string = ""', 'string = "a \\"b"']))
    depth = draw(st.integers(1, 3)) if shape == "list" else draw(st.sampled_from([0, 0, 2]))
    return "list<" * depth + text + ">" * depth


def type_of(text: Any) -> str:
    return FieldEncoder({"x": text}).types["x"]


@given(type_texts())
def test_a_type_is_shown_as_it_is_written(text: str) -> None:
    assert type_of(text) == text


def test_a_text_has_single_or_double_quotes() -> None:
    assert type_of("string = 'it is \\ \"so\"'") == r'string = "it is \\ \"so\""'
    assert type_of('binary=""') == 'binary = ""'


@given(type_texts(), st.randoms(use_true_random=False))
def test_spaces_are_free(text: str, chance: random.Random) -> None:
    if '"' in text:
        return
    signs = "<>[]?=:,"
    spaced = "".join(
        f"{' ' * chance.randint(0, 2)}{c}{' ' * chance.randint(0, 2)}" if c in signs else c
        for c in text
    )
    assert type_of(f" {spaced}\n") == text
    assert type_of(text.replace(" = ", "=")) == text


@given(st.text(alphabet="int8432floatslistcategory<>[]?=:,- '\"", max_size=20))
def test_any_other_text_is_an_error_that_shows_place_and_grammar(text: str) -> None:
    try:
        shown = type_of(text)
    except OptionError as error:
        said = str(error)
    else:
        assert type_of(shown) == shown
        return
    lines = said.splitlines()
    assert lines[0] == "field 'x': this is no field type:"
    assert lines[1] == f"    {text}"
    assert lines[2].lstrip().startswith("^ ")
    assert "float32[768]" in said


FAULTS = [
    ("int6", 0, "did you mean int64"),
    ("", 0, "a type was expected"),
    ("list<int64", 10, "'>' was expected"),
    ("list int64", 5, "'<' was expected"),
    ("int8 = 300", 7, "no int8"),
    ("uint8 = -1", 8, "no uint8"),
    ("float32 = 1e39", 10, "no float32"),
    ("bool = 1", 7, "no bool"),
    ("float32[0]", 7, "at least 1"),
    ("float32[]", 7, "a size was expected"),
    ("float32[-1]", 7, "a size was expected"),
    ("int64[:5][3]", 9, "nothing more"),
    ("int64[:5]?", 9, "nothing more"),
    ("list<int64?>", 5, "cannot stand inside"),
    ("list<category>", 5, "cannot stand inside"),
    ("list<int64[:5]>", 5, "cannot stand inside"),
    ("list<int64>[5]", 11, "nothing more"),
    ("list<int64> = 0", 12, "nothing more"),
    ("string?", 6, "nothing more"),
    ("string[3]", 6, "nothing more"),
    ("string = 5", 9, "in quotes"),
    ('string = "a', 9, "in quotes"),
    ('string = "\\x"', 9, "no text"),
    ('string = "\\ud800"', 9, "no text"),
    ("category?", 8, "nothing more"),
    ("timestamp", 0, "timestamp[us]"),
    ("timestamp[min]", 0, "timestamp[us]"),
    ("duration[us, UTC]", 0, "duration[us]"),
    ("int64 int64", 6, "nothing more"),
    ("int64? = 3", 7, "nothing more"),
]


@pytest.mark.parametrize(("text", "at", "says"), FAULTS, ids=[repr(fault[0]) for fault in FAULTS])
def test_a_fault_is_pointed_at(text: str, at: int, says: str) -> None:
    with pytest.raises(OptionError) as failure:
        type_of(text)
    lines = str(failure.value).splitlines()
    assert lines[1] == f"    {text}"
    assert lines[2].index("^") == 4 + at
    assert says in lines[2]


ARROW = [
    (pa.int64(), "int64"),
    (pa.float16(), "float16"),
    (pa.large_string(), "string"),
    (pa.binary(4), "binary"),
    (pa.list_(pa.list_(pa.float64())), "list<list<float64>>"),
    (pa.large_list(pa.int8()), "list<int8>"),
    (pa.list_(pa.list_(pa.float32(), 3), 2), "float32[3][2]"),
    (pa.timestamp("ns", "Europe/Berlin"), "timestamp[ns, Europe/Berlin]"),
    (pa.date32(), "date32"),
    (pa.time64("ns"), "time64[ns]"),
    (pa.dictionary(pa.int32(), pa.string()), "category"),
]


@pytest.mark.parametrize(("arrow", "text"), ARROW, ids=[case[1] for case in ARROW])
def test_an_arrow_type_stands_for_a_field_type(arrow: pa.DataType, text: str) -> None:
    assert type_of(arrow) == text


@pytest.mark.parametrize(
    "type_",
    [pa.struct({"a": pa.int8()}), pa.decimal128(5), pa.map_(pa.string(), pa.int8()), int, None],
)
def test_what_no_tensor_stands_for_is_refused(type_: Any) -> None:
    with pytest.raises(OptionError, match="float32\\[768\\]"):
        type_of(type_)
