"""Runs over columns: several batches are read together, and nobody can tell."""

from __future__ import annotations

import json
import logging
import pickle
import tracemalloc
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import penstock
from penstock import DataLoader
from penstock.batch import FieldEncoder
from penstock.datasets import drop_columns_of, list_columns_of
from penstock.errors import MalformedLineError, PenstockError
from penstock.index import create_default_jsonl_indexer
from penstock.order import Order
from tests.faults.child import run_together
from tests.loading import column_programs
from tests.loading.column_samples import outcome, shown
from tests.loading.encoders import Doubled, plus_one
from tests.loading.samples import FLAT_TYPES, TYPES, flat, ids_of, make, record, write_jsonl
from tests.rounds import LONG

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source

WORKERS = (0, "auto", 2)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder, which keeps its index and its columns for all tests."""
    folder = tmp_path_factory.mktemp("lines")
    write_jsonl(folder / "a.jsonl", 600)
    return folder


@pytest.fixture
def own_lines(tmp_path: Path) -> Path:
    """A file for one test, which may do with it what it likes."""
    return write_jsonl(tmp_path / "own.jsonl", 600)


def both(source: Any, encode: Any, **options: Any) -> tuple[DataLoader, DataLoader]:
    """Return a loader that decodes and one that gathers."""
    ways = [DataLoader(source, encode, materialize=way, **options) for way in (False, True)]
    return ways[0], ways[1]


class TestResume:
    @pytest.mark.parametrize(
        ("kind", "shuffle"),
        [
            *((kind, True) for kind in ("jsonl", "zst", "csv", "parquet", "split", "joined")),
            *((kind, False) for kind in ("jsonl", "gz")),
        ],
    )
    def test_from_decoding_to_columns_and_back_at_any_cut(
        self,
        kind: str,
        shuffle: Any,
        tmp_path: Path,
    ) -> None:
        source = make(kind, tmp_path, 90)

        def loader(*, materialize: bool) -> DataLoader:
            return DataLoader(
                source, FLAT_TYPES, batch_size=7, shuffle=shuffle, seed=5, materialize=materialize
            )

        whole = [shown(batch) for batch in loader(materialize=False)]
        assert [shown(batch) for batch in loader(materialize=True)] == whole
        for before in (False, True):
            first = loader(materialize=before)
            run = iter(first)
            for cut in range(len(whole)):
                second = loader(materialize=not before)
                second.load_state_dict(json.loads(json.dumps(first.state_dict())))
                assert [shown(batch) for batch in second] == whole[cut:]
                next(run)

    def test_a_state_of_shuffled_lines_goes_on_over_the_same_lines_in_gzip(
        self, tmp_path: Path
    ) -> None:
        plain = DataLoader(make("jsonl", tmp_path, 90), FLAT_TYPES, batch_size=7, shuffle=True)
        packed = make("gz", tmp_path, 90)
        run = iter(plain)
        seen = [number for _ in range(4) for number in next(run)["n"].tolist()]
        loader = DataLoader(packed, FLAT_TYPES, batch_size=7, on_changed="continue")
        loader.load_state_dict(plain.state_dict())
        seen += [number for batch in loader for number in batch["n"].tolist()]
        assert seen == Order(90).positions(0, 90).tolist()


class TestTogether:
    @pytest.mark.parametrize("workers", WORKERS)
    @pytest.mark.parametrize("batch_size", [1, 10])
    def test_the_state_counts_what_was_handed_out(
        self, workers: Any, batch_size: int, lines: Path
    ) -> None:
        source = penstock.open(lines).take(range(40 if batch_size == 1 else 600))
        loader = DataLoader(
            source, FLAT_TYPES, batch_size=batch_size, num_workers=workers, epochs=2
        )
        records = len(loader.source)
        for number, batch in enumerate(loader, start=1):
            state = loader.state_dict()
            assert state["epoch"] * records + state["position"] == batch_size * number
            assert loader.stats()["batches"] == number
            assert batch["n"].tolist() == batch.ids.tolist()

    def test_a_pass_may_be_left_at_any_time(self, lines: Path) -> None:
        whole = ids_of(DataLoader(lines, FLAT_TYPES, batch_size=20, shuffle=True))
        for count in (0, 1, 2, 5, 6, 29):
            loader = DataLoader(lines, FLAT_TYPES, batch_size=20, shuffle=True)
            run = iter(loader)
            assert ids_of(islice(run, count)) == whole[:count]
            run.close()  # type: ignore[attr-defined]
            assert loader.state_dict()["position"] == 20 * count
            loader.set_epoch(0)
            assert ids_of(loader) == whole

    def test_two_passes_at_once_do_not_meet(self, lines: Path) -> None:
        loader = DataLoader(lines, FLAT_TYPES, batch_size=20, shuffle=True)
        whole = ids_of(loader)
        run = iter(loader)
        next(run), next(run)
        assert len(ids_of(loader) + ids_of(run)) == 58
        assert (loader.stats()["batches"], loader.stats()["records"]) == (90, 1800)
        loader.set_epoch(0)
        for one, other, expected in zip(iter(loader), iter(loader), whole, strict=True):
            assert one.ids.tolist() == other.ids.tolist() == expected

    def test_few_records_go_round_without_end(self, tmp_path: Path) -> None:
        path = write_jsonl(tmp_path / "a.jsonl", 3)
        loader = DataLoader(path, FLAT_TYPES, batch_size=2, shuffle=True, epochs=None)
        seen = [batch["n"].tolist() for batch in islice(loader, 200)]
        expected = [Order(3, epoch=epoch).positions(0, 3).tolist() for epoch in range(100)]
        assert seen == [part for one in expected for part in (one[:2], one[2:])]

    @pytest.mark.parametrize("small", [0, 6000])
    def test_large_records_are_not_read_far_ahead(self, small: int, tmp_path: Path) -> None:
        """60 MB in all, of which one batch at a time is used, whatever came before."""
        rows, width = 60, 125_000
        widths = [1] * small + [width] * rows
        offsets = np.append(0, np.cumsum(widths)).astype(np.int32)
        values = pa.ListArray.from_arrays(offsets, np.ones(sum(widths), np.int64))
        pq.write_table(pa.table({"v": values}), tmp_path / "a.parquet", row_group_size=100)
        loader = DataLoader(tmp_path / "a.parquet", {"v": "list<int64>"}, batch_size=1)
        next(iter(loader))  # It makes the columns.
        assert loader.explain()["columns"].startswith("gathered")
        tracemalloc.start()
        try:
            assert [int(batch["v"].values.sum()) for batch in loader] == widths
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < (60_000_000 if small else 45_000_000)

    def test_rows_that_are_filled_up_are_not_made_far_ahead(self, tmp_path: Path) -> None:
        """A batch of 2 MB is made of some hundred bytes."""
        path = tmp_path / "a.jsonl"
        path.write_text('{"v": [1]}\n' * 2000)
        loader = DataLoader(path, {"v": "int64[:16000]"}, batch_size=16, materialize=True)
        next(iter(loader))
        tracemalloc.start()
        try:
            for batch in loader:
                assert batch["v"].values.shape == (16, 16_000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 60_000_000

    def test_whoever_writes_into_a_batch_writes_into_nothing_else(self, lines: Path) -> None:
        types = {**TYPES, "v": "int64[:2]?", "text": "string"}
        for _ in range(2):
            for batch in DataLoader(lines, types, batch_size=7):
                numbers = batch.ids.tolist()
                assert batch["n"].tolist() == numbers
                assert batch["x"].tolist() == [number / 8 for number in numbers]
                expected = [record(number)["tags"] for number in numbers]
                assert batch["tags"].tolist() == expected
                for part in (batch["n"], batch["x"], batch["tags"].values, batch["v"].values):
                    part.fill_(-5)
                batch["tags"].offsets.fill_(0)
                batch.ids.fill_(0)

    def test_a_batch_may_be_saved_without_those_that_were_made_with_it(
        self, lines: Path, tmp_path: Path
    ) -> None:
        batches = list(DataLoader(lines, FLAT_TYPES, batch_size=4))
        torch.save({**batches[60]}, tmp_path / "batch.pt")
        assert (tmp_path / "batch.pt").stat().st_size < 4_000
        assert torch.load(tmp_path / "batch.pt")["n"].tolist() == [240, 241, 242, 243]

    def test_arrow_stays_what_it_is_when_others_are_gone(self, own_lines: Path) -> None:
        loader = DataLoader(own_lines, TYPES, batch_size=7, output="arrow")
        kept = list(loader)
        drop_columns_of(loader.source)
        del loader
        for start, batch in zip(range(0, 600, 7), kept, strict=True):
            batch.validate(full=True)
            numbers = list(range(start, min(start + 7, 600)))
            assert batch["n"].to_pylist() == numbers
            assert batch["tags"].to_pylist() == [record(number)["tags"] for number in numbers]
            assert pickle.loads(pickle.dumps(batch)).equals(batch)


class TestSomethingIsWrong:
    BAD = (7, 207, 208, 450, 599)

    @pytest.fixture
    def some(self, own_lines: Path) -> Path:
        texts = own_lines.read_text().splitlines()
        for number in self.BAD:
            texts[number] = '{"n": "many"}' if number % 2 else '{"n": '
        own_lines.write_text("\n".join(texts) + "\n")
        return own_lines

    @pytest.mark.parametrize("workers", WORKERS)
    def test_only_the_batch_of_a_bad_record_knows_of_it(self, workers: Any, some: Path) -> None:
        options: dict[str, Any] = {"batch_size": 5, "on_error": "mask", "num_workers": workers}
        decoded, gathered = both(some, FLAT_TYPES, **options)
        found = outcome(gathered)
        assert found == outcome(decoded)
        assert len(found.told) == len(self.BAD)
        for batch in gathered:
            bad = [number for number in batch.ids.tolist() if number in self.BAD]
            assert (batch.valid is not None) == bool(bad)
            if bad:
                assert batch.ids[~batch.valid].tolist() == bad
                assert batch["n"][batch.valid].tolist() == batch.ids[batch.valid].tolist()
            else:
                assert batch["n"].tolist() == batch.ids.tolist()

    @pytest.mark.parametrize("workers", WORKERS)
    def test_batches_before_it_are_handed_out_and_then_it_is_told(
        self, workers: Any, some: Path
    ) -> None:
        options: dict[str, Any] = {"batch_size": 5, "skip": [7], "num_workers": workers}
        decoded, gathered = both(some, FLAT_TYPES, **options)
        found = outcome(gathered)
        assert found == outcome(decoded)
        assert found.error is not None
        assert len(found.batches) == 41
        assert "skip=[207, 208]" in found.error[2]
        assert "In the batch of step 41 of epoch 0: records 206, 207," in found.error[3][0]
        assert gathered.state_dict()["position"] == 205

    @pytest.mark.parametrize("on_error", ["raise", "mask"])
    def test_a_null_that_a_type_cannot_hold_is_told_by_its_own_batch(
        self, on_error: str, own_lines: Path
    ) -> None:
        """Columns hold it: what fails is to encode many batches together."""
        texts = own_lines.read_text().splitlines()
        texts[207] = '{"n": null}'
        own_lines.write_text("\n".join(texts) + "\n")
        options: dict[str, Any] = {"batch_size": 5, "num_workers": 0, "on_error": on_error}
        decoded, gathered = both(own_lines, {"n": "int64", "tags": "list<int64>"}, **options)
        found = outcome(gathered)
        assert found == outcome(decoded)
        assert len(found.batches) == (41 if on_error == "raise" else 120)

    def test_what_a_run_over_skipped_records_began_goes_on_without_them(self, some: Path) -> None:
        loader = DataLoader(some, FLAT_TYPES, batch_size=5, shuffle=True)
        with pytest.raises(PenstockError):
            list(loader)
        second = DataLoader(some, FLAT_TYPES, batch_size=5, shuffle=True, skip=self.BAD)
        second.load_state_dict(loader.state_dict())
        batches = list(second)
        uncounted = [int(n) for b in batches if b.valid is not None for n in b.ids[~b.valid]]
        assert sorted(uncounted) == sorted(self.BAD)
        seen = loader.state_dict()["position"]
        assert len(flat(batches)) == 600 - seen

    def test_storage_that_fails_is_told_by_the_batch_that_needs_it(self, some: Path) -> None:
        """Columns know all records but the bad ones, which are read where they lie."""
        options: dict[str, Any] = {"batch_size": 5, "on_error": "mask", "skip": [7]}
        list(DataLoader(some, FLAT_TYPES, **options))
        loader = DataLoader(penstock.open(some), FLAT_TYPES, **options)
        run = iter(loader)
        seen = [next(run)]
        some.write_text("")
        with pytest.raises(PenstockError, match="In the batch of step 41 of epoch 0") as raised:
            seen.extend(run)
        assert len(seen) == 41
        assert not isinstance(raised.value, MalformedLineError)
        assert loader.state_dict()["position"] == 205

    def test_a_users_callable_fails_in_its_own_batch(self, lines: Path) -> None:
        def encode(columns: pa.RecordBatch) -> dict[str, Any]:
            if columns["n"][0].as_py() == 300:
                raise StopIteration("over")
            if columns["n"][0].as_py() == 320:
                raise KeyboardInterrupt
            return {"n": columns["n"].to_numpy()}

        encode.fields = {"n": "int64"}  # type: ignore[attr-defined]
        loader = DataLoader(lines, encode, batch_size=20, num_workers=0)
        with pytest.raises(RuntimeError, match=r"StopIteration\('over'\)") as raised:
            list(loader)
        assert "In the batch of step 15" in raised.value.__notes__[0]
        state = loader.state_dict()
        assert state["position"] == 300
        second = DataLoader(lines, encode, batch_size=20, num_workers=0, skip=[(300, 320)])
        second.load_state_dict(state)
        run = iter(second)
        assert next(run).valid.any() == False  # noqa: E712 (a tensor)
        with pytest.raises(KeyboardInterrupt):
            next(run)
        assert second.state_dict()["position"] == 320


class TestWhatEncodes:
    @pytest.mark.parametrize("workers", WORKERS)
    def test_a_callable_with_fields_is_called_once_a_batch_in_order(
        self, workers: Any, lines: Path
    ) -> None:
        calls: list[int] = []

        def encode(columns: pa.RecordBatch) -> dict[str, Any]:
            calls.append(columns["n"][0].as_py())
            assert columns.schema == pa.schema({"n": pa.int16(), "tags": pa.list_(pa.int8())})
            return {"n": columns["n"].to_numpy(), "first": calls[-1]}

        encode.fields = {"n": "int16", "tags": "list<int8>"}  # type: ignore[attr-defined]
        loader = DataLoader(lines, encode, batch_size=20, num_workers=workers)
        run = iter(loader)
        for number in range(8):
            batch = next(run)
            assert batch["n"].tolist() == batch.ids.tolist()
            assert batch["n"].dtype == torch.int16
            if workers != 2:
                assert calls == list(range(0, 20 * number + 1, 20))
        run.close()  # type: ignore[attr-defined]
        assert loader.explain()["columns"].startswith("gathered")

    @pytest.mark.parametrize("workers", WORKERS)
    @pytest.mark.parametrize(
        "encode", [Doubled({"n": "int64", "tags": "list<int64>"}), FieldEncoder(TYPES), plus_one]
    )
    def test_whatever_it_is_it_makes_the_same_of_columns(
        self, encode: Any, workers: Any, lines: Path
    ) -> None:
        options: dict[str, Any] = {"batch_size": 70, "shuffle": True, "num_workers": workers}
        decoded, gathered = both(lines, encode, **options)
        assert outcome(gathered) == outcome(decoded)
        assert gathered.explain()["columns"].startswith("gathered")

    # Ranks start theirs by forkserver; see test_distributed.py.
    @pytest.mark.parametrize("method", ["fork", "spawn", *(["forkserver"] if LONG else [])])
    @pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
    def test_processes_gather_however_they_were_started(self, method: str, own_lines: Path) -> None:
        options: dict[str, Any] = {"batch_size": 70, "shuffle": True, "on_error": "mask"}
        text = own_lines.read_text().splitlines()
        own_lines.write_text("\n".join([*text[:50], "{", *text[50:]]) + "\n")
        decoded = DataLoader(own_lines, TYPES, materialize=False, num_workers=0, **options)
        gathered = DataLoader(
            own_lines, TYPES, num_workers=2, multiprocessing_context=method, **options
        )
        assert outcome(gathered) == outcome(decoded)
        assert gathered.explain()["columns"].startswith("gathered")

    @pytest.mark.parametrize("workers", WORKERS)
    def test_batches_are_moved_to_a_device_and_pinned_as_ever(
        self, workers: Any, lines: Path
    ) -> None:
        options: dict[str, Any] = {"batch_size": 70, "num_workers": workers, "pin_memory": True}
        for number, batch in enumerate(
            DataLoader(lines, TYPES, prefetch_to="meta", **options), start=1
        ):
            assert batch["n"].device.type == batch["tags"].values.device.type == "meta"
            assert batch["n"].shape == batch.ids.shape == (70 if number < 9 else 40,)
        assert number == 9
        loader = DataLoader(lines, TYPES, prefetch_to="cpu", shuffle=True, **options)
        for number, batch in enumerate(loader, start=1):
            assert loader.state_dict()["position"] == min(600, 70 * number)
            assert batch["n"].tolist() == batch.ids.tolist()
            assert batch["n"].is_pinned() == torch.cuda.is_available()


class TestSharing:
    @pytest.mark.parametrize("drop_last", [False, True])
    @pytest.mark.parametrize("shuffle", [False, True, "block"])
    def test_ranks_get_what_they_get_by_decoding(
        self,
        shuffle: Any,
        drop_last: Any,
        lines: Path,
    ) -> None:
        skip = [3, (100, 130), 599]
        for rank in range(3):
            options: dict[str, Any] = {"rank": rank, "world_size": 3, "skip": skip}
            options |= {"batch_size": 17, "shuffle": shuffle, "drop_last": drop_last}
            decoded, gathered = both(lines, FLAT_TYPES, **options)
            assert len(gathered) == len(decoded)
            assert outcome(gathered) == outcome(decoded)

    def test_ranks_that_begin_at_once_make_columns_once(self, tmp_path: Path) -> None:
        path = write_jsonl(tmp_path / "a.jsonl", 4000)
        penstock.open(path)
        calls = [(str(path), rank, 3) for rank in range(3)]
        with run_together(column_programs.be_rank, calls) as children:
            ranks = [child.result() for child in children]
        assert len({json.dumps(rank["made"]) for rank in ranks}) == 1
        assert {one[0] for one in ranks[0]["made"]} == {"n", "tags"}
        assert all(rank["why"].startswith("gathered") for rank in ranks)
        steps = zip(*(rank["batches"] for rank in ranks), strict=True)
        seen = [number for step in steps for numbers in step for number in numbers]
        assert seen[:4000] == Order(4000).positions(0, 4000).tolist()


class TestMeanwhile:
    def test_columns_that_are_dropped_before_the_first_batch_are_told_and_not_missed(
        self, own_lines: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        given = penstock.open(own_lines).materialize(TYPES)
        expected = outcome(DataLoader(own_lines, TYPES, batch_size=70, materialize=False))
        for source in (own_lines, given):
            loader = DataLoader(source, TYPES, batch_size=70)
            assert loader.explain()["columns"].startswith("gathered")
            drop_columns_of(given)
            with caplog.at_level(logging.WARNING):
                assert outcome(loader).batches == expected.batches
            assert len([one for one in caplog.messages if "3 columns in" in one]) == 1
            assert loader.explain()["columns"].startswith("decoded anew for each batch: columns")
            caplog.clear()
            penstock.open(own_lines).materialize(TYPES)

    def test_columns_that_are_dropped_in_the_middle_stay_with_the_run(
        self, own_lines: Path
    ) -> None:
        loader = DataLoader(own_lines, TYPES, batch_size=70, shuffle=True)
        run = iter(loader)
        seen = flat([next(run)])
        drop_columns_of(loader.source)
        assert seen + flat(run) == Order(600).positions(0, 600).tolist()

    @pytest.mark.parametrize("workers", WORKERS)
    def test_data_that_is_appended_changes_nothing_for_a_run(
        self, workers: Any, tmp_path: Path
    ) -> None:
        folder = tmp_path / "data"
        folder.mkdir()
        write_jsonl(folder / "a.jsonl", 300)
        loader = DataLoader(folder, TYPES, batch_size=20, shuffle=True, num_workers=workers)
        run = iter(loader)
        seen = flat([next(run)])
        write_jsonl(folder / "b.jsonl", 100, 300)
        create_default_jsonl_indexer(folder, update=True)()
        longer = DataLoader(folder, TYPES, batch_size=20)
        assert sorted(flat(longer)) == list(range(400))
        assert longer.explain()["columns"].startswith("gathered; they were made")
        seen += flat(run)
        for batch in loader:
            seen += batch.ids.tolist()
            assert batch["n"].tolist() == batch.ids.tolist()
        expected = [Order(300, epoch=epoch).positions(0, 300).tolist() for epoch in (0, 1)]
        assert seen == [*expected[0], *expected[1]]

    def test_a_copy_gathers_too(self, lines: Path) -> None:
        loader = DataLoader(lines, TYPES, batch_size=70, shuffle=True)
        run = iter(loader)
        next(run)
        twin = pickle.loads(pickle.dumps(loader))
        assert twin.explain()["columns"] == loader.explain()["columns"]
        twin.load_state_dict(loader.state_dict())
        assert flat(twin) == flat(run)

    def test_columns_are_found_in_the_next_process_and_after_an_update(
        self, tmp_path: Path
    ) -> None:
        folder = tmp_path / "data"
        folder.mkdir()
        write_jsonl(folder / "a.jsonl", 300)
        list(DataLoader(folder, TYPES, batch_size=20))
        before = {one.meta.path: one.meta.length for one in list_columns_of(penstock.open(folder))}
        assert before == dict.fromkeys(TYPES, 300)
        write_jsonl(folder / "b.jsonl", 100, 300)
        create_default_jsonl_indexer(folder, update=True)()
        loader = DataLoader(folder, TYPES, batch_size=20, materialize=False)
        given: Source = penstock.open(folder).materialize(TYPES)
        assert outcome(DataLoader(given, TYPES, batch_size=20)) == outcome(loader)
        after = {one.meta.path: one.meta.length for one in list_columns_of(given)}
        assert after == dict.fromkeys(TYPES, 400)
        assert np.array_equal(given.blocks, loader.source.blocks)
