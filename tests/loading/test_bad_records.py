from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import penstock
from penstock import DataLoader
from penstock.errors import (
    BadRecordsError,
    CorruptFileError,
    MalformedLineError,
    SchemaMismatchError,
)
from tests.loading.samples import record

if TYPE_CHECKING:
    from pathlib import Path

WORKERS = (0, "auto", 2)
DECODED_OR_GATHERED = pytest.mark.parametrize("way", [False, True], ids=["decoded", "gathered"])
WAYS_AND_WORKERS = pytest.mark.parametrize(
    ("way", "workers"), [*((False, workers) for workers in WORKERS), (True, "auto")]
)
TYPES = {"n": "int64", "x": "float32", "tags": "list<int64>", "v": "float32[2]"}
BROKEN, NULL, SHORT, HUGE = 7, 20, 33, 50


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder, which keeps its index and its columns for all tests."""
    folder = tmp_path_factory.mktemp("lines")
    path = folder / "some.jsonl"
    records: list[dict[str, Any]] = [record(number) | {"v": [1, 2]} for number in range(60)]
    records[NULL]["n"] = None
    records[SHORT]["v"] = [1]
    records[HUGE]["n"] = 2**70
    texts = list(map(json.dumps, records))
    texts[BROKEN] = '{"n": 7, "x": '
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return folder


def rows(batches: list[Any]) -> dict[int, bool]:
    return {
        number: counts
        for batch in batches
        for number, counts in zip(
            batch.ids.tolist(),
            [True] * len(batch) if batch.valid is None else batch.valid.tolist(),
            strict=True,
        )
    }


class TestMask:
    @WAYS_AND_WORKERS
    @pytest.mark.parametrize("batch_size", [1, 9, 60])
    def test_a_bad_record_keeps_its_row_and_does_not_count(
        self, lines: Path, way: Any, workers: Any, batch_size: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        loader = DataLoader(
            lines,
            TYPES,
            batch_size=batch_size,
            on_error="mask",
            num_workers=workers,
            materialize=way,
        )
        with caplog.at_level(logging.WARNING, "penstock.loading"):
            batches = list(loader)
        assert len(batches) == len(loader)
        counts = rows(batches)
        assert {number for number, valid in counts.items() if not valid} == {
            *(BROKEN, NULL, SHORT, HUGE)
        }
        assert list(counts) == list(range(60))
        assert loader.stats()["bad_records"] == 4
        for batch in batches:
            good = slice(None) if batch.valid is None else batch.valid
            assert batch["n"][good].tolist() == batch.ids[good].tolist()
            assert batch["v"].shape == (len(batch), 2)
        told = [entry.getMessage() for entry in caplog.records]
        assert len(told) == 4
        assert str(lines) in told[0]
        assert "byte" in told[0]

    @DECODED_OR_GATHERED
    def test_more_than_max_bad_raises(self, lines: Path, way: Any) -> None:
        loader = DataLoader(lines, TYPES, batch_size=5, on_error="mask", max_bad=2, materialize=way)
        with pytest.raises(BadRecordsError, match="3 records are bad, more than max_bad=2"):
            list(loader)

    def test_a_list_of_records_has_none_there(self, lines: Path) -> None:
        batches = list(DataLoader(lines, batch_size=30, on_error="mask"))
        found = [one for batch in batches for one in batch]
        assert found[BROKEN] is None
        assert found[NULL]["n"] is None
        assert batches[0].valid.tolist() == [number != BROKEN for number in range(30)]
        assert batches[1].valid is None

    @DECODED_OR_GATHERED
    def test_arrow_tells_the_rows_that_count(self, lines: Path, way: Any) -> None:
        loader = DataLoader(
            lines, ["x"], batch_size=60, on_error="mask", output="arrow", materialize=way
        )
        (batch,) = loader
        valid = np.frombuffer(batch.schema.metadata[b"penstock.valid"], bool)
        assert np.flatnonzero(~valid).tolist() == [BROKEN]


class TestRaise:
    @WAYS_AND_WORKERS
    @pytest.mark.parametrize(
        ("number", "kind"),
        [
            (BROKEN, MalformedLineError),
            (NULL, SchemaMismatchError),
            (SHORT, SchemaMismatchError),
            (HUGE, SchemaMismatchError),
        ],
    )
    def test_names_the_record_and_both_remedies(
        self, lines: Path, way: Any, workers: Any, number: int, kind: type[Exception]
    ) -> None:
        others = {BROKEN, NULL, SHORT, HUGE} - {number}
        loader = DataLoader(
            lines,
            TYPES,
            batch_size=60,
            num_workers=workers,
            skip=sorted(others),
            materialize=way,
        )
        with pytest.raises(kind, match=rf"skip=\[{number}\].*on_error='mask'") as caught:
            list(loader)
        assert type(caught.value) is kind
        assert "skip=" in caught.value.remedy
        assert "In the batch of step 0" in "".join(caught.value.__notes__)

    @DECODED_OR_GATHERED
    def test_names_the_number_in_a_view(self, lines: Path, way: Any) -> None:
        view = penstock.open(lines).take([59, 58, BROKEN])
        with pytest.raises(MalformedLineError, match=r"skip=\[2\]"):
            list(DataLoader(view, {"x": "float32"}, batch_size=3, materialize=way))
        loader = DataLoader(view, {"x": "float32"}, batch_size=3, skip=[2], materialize=way)
        assert [batch.ids.tolist() for batch in loader] == [[0, 1]]

    @pytest.mark.parametrize("workers", WORKERS)
    def test_a_users_own_error_keeps_its_type_and_gets_the_records(
        self, lines: Path, workers: Any
    ) -> None:
        def encode(columns: Any) -> Any:
            raise ZeroDivisionError(f"mine, of {len(columns)}")

        encode.fields = {"x": "float32"}  # type: ignore[attr-defined]
        loader = DataLoader(lines, encode, batch_size=4, num_workers=workers, skip=[BROKEN])
        with pytest.raises(ZeroDivisionError, match="mine") as caught:
            list(loader)
        assert "records 0, 1, 2, 3 (4 in all)" in "".join(caught.value.__notes__)


class TestSkip:
    def test_shortens_the_order(self, lines: Path) -> None:
        loader = DataLoader(lines, {"x": "float32"}, batch_size=10, skip=[BROKEN, (20, 40)])
        seen = [number for batch in loader for number in batch.ids.tolist()]
        assert seen == [n for n in range(60) if n != BROKEN and not 20 <= n < 40]
        assert len(loader) == 4

    def test_reads_a_file_of_numbers(self, lines: Path, tmp_path: Path) -> None:
        listed = tmp_path / "skip.txt"
        listed.write_text("# these are bad\n7\n 20 : 40 \n\n59 # the last\n", encoding="utf-8")
        loader = DataLoader(lines, {"x": "float32"}, batch_size=60, skip=listed)
        assert loader.state_dict()["skip"] == [[7, 8], [20, 40], [59, 60]]
        listed.write_text("7\nx\n", encoding="utf-8")
        with pytest.raises(penstock.errors.OptionError, match="line 2"):
            DataLoader(lines, batch_size=1, skip=str(listed))
        with pytest.raises(penstock.errors.OptionError, match="cannot read"):
            DataLoader(lines, batch_size=1, skip=tmp_path / "none.txt")

    @WAYS_AND_WORKERS
    def test_added_at_a_resume_marks_rows_and_shortens_the_next_epoch(
        self, lines: Path, way: Any, workers: Any
    ) -> None:
        types = {"x": "float32"}

        def loader(**more: Any) -> DataLoader:
            return DataLoader(lines, types, batch_size=8, shuffle=True, materialize=way, **more)

        first = loader(skip=[30], num_workers=0)
        uncut = [n for b in loader(skip=[30, BROKEN], num_workers=0) for n in b.ids.tolist()]
        assert len(uncut) == 58
        whole = [first.explain(step).ids.tolist() for step in range(len(first))]
        at = next(step for step, ids in enumerate(whole) if BROKEN in ids)
        run = iter(first)
        seen = [next(run).ids.tolist() for _ in range(at)]
        with pytest.raises(MalformedLineError):
            next(run)
        second = loader(skip=[30, BROKEN], num_workers=workers)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        if at:
            batches = list(second)
            assert seen + [batch.ids.tolist() for batch in batches] == whole
            counts = rows(batches)
            assert [number for number, valid in counts.items() if not valid] == [BROKEN]
        state = second.state_dict()
        third = loader(num_workers=workers)
        third.load_state_dict(json.loads(json.dumps(state)))
        following = [number for batch in third for number in batch.ids.tolist()]
        assert len(following) == 58
        assert {BROKEN, 30}.isdisjoint(following)

    @DECODED_OR_GATHERED
    def test_a_second_resume_in_the_same_epoch_still_skips(self, lines: Path, way: Any) -> None:
        def loader(**more: Any) -> DataLoader:
            return DataLoader(lines, {"x": "float32"}, batch_size=3, materialize=way, **more)

        first = loader()
        run = iter(first)
        next(run)
        second = loader(skip=[BROKEN])
        second.load_state_dict(first.state_dict())
        run = iter(second)
        batch = next(run)
        assert batch.ids.tolist() == [3, 4, 5]
        third = loader()
        third.load_state_dict(second.state_dict())
        batch = next(iter(third))
        assert batch.ids.tolist() == [6, 7, 8]
        assert torch.equal(batch.valid, torch.tensor([True, False, True]))


class TestSeveralAtOnce:
    @DECODED_OR_GATHERED
    def test_the_error_is_that_of_the_first_bad_record_with_its_place(
        self, tmp_path: Path, way: Any
    ) -> None:
        path = tmp_path / "mix.jsonl"
        path.write_text('{"a": 1}\n{"a": null}\n{"a": tru\n{"a": "x"}\n', encoding="utf-8")
        view = penstock.open(path).take([0, 0, 1, 2, 3])
        with pytest.raises(SchemaMismatchError, match=r"record 2 of this source \(.*mix") as caught:
            list(DataLoader(view, {"a": "int64"}, batch_size=5, materialize=way))
        assert caught.value.record == 2  # type: ignore[attr-defined]
        assert "skip=[2, 3, 4]" in str(caught.value)
        loader = DataLoader(view, {"a": "int64"}, batch_size=5, skip=[2, 3, 4], materialize=way)
        assert [batch["a"].tolist() for batch in loader] == [[1, 1]]


def test_a_hundred_bad_records_are_logged_and_all_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": "text"}\n' * 250 + '{"n": 1}\n')
    loader = DataLoader(
        path, {"n": "int64"}, batch_size=50, num_workers=0, on_error="mask", max_bad=250
    )
    for _ in range(2):
        list(loader)
    assert loader.stats()["bad_records"] == 250
    assert caplog.text.count("does not count: ") == 100
    assert caplog.text.count("more records do not count") == 1


def test_a_damaged_part_of_a_file_is_masked_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(600)}), path, row_group_size=200, use_dictionary=False)
    data = bytearray(path.read_bytes())
    at = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    data[at + 30 : at + 60] = bytes(30)
    path.write_bytes(data)
    about: dict[str, Any] = {"batch_size": 60, "num_workers": 0, "materialize": False}
    masked = list(DataLoader(path, {"n": "int64"}, **about, on_error="mask", max_bad=600))
    counts = [n for n, is_good in rows(masked).items() if is_good]
    # Of a batch, all rows of the file go with the damaged ones.
    assert counts == [*range(180), *range(420, 600)]
    values = torch.cat([one["n"] if one.valid is None else one["n"][one.valid] for one in masked])
    assert values.tolist() == counts
    assert caplog.text.count("row group 1 cannot be read") == 1
    with pytest.raises(BadRecordsError, match="120 records are bad, more than max_bad=100"):
        list(DataLoader(path, {"n": "int64"}, **about, on_error="mask"))
    with pytest.raises(CorruptFileError, match="row group 1 cannot be read"):
        list(DataLoader(path, {"n": "int64"}, **about))


GOOD = {
    "i": 5,
    "x": 1.5,
    "s": "t",
    "c": "",
    "l": [1, 2],
    "v": [1, 2],
    "u": [3],
    "j": [4],
    "b": True,
}
BLANK_TYPES = {
    "i": "int64",
    "x": "float32",
    "s": "string",
    "t": "text",
    "c": "category",
    "l": "list<int64>",
    "v": "float32[2]",
    "u": "int64[:3]",
    "j": "json",
    "b": "bool",
    "maybe": "int64?",
    "other": "int64 = -1",
}


class TestStandIns:
    """Rows in place of bad records: blank, and never a copy of another record."""

    @pytest.fixture
    def three(self, tmp_path: Path) -> Path:
        """Two good records, and a bad one between them."""
        good = {**GOOD, "t": "u", "maybe": 7, "other": 9}
        path = tmp_path / "three.jsonl"
        path.write_text(
            "".join(json.dumps(one) + "\n" for one in (good, {**good, "i": "no"}, good))
        )
        return path

    @DECODED_OR_GATHERED
    @pytest.mark.parametrize("batch_size", [1, 3])
    def test_field_types_have_no_values(self, three: Path, way: Any, batch_size: int) -> None:
        loader = DataLoader(
            three, BLANK_TYPES, batch_size=batch_size, on_error="mask", materialize=way
        )
        batch = [*loader][1 if batch_size == 1 else 0]
        row = batch.ids.tolist().index(1)
        assert batch.valid.tolist() == [number != 1 for number in batch.ids.tolist()]
        assert [batch[name][row].tolist() for name in "ixvb"] == [0, 0, [0, 0], False]
        assert (batch["s"][row], batch["t"][row], batch["j"][row]) == ("", "", None)
        assert batch["c"].codes[row] == -1, "'' is a value of the vocabulary"
        assert batch["l"][row].tolist() == []
        assert batch["u"].mask[row].tolist() == [False] * 3
        assert batch["maybe"].mask[row].tolist() is False
        assert batch["other"][row].tolist() == -1

    def test_columns_of_arrow_are_blank(self, three: Path) -> None:
        types = {name: pa.string() if name == "s" else pa.int64() for name in "is"}
        (batch,) = DataLoader(three, types, batch_size=3, on_error="mask", output="arrow")
        assert batch.to_pylist()[1] == {"i": 0, "s": ""}

    def test_tokens_are_padding_without_labels(self, tmp_path: Path) -> None:
        path = tmp_path / "tokens.jsonl"
        path.write_text('{"tokens": [5, 6, 7]}\n{"tokens": [5, null, 7]}\n')
        (batch,) = DataLoader(path, penstock.Tokens(2), batch_size=2, on_error="mask")
        assert batch["input_ids"].tolist() == [[5, 6], [0, 0]]
        assert batch["labels"].tolist() == [[6, 7], [-100, -100]]

    def test_records_for_collate_have_the_shape_of_others_and_nothing_in_it(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "some.jsonl"
        path.write_text('{"a": [1, 2], "b": {"c": "x", "d": true}, "n": null, "f": 1.5}\n{"a\n')
        seen: list[Any] = []
        loader = DataLoader(path, collate=seen.extend, batch_size=2, on_error="mask")
        with pytest.raises(penstock.errors.OptionError):  # None has no place for `valid`.
            list(loader)
        assert seen[1] == {"a": [0, 0], "b": {"c": "", "d": False}, "n": None, "f": 0.0}
