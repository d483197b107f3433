"""Columns of very many fields: right, and no more work for each of them than for each of few."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

import penstock
from penstock.datasets import missing_fields
from penstock.datasets.columns._units import ColumnUnit, UnitFiles
from penstock.work import Shared, UnitResults
from tests.datasets.wide_programs import RECORDS, work_of_materialize, write_wide
from tests.faults.child import run
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

MANY = rounds(150, 2_000)


def test_columns_of_many_fields_have_the_values_of_decoding(tmp_path: Path) -> None:
    types = write_wide(tmp_path / "a.jsonl", MANY)
    source = penstock.open(tmp_path / "a.jsonl")
    ids = [*reversed(range(RECORDS))]
    found = source.materialize(types).read(ids, types)
    assert found.equals(source.read(ids, types))
    assert found.column(MANY - 1).to_pylist() == [[number, MANY - 1] for number in ids]


def test_the_work_for_a_column_is_the_same_however_many_there_are(tmp_path: Path) -> None:
    few, many = (
        run(work_of_materialize, str(tmp_path / f"{count}.jsonl"), count) for count in (20, 80)
    )
    assert many["open"] <= 4 * few["open"]
    assert many["call"] <= 4 * few["call"]


def test_what_units_hold_of_some_records_is_read_once_for_many_columns(tmp_path: Path) -> None:
    batch = pa.record_batch({f"f{number}": [number] for number in range(100)})
    results, source = UnitResults(str(tmp_path)), Shared(penstock.open([{}]))
    units = [ColumnUnit(results, at, source, 0, 1, batch.schema, "raise", 0) for at in range(2)]
    for unit in units:
        with pa.ipc.new_file(unit.name, batch.schema) as writer:
            writer.write_batch(batch)
    files = UnitFiles(units)
    first = [files.column(which, number) for number in range(100) for which in range(2)]
    again = [files.column(which, number) for number in range(100) for which in range(2)]
    assert [one is other for one, other in zip(first, again, strict=True)] == [True] * 200
    assert [array.to_pylist() for array in again] == [[n // 2] for n in range(200)]


def test_many_paths_into_one_object_are_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    inner = ", ".join(f'"f{number}": {number}' for number in range(MANY))
    path.write_text(f'{{"o": {{{inner}}}}}\n{{"o": null}}\n')
    types = {f"o.f{number}": "int64" for number in range(MANY)}
    found = penstock.open(path).read([1, 0], types)
    assert found.to_pylist() == [
        dict.fromkeys(types),
        {name: number for number, name in enumerate(types)},
    ]


def test_all_missing_fields_are_told_and_the_first_with_a_hint() -> None:
    source = penstock.open(pa.table({"price": [1]}))
    told = [missing.text for missing in missing_fields(source, [f"pirce{n}" for n in range(50)])]
    assert told[0] == "there is no field 'pirce0' in these records: did you mean 'price'?"
    assert told[49] == "there is no field 'pirce49' in these records."
