"""Records with a field of every type, good ones and bad ones, and batches in a form to compare."""

from __future__ import annotations

import gzip
import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from hypothesis import strategies as st

import penstock
from penstock.batch import Batch, Categories, Jagged, Masked, Padded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from penstock import DataLoader
    from penstock.datasets import Source

Values = st.SearchStrategy[Any]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
small = st.integers(-9, 9)
SCALARS: dict[str, tuple[str, Values]] = {
    "int": ("int64 = -1", st.integers(-(2**63), 2**63 - 1)),
    "strict": ("int8", st.integers(-128, 127)),
    "maybe": ("uint16?", st.integers(0, 65_535)),
    "float": ("float32", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "double": ("float64?", st.floats(allow_nan=False, allow_infinity=False)),
    "half": ("float16 = 0", st.sampled_from([0.5, -2.0, 3])),
    "flag": ("bool = false", st.booleans()),
    "flags": ("bool?", st.booleans()),
    "text": ("string", texts),
    "filled": ('string = "-"', texts),
    "kind": ("category", st.sampled_from(["a", "b", "c", "d"])),
}
"""What every format has."""
NESTED: dict[str, tuple[str, Values]] = {
    "day": ("date32?", st.just("1999-12-31") | st.integers(0, 20_000)),
    "when": ("timestamp[us] = 0", st.integers(0, 2**50) | st.just("2024-02-29T12:34:56.789")),
    "took": ("duration[ms]?", st.integers(0, 10**9)),
    "bytes": ("binary", texts),
    "vector": ("float32[3]", st.lists(small, min_size=3, max_size=3)),
    "pair": ("int64[2]?", st.lists(small, min_size=2, max_size=2)),
    "zeros": ("int16[2] = 0", st.lists(small, min_size=2, max_size=2)),
    "few": ("int64[:2]", st.lists(small, max_size=4)),
    "fewer": ("float32[:3] = -1", st.lists(small | st.none(), max_size=4)),
    "list": ("list<int64>", st.lists(small, max_size=4)),
    "holes": ("list<int32 = -7>", st.lists(small | st.none(), max_size=4)),
    "flat": ("list<bool = false>", st.lists(st.booleans() | st.none(), max_size=12)),
    "lists": ("list<list<float32>>", st.lists(st.lists(small, max_size=3), max_size=3)),
    "pairs": (
        "list<float32[2]>",
        st.lists(st.lists(small, min_size=2, max_size=2), max_size=3),
    ),
    "words": ("list<string>", st.lists(st.none() | texts, max_size=3)),
}
TYPES = {name: type_ for name, (type_, _) in (SCALARS | NESTED).items()}
PATHS = {"user.age": "int64?", "items[].price": "list<float32>", "items[].id": "list<int8 = 0>"}
users = st.fixed_dictionaries({}, optional={"age": st.integers(0, 99)})
items = st.lists(st.fixed_dictionaries({}, optional={"price": small, "id": small}), max_size=3)
odd = st.sampled_from(["no", -1, 2**70, 1.5, [], {}, [1, "x"], True, [None, None], "1999"])
BROKEN = '{"broken": '


@st.composite
def asked(draw: st.DrawFn, known: Mapping[str, tuple[str, Values]]) -> dict[str, str]:
    """Draw the fields that a loader is asked for."""
    names = draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=4, unique=True))
    return {name: known[name][0] for name in names}


def _sometimes(draw: st.DrawFn, values: Values, *, nulls: bool, is_odd: bool) -> Values:
    values = values | st.none() if nulls and draw(st.booleans()) else values
    return values | odd if is_odd and draw(st.integers(0, 2)) == 0 else values


@st.composite
def json_lines(
    draw: st.DrawFn, known: Mapping[str, tuple[str, Values]] = SCALARS | NESTED
) -> tuple[dict[str, str], list[str]]:
    """Draw fields with types and lines; null, missing, misfit and broken ones among them."""
    fields = draw(asked(known))
    is_odd = draw(st.booleans())
    values = {name: _sometimes(draw, known[name][1], nulls=True, is_odd=is_odd) for name in fields}
    if known is not SCALARS:
        paths = draw(st.sets(st.sampled_from(sorted(PATHS)), max_size=2))
        fields |= {path: PATHS[path] for path in sorted(paths)}
        values |= {"user": users | st.none(), "items": items | st.none()}
    are_missing = draw(st.booleans())
    whole = st.fixed_dictionaries(
        {} if are_missing else values, optional=values if are_missing else {}
    )
    has_broken = is_odd and draw(st.integers(0, 3)) == 0
    drawn = draw(st.lists(whole | st.none() if has_broken else whole, min_size=1, max_size=14))
    return fields, [
        BROKEN if one is None else json.dumps({"n": number, **one})
        for number, one in enumerate(drawn)
    ]


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, str], pa.Table]:
    """Draw fields with types and a table with a type of its own for each, which may not fit."""
    fields = draw(asked(SCALARS | NESTED))
    rows = draw(st.integers(1, 14))
    columns = {"n": pa.array(range(rows))}
    for name in fields:
        other = draw(st.sampled_from(sorted(SCALARS))) if name in SCALARS else name
        known = (SCALARS | NESTED)[other][1]
        drawn = draw(st.lists(known | st.none(), min_size=rows, max_size=rows))
        try:
            columns[name] = pa.array(drawn)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            columns[name] = pa.array([None if one is None else str(one) for one in drawn])
    return fields, pa.table(columns)


