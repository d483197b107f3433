"""`map`, and `where` with a function or with lengths."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from pyarrow import csv

import penstock
from penstock.datasets._mapped import function_name
from penstock.errors import OptionError, SchemaMismatchError
from penstock.order import CostPlan

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [{"n": number, "t": "x" * (number % 5), "l": [0] * (number % 3)} for number in range(40)]


def doubled(record: dict[str, Any]) -> dict[str, Any]:
    return {"n": record["n"] * 2, "name": f"record {record['n']}"}


def is_even(record: dict[str, Any]) -> bool:
    return bool(record["n"] % 2 == 0)


@pytest.fixture(params=["list", "jsonl", "zst", "gz", "csv", "parquet"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> penstock.datasets.Source:
    if request.param == "list":
        return penstock.open(RECORDS)
    path = tmp_path / f"a.{'jsonl.' if request.param in ('zst', 'gz') else ''}{request.param}"
    flat = [{"n": record["n"]} for record in RECORDS]
    if request.param in ("csv", "parquet"):
        write = csv.write_csv if request.param == "csv" else pq.write_table
        write(pa.Table.from_pylist(flat), path)
    else:
        with penstock.writer(path) as writer:
            writer.write(flat)
    return penstock.open(path)


def test_every_record_is_what_the_function_makes_of_it(source: penstock.datasets.Source) -> None:
    mapped = source.map(doubled)
    assert len(mapped) == 40
    assert mapped[3] == {"n": 6, "name": "record 3"}
    assert [record["n"] for record in mapped] == list(range(0, 80, 2))
    assert mapped.read([5, 2], {"n": "int32"}).to_pydict() == {"n": [10, 4]}
    assert mapped.arrow([1]).to_pylist() == [{"n": 2, "name": "record 1"}]
    assert mapped.schema.names == ["n", "name"]
    views = mapped.take([7, 8]), mapped.where("n > 70"), mapped.split(a=0.5, b=0.5)[0]
    assert [record["n"] for record in views[0]] == [14, 16]
    assert [record["n"] for record in views[1]] == [72, 74, 76, 78]
    assert {record["n"] for record in views[2]} < set(range(0, 80, 2))


@pytest.mark.parametrize("workers", [0, "auto", 2])
def test_a_loader_encodes_what_the_function_makes_and_resumes(workers: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with penstock.writer(path) as writer:
        writer.write(RECORDS)

    def loader() -> penstock.DataLoader:
        mapped = penstock.open(path).map(doubled)
        return penstock.DataLoader(
            mapped, {"n": "int64"}, batch_size=7, shuffle=True, num_workers=workers
        )

    whole = [batch["n"].tolist() for batch in loader()]
    assert sorted(chain.from_iterable(whole)) == list(range(0, 80, 2))
    begun = loader()
    run = iter(begun)
    next(run)
    again = loader()
    again.load_state_dict(begun.state_dict())
    assert [batch["n"].tolist() for batch in again] == whole[1:]
    assert "a function makes the records" in begun.explain()["columns"]


def test_columns_of_mapped_records_are_refused_and_gzip_is_not_shuffled(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with penstock.writer(path) as writer:
        writer.write(RECORDS)
    mapped = penstock.open(path).map(doubled)
    with pytest.raises(OptionError, match="a function makes the records"):
        mapped.materialize({"n": "int64"})
    with pytest.raises(OptionError, match="gzip"):
        list(penstock.DataLoader(mapped, {"n": "int64"}, batch_size=4, shuffle=True))
    plain = penstock.DataLoader(mapped, {"n": "int64"}, batch_size=40)
    assert next(iter(plain))["n"].tolist() == list(range(0, 80, 2))


def test_its_fingerprint_is_of_the_records_and_of_the_functions_name() -> None:
    one, other = penstock.open(RECORDS), penstock.open(RECORDS[1:])
    assert one.map(doubled).fingerprint == one.map(doubled).fingerprint
    different = {one.fingerprint, one.map(doubled).fingerprint, one.map(is_even).fingerprint}
    assert len({*different, other.map(doubled).fingerprint}) == 4
    assert function_name(partial(doubled, 1)) != function_name(partial(doubled, 2))
    shorter = one.map(doubled)
    assert penstock.open([*RECORDS, {"n": 1}]).map(doubled).was(shorter.fingerprint, 40)


def test_what_is_found_of_mapped_records_is_not_kept_for_another_function(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with penstock.writer(path) as writer:
        writer.write({"n": n} for n in range(1, 21))
    for made in ([*range(1, 21)], [10] * 20):
        mapped = penstock.open(path).map(lambda record, made=made: {"n": made[record["n"] - 1]})
        assert [record["n"] for record in mapped.where("n > 15")] == [n for n in made if n > 15]
        assert sum(map(len, mapped.split(by="n", a=0.5, b=0.5))) == 20
        batches = penstock.DataLoader(mapped, batch_size=CostPlan("n", 20))
        assert max(sum(record["n"] for record in batch) for batch in batches) == 20
        expected = sum(1 for _ in batches)
        assert len(batches) == expected == (14 if made[0] == 1 else 10)


def test_an_error_of_the_function_names_the_record() -> None:
    mapped = penstock.open(RECORDS).map(lambda record: record["gone"])
    with pytest.raises(KeyError) as raised:
        mapped[[3, 4]]
    assert "record 3" in raised.value.__notes__[0]
    with pytest.raises(OptionError, match="a function of one record"):
        penstock.open(RECORDS).map("n")  # type: ignore[arg-type]
    with pytest.raises(SchemaMismatchError, match="only dicts have columns"):
        penstock.open(RECORDS).map(is_even).read([0], {"n": "int64"})


def test_a_function_chooses_records(source: penstock.datasets.Source) -> None:
    even = source.where(is_even)
    assert [record["n"] for record in even] == list(range(0, 40, 2))
    assert even.read([1, 3], {"n": "int64"}).to_pydict() == {"n": [2, 6]}
    assert even.fingerprint == source.where(lambda record: record["n"] % 2 == 0).fingerprint
    assert even.fingerprint != source.where(lambda _: True).fingerprint
    assert len(source.where(lambda _: False)) == 0


def test_appended_records_leave_the_chosen_ones_as_they_were() -> None:
    one = penstock.open(RECORDS).where(is_even)
    more = penstock.open([*RECORDS, {"n": 41}, {"n": 42}]).where(is_even)
    assert len(more) == 21
    assert more.was(one.fingerprint, 20)
    assert not more.was(penstock.open(RECORDS).where(lambda _: True).fingerprint, 40)


@given(st.lists(st.text(max_size=4) | st.none(), min_size=1), st.integers(-1, 5))
def test_a_text_is_as_long_as_it_has_characters(texts: list[str | None], limit: int) -> None:
    source = penstock.open([{"t": text, "l": list(text or "")} for text in texts])
    expected = [n for n, text in enumerate(texts) if text is not None and len(text) > limit]
    if any(text is not None for text in texts):
        assert source.where(f"len(t) > {limit}").ids.tolist() == expected  # type: ignore[attr-defined]
    lengths = np.array([len(text or "") for text in texts])
    found = source.where(f"{limit} <= len(l)").ids  # type: ignore[attr-defined]
    assert found.tolist() == np.flatnonzero(lengths >= limit).tolist()


def test_lengths_stand_where_fields_do() -> None:
    source = penstock.open(RECORDS)
    found = source.where("len(t) in (1, 2) and not len(l) == 0")
    assert [record["n"] for record in found] == [
        record["n"] for record in RECORDS if len(record["t"]) in (1, 2) and record["l"]
    ]
    assert len(penstock.open([{"len": 3}]).where("len == 3")) == 1
    for text, problem in {
        "len(n) > 1": "only texts and lists have a length",
        "len(t) > 'a'": "the text 'a'",
        "len(t) contains 'a'": r"after len\(t\): a comparison",
        "len(t": r"'\)' is expected",
    }.items():
        with pytest.raises(OptionError, match=problem):
            source.where(text)
