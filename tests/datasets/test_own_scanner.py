"""A format with a scanner of its own needs nothing else: here for paragraphs, cut into parts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

import penstock
from penstock.errors import OptionError
from penstock.index import BuildOptions, FilePart, list_files, make_index, parts_of
from penstock.index._formats import FORMATS
from tests.cli.commands import document, invoke
from tests.datasets.paragraphs import PARAGRAPHS, ParagraphRows, ParagraphScanner
from tests.datasets.source_contract import SourceContract
from tests.index.checked import bad_of, hidden, meta_of, profile_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.datasets import Source
    from tests.datasets.sample import Record

COUNT = 120
UNIT = 500


@pytest.fixture(autouse=True)
def row() -> Iterator[None]:
    FORMATS.append(PARAGRAPHS)
    yield
    FORMATS.remove(PARAGRAPHS)


def records(start: int = 0, stop: int = COUNT) -> list[Record]:
    return [{"id": i, "name": f"{i:x}" * (i % 9 + 1) + "-"} for i in range(start, stop)]


def text_of(some: list[Record]) -> bytes:
    paragraphs = ("".join(f"{k}: {v}\n" for k, v in record.items()) for record in some)
    return "\n".join(paragraphs).encode()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder of a plain file and a compressed one."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.rec").write_bytes(text_of(records(0, 80)))
    (tmp_path / "data" / "b.rec.zst").write_bytes(zstandard.compress(text_of(records(80))))
    return tmp_path / "data"


def build(place: Path, scanner: ParagraphScanner | None = None, **options: Any) -> None:
    scanner = ParagraphScanner() if scanner is None else scanner
    options = {"progress": False, "unit_bytes": UNIT} | options
    make_index(list_files(place, PARAGRAPHS.endings), scanner, "overwrite",
               build=BuildOptions(**options))  # fmt: skip


def parts(place: Path) -> list[FilePart]:
    (found,) = list_files(place / "a.rec").files
    return parts_of(found, 0, ParagraphScanner(), UNIT, None)


class TestContract(SourceContract):
    has_raw = True

    @pytest.fixture
    def expected(self) -> list[Record]:
        return records()

    @pytest.fixture
    def open_source(self, place: Path) -> Callable[[], Source]:
        return lambda: penstock.open(place)


def test_parts_begin_where_records_do_and_make_up_the_file(place: Path) -> None:
    text, some = (place / "a.rec").read_bytes(), parts(place)
    assert len(some) > 3
    assert b"".join(text[part.start : part.stop] for part in some) == text
    assert all(text[: part.start].endswith(b"\n\n") for part in some[1:])


@pytest.mark.parametrize("workers", [0, 2])
def test_parts_find_what_one_scan_finds(place: Path, workers: int) -> None:
    build(place, num_workers=0)
    rows = rows_of(place)
    assert len(rows) == COUNT
    for options in ({"num_workers": 2}, {"validate": True, "num_workers": workers}):
        build(place, **options)
        assert rows_of(place) == rows
        assert penstock.open(place)[:] == records()
    assert (meta_of(place)["kind"], hidden(place)) == ("paragraphs", [])


def test_bad_records_of_any_part_are_set_aside_with_their_lines(place: Path) -> None:
    text = (place / "a.rec").read_bytes().replace(b"id: 7\n", b"id 7\n").replace(b"id: 70", b"\xff")
    (place / "a.rec").write_bytes(text)
    done = invoke("index", place, "--validate", "--profile", "--json")
    assert done.exit_code in {0, 1}
    whole = (rows_of(place), bad_of(place), profile_of(place))
    at = [text[: text.index(bad)].count(b"\n") + 1 for bad in (b"id 7\n", b"\xff")]
    assert [(file, line) for file, line, _, _ in whole[1]] == [("a.rec", line) for line in at]
    build(place, validate=True, profile=True, num_workers=2)
    assert (rows_of(place), bad_of(place), profile_of(place)) == whole
    kept = [record for record in records() if record["id"] not in {7, 70}]
    assert penstock.open(place)[:] == kept
    assert profile_of(place)["records"] == len(kept)
    told = {field["path"]: field for field in document("profile", place)["fields"]}
    assert told.keys() == {"id", "name"}


def test_a_file_that_grew_is_scanned_from_where_it_ended(place: Path) -> None:
    build(place, validate=True, num_workers=0)
    with (place / "a.rec").open("ab") as file:
        file.write(b"\n" + text_of(records(0, 40)))
    assert document("index", place, "--update")["records"] == COUNT + 40
    assert penstock.open(place)[COUNT:] == records(0, 40)


def test_without_a_decode_records_are_found_and_not_read(place: Path) -> None:
    class OnlyFinds(ParagraphScanner):
        decode = None

    build(place, OnlyFinds(), num_workers=0, validate=False)
    rows = rows_of(place)
    with pytest.raises(OptionError, match="paragraphs can be neither validated nor profiled"):
        build(place, OnlyFinds(), num_workers=0, validate=True)
    assert rows_of(place) == rows


def test_columns_loader_and_resume_know_nothing_of_it(place: Path) -> None:
    assert document("materialize", place, "id:int64")["records"] == COUNT

    def loader(materialize: Any) -> Any:
        source = penstock.open(place)
        return penstock.DataLoader(
            source, {"id": "int64", "name": "string"}, batch_size=7, shuffle=True,
            num_workers=0, materialize=materialize,
        )  # fmt: skip

    whole = list(loader(materialize=False))
    assert sorted(int(i) for batch in whole for i in batch["id"]) == list(range(COUNT))
    first, second = loader(materialize=True), loader(materialize=False)
    batches = iter(first)
    for _ in range(4):
        next(batches)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [batch["name"] for batch in second] == [batch["name"] for batch in whole[4:]]


def test_it_opens_by_its_name_and_verbs_show_it(place: Path) -> None:
    assert isinstance(penstock.open(place / "a.rec"), ParagraphRows)
    assert document("show", place, "61") == [records()[61]]
    assert document("info", place)["format"] == "paragraphs"
    assert invoke("check", place).exit_code == 0