def write_lines(folder: Path, kind: str, lines: Iterable[str]) -> Source:
    """Write lines in one of the formats that have lines, and open them."""
    text = "".join(f"{line}\n" for line in lines)
    path = folder / f"a.{kind}"
    if kind == "jsonl.gz":
        path.write_bytes(gzip.compress(text.encode(), 1))
    elif kind == "jsonl.zst":
        import zstandard

        path.write_bytes(zstandard.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return penstock.open(path, progress=False)


def write_csv(folder: Path, lines: Iterable[str], names: Iterable[str]) -> Source:
    """Write the scalars of some lines as a table of text."""
    rows = [{} if line == BROKEN else json.loads(line) for line in lines]
    head = ["n", *names]
    table = [",".join(_cell(row.get(name)) for name in head) for row in rows]
    text = "\n".join([",".join(head), *table])
    (folder / "a.csv").write_text(text + "\n", encoding="utf-8")
    return penstock.open(folder / "a.csv", progress=False)


def _cell(value: object) -> str:
    text = "" if value is None else str(value).replace('"', '""')
    return f'"{text}"' if not isinstance(value, int | float) else text


def write_parquet(folder: Path, table: pa.Table) -> Source:
    pq.write_table(table, folder / "a.parquet", row_group_size=5)
    return penstock.open(folder / "a.parquet")


VIEWS = ("whole", "split", "taken", "where", "joined")


def view_of(source: Source, view: str) -> Source:
    """Return some of the records, some of them twice, in some order."""
    if view == "split":
        return source.split(a=0.6, b=0.4)[0]
    if view == "taken":
        return source.take([len(source) - 1, *range(0, len(source), 2), 0])
    if view == "where":
        return source.where("n >= 2 and n != 5")
    return source + source.take([0]) if view == "joined" else source


# What came out.


def shown(value: Any) -> Any:
    """Return anything in a batch as what can be compared: NaN is NaN, and 0.0 not -0.0."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), repr(value.tolist())
    if isinstance(value, Jagged):
        return "jagged", shown(value.values), shown(value.offsets)
    if isinstance(value, Masked):
        return "masked", shown(value.values), shown(value.mask)
    if isinstance(value, Padded):
        return "padded", shown(value.values), shown(value.lengths)
    if isinstance(value, Categories):
        return "codes", shown(value.codes), list(value.vocabulary)
    if isinstance(value, Batch):
        fields = {name: shown(field) for name, field in value.items()}
        return fields, shown(value.ids), shown(value.valid)
    if isinstance(value, pa.RecordBatch):
        value.validate(full=True)
        about = value.schema.metadata
        return value.schema.remove_metadata(), about, repr(value.to_pydict())
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, repr(value.tolist())
    return repr(value)


class Outcome(NamedTuple):
    """What became of a run."""

    batches: list[Any]
    error: tuple[type[Exception], dict[str, Any], str, list[str], str] | None
    """Its type, its facts, its text, its notes and its cause."""
    told: list[str]
    """What was logged."""
    bad: float
    """How many records were found bad."""

    def in_short(self) -> tuple[Any, ...]:
        """Return all but the words: which record, and not what is said about it."""
        kind, facts, *_ = self.error or (None, {})
        return self.batches, kind, facts.get("record"), len(self.told), self.bad


def outcome(loader: DataLoader) -> Outcome:
    """Go through all batches, until the end or an error."""
    batches: list[Any] = []
    error = None
    with _logged() as told:
        try:
            batches.extend(shown(batch) for batch in loader)
        except Exception as failure:  # noqa: BLE001 (compared)
            facts = {name: v for name, v in vars(failure).items() if not name.startswith("_")}
            notes = getattr(failure, "__notes__", [])
            cause = type(failure.__cause__).__name__
            error = type(failure), facts, str(failure), notes, cause
    return Outcome(batches, error, told, loader.stats()["bad_records"])


@contextmanager
def _logged() -> Iterator[list[str]]:
    told: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    handler = Handler(logging.WARNING)
    log = logging.getLogger("penstock.loading")
    log.addHandler(handler)
    try:
        yield told
    finally:
        log.removeHandler(handler)
