"""A new format is one row and one small file: here for records of fixed width."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import penstock
from penstock.errors import CorruptFileError, OptionError
from penstock.index._formats import FORMATS
from tests.cli.commands import document, invoke, succeed
from tests.datasets.fixed_width import FIXED_WIDTH, MAGIC, FixedWidthRows, write
from tests.datasets.source_contract import SourceContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.datasets import Source
    from tests.datasets.sample import Record

TYPE = [("id", "<i8"), ("price", "<f8"), ("name", "S8")]
COUNT = 100


@pytest.fixture(autouse=True)
def row() -> Iterator[None]:
    FORMATS.append(FIXED_WIDTH)
    yield
    FORMATS.remove(FIXED_WIDTH)


def records(start: int = 0, stop: int = COUNT) -> list[Record]:
    return [{"id": i, "price": i / 4, "name": f"n{i}"} for i in range(start, stop)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder of two files."""
    (tmp_path / "data").mkdir()
    for name, start, stop in (("a", 0, 60), ("b", 60, COUNT)):
        rows = [tuple(record.values()) for record in records(start, stop)]
        write(tmp_path / "data" / f"{name}.fwb", rows, TYPE)
    return tmp_path / "data"


class TestContract(SourceContract):
    @pytest.fixture
    def expected(self) -> list[Record]:
        return records()

    @pytest.fixture
    def open_source(self, place: Path) -> Callable[[], Source]:
        return lambda: penstock.open(place)


def test_it_opens_by_its_name_and_by_its_first_bytes(place: Path) -> None:
    for what in (place, place / "a.fwb", f"{place}/*.fwb", [place / "b.fwb", place / "a.fwb"]):
        assert isinstance(penstock.open(what), FixedWidthRows)
    unnamed = (place / "a.fwb").rename(place / "records")
    assert len(penstock.open(unnamed)) == 60
    (place / "c.csv").write_text("a\n1\n")
    with pytest.raises(OptionError, match="1 of CSV and 1 of fixed-width records"):
        penstock.open(place)


def test_views_are_of_its_records(place: Path) -> None:
    source = penstock.open(place)
    train, rest = source.split(train=0.5, rest=0.5)
    assert sorted(record["id"] for record in [*train, *rest]) == list(range(COUNT))
    assert source.where("price >= 20")[:] == records(80)
    assert source.take([7, 3])[:] == [records()[7], records()[3]]
    assert (source + source)[-1] == records()[-1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True, "block"])
def test_a_loader_goes_on_where_it_was(place: Path, workers: int, shuffle: Any) -> None:
    def loader() -> Any:
        return penstock.DataLoader(
            penstock.open(place),
            {"id": "int64", "price": "float32"},
            batch_size=7,
            shuffle=shuffle,
            num_workers=workers,
            materialize=False,
        )

    whole = [batch.ids.tolist() for batch in loader()]
    assert sorted(chain.from_iterable(whole)) == list(range(COUNT))
    first, second = loader(), loader()
    batches = iter(first)
    for _ in range(4):
        next(batches)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    rest = list(second)
    assert [batch.ids.tolist() for batch in rest] == whole[4:]
    assert np.allclose(rest[0]["price"], np.array(whole[4]) / 4)


def test_columns_are_decoded_once_and_of_its_present_records(place: Path) -> None:
    columns = penstock.open(place).materialize({"price": "float32"}, progress=False)
    assert columns.read([5], {"price": "float32"})["price"].to_pylist() == [1.25]
    write(place / "b.fwb", [(60, 7.0, "x")], TYPE)
    again = penstock.open(place).materialize({"price": "float32"}, progress=False)
    assert again.read([60], {"price": "float32"})["price"].to_pylist() == [7.0]


def test_info_tells_of_files_and_columns(place: Path) -> None:
    told = document("info", place)
    assert (told["format"], told["records"], told["files"]) == ("fixed-width", COUNT, 2)
    assert [one["records"] for one in told["per_file"]] == [60, 40]
    assert [column["name"] for column in told["columns"]] == ["id", "price", "name"]
    assert "fixed-width records" in succeed("info", place / "a.fwb")


def test_records_are_shown(place: Path) -> None:
    assert document("show", place, "61") == [records()[61]]
    assert document("show", place, "--where", "id > 97") == records(98)


def test_damage_is_found(place: Path) -> None:
    assert "nothing wrong" in succeed("check", place)
    with (place / "a.fwb").open("ab") as file:
        file.write(b"x")
    done = invoke("check", place)
    assert done.exit_code == 3
    assert "a.fwb ends inside of a record" in done.stderr


@pytest.mark.parametrize("damage", [b"", b"FWB", b"FWB2\0\0\0\0", b"FWB1\xff\0\0\0x"])
def test_a_damaged_head_is_refused(place: Path, damage: bytes) -> None:
    (place / "b.fwb").write_bytes(damage)
    with pytest.raises(CorruptFileError, match=r"b\.fwb has no whole head"):
        penstock.open(place)


def test_files_of_other_types_are_refused_and_heads_may_differ(place: Path) -> None:
    head = repr(TYPE).replace(" ", "").encode()
    rows = np.array([(60, 15.0, "n60")], TYPE).tobytes()
    (place / "b.fwb").write_bytes(MAGIC + len(head).to_bytes(4, "little") + head + rows)
    assert penstock.open(place)[:] == records(0, 61)
    write(place / "b.fwb", [(1, 2.0)], TYPE[:2])
    with pytest.raises(CorruptFileError, match=r"b\.fwb has records of another type"):
        penstock.open(place)


def test_a_profile_is_made_and_kept(place: Path) -> None:
    told = document("profile", place)
    assert told["records"] == COUNT
    assert [field["path"] for field in told["fields"]] == ["id", "price", "name"]
    assert "read just now" not in succeed("profile", place)


def test_it_needs_no_index(place: Path) -> None:
    assert "2 files of fixed-width records, which need no index" in succeed("index", place)
    assert document("index", place)["index"] is None
    assert invoke("index", place, "--validate").exit_code == 2
    assert not (place / "index").exists()


def test_columns_are_made_listed_and_dropped(place: Path) -> None:
    assert document("materialize", place, "price:float32")["records"] == COUNT
    assert "price" in succeed("materialize", place, "--list")
    assert document("info", place)["materialized"]["columns"] == 1
    succeed("materialize", place, "--drop")
    assert document("info", place)["materialized"]["columns"] == 0


def test_records_are_converted_to_lines(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl.zst"
    assert document("convert", place, out)["records"] == COUNT
    assert penstock.open(out)[:] == records()


def test_a_run_is_planned_and_measured(place: Path) -> None:
    told = document("plan", place, "--batch-size", 8, "--step", "0", "--show")
    (step,) = told["steps"]
    assert [row["value"] for row in step["records"]] == [
        records()[row["record"]] for row in step["records"]
    ]
    assert document("plan", place, "--batch-size", 8)["records"] == COUNT
    assert document("bench", place, "--batch-size", 8, "--seconds", 0.1, "--workers", 0)["runs"]
