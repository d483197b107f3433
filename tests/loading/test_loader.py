from __future__ import annotations

import copy
import json
import pickle
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import penstock
from penstock import DataLoader
from penstock.errors import OptionError
from penstock.loading import chosen_order
from penstock.order import Order
from tests.loading.samples import (
    FLAT,
    FLAT_TYPES,
    IN_ORDER,
    KINDS,
    TYPES,
    flat,
    ids_of,
    make,
    record,
    write_jsonl,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "lines.jsonl", 100)


def types_for(kind: str) -> dict[str, str]:
    return FLAT_TYPES if kind in FLAT else TYPES


WAYS = (False, True)
"""Whether fields are gathered from columns, or decoded for each batch."""
# Processes take a while to start, so that only one kind of each family gets some.
IN_PROCESSES = ("jsonl", "gz", "zst", "parquet-files", "pandas", "map-style", "where", "joined")
GRID = [
    *((kind, False, workers) for kind in KINDS for workers in (0, "auto")),
    *((kind, False, 2) for kind in IN_PROCESSES),
    *((kind, True, "auto") for kind in KINDS if kind not in {"pandas", "polars", "map-style"}),
    *((kind, True, 2) for kind in ("jsonl", "gz")),
]


class TestEverySource:
    @pytest.mark.parametrize(("kind", "way", "workers"), GRID)
    def test_gives_every_record_once_and_its_own_values(
        self, kind: str, way: Any, workers: Any, tmp_path: Path
    ) -> None:
        source = make(kind, tmp_path, 250)
        loader = DataLoader(
            source,
            types_for(kind),
            batch_size=32,
            shuffle=way or kind not in IN_ORDER,
            num_workers=workers,
            materialize=way,
        )
        batches = list(loader)
        assert sorted(flat(batches)) == list(range(len(source)))
        assert len(batches) == len(loader) == -(-len(source) // 32)
        for batch in batches:
            numbers = batch["n"].tolist()
            assert numbers == [one["n"] for one in source.read(batch.ids.tolist())]
            assert batch["x"].tolist() == [record(number)["x"] for number in numbers]
            if "tags" in batch:
                rows = [batch["tags"][row].tolist() for row in range(len(batch))]
                assert rows == [record(number)["tags"] for number in numbers]

    @pytest.mark.parametrize("kind", KINDS)
    def test_goes_on_exactly_after_any_batch(self, kind: str, tmp_path: Path) -> None:
        source = make(kind, tmp_path, 90)

        def loader(**more: Any) -> DataLoader:
            return DataLoader(
                source,
                FLAT_TYPES,
                batch_size=7,
                shuffle=kind not in IN_ORDER,
                seed=5,
                materialize=False,
                **more,
            )

        whole = ids_of(loader())
        for cut in range(len(whole) + 1):
            first = loader()
            run = iter(first)
            seen = [next(run).ids.tolist() for _ in range(cut)]
            state = json.loads(json.dumps(first.state_dict()))
            run.close()  # type: ignore[attr-defined]
            second = loader()
            second.load_state_dict(state)
            assert seen + ids_of(second) == whole

    @pytest.mark.parametrize("kind", KINDS)
    def test_gives_records_as_they_are_without_encode(self, kind: str, tmp_path: Path) -> None:
        source = make(kind, tmp_path, 40)
        for batch in DataLoader(source, batch_size=16, shuffle=kind not in IN_ORDER):
            assert isinstance(batch, list)
            assert list(batch) == source.read(batch.ids)

    @pytest.mark.parametrize("kind", KINDS)
    def test_gives_arrow(self, kind: str, tmp_path: Path) -> None:
        source = make(kind, tmp_path, 40)
        for batch in DataLoader(source, batch_size=16, output="arrow"):
            assert isinstance(batch, pa.RecordBatch)
            ids = np.frombuffer(batch.schema.metadata[b"penstock.ids"], "<i8")
            assert batch["n"].to_pylist() == [one["n"] for one in source.read(ids)]


class TestOrder:
    def test_is_that_of_penstock_order(self, lines: Path) -> None:
        loader = DataLoader(lines, batch_size=9, shuffle="full", seed=4)
        expected = [Order(100, seed=4, epoch=epoch).positions(0, 100).tolist() for epoch in (0, 1)]
        assert flat(loader) == expected[0]
        assert flat(loader) == expected[1]

    def test_is_as_numbered_by_default(self, lines: Path) -> None:
        assert flat(DataLoader(lines, batch_size=9)) == list(range(100))

    @pytest.mark.parametrize(
        ("kind", "order", "why"),
        [
            ("jsonl", "full", "by itself"),
            ("csv-files", "full", "by itself"),
            ("map-style", "full", "by itself"),
            ("joined", "full", "by itself"),
            ("zst", "block", "compressed data"),
            ("parquet", "block", "row groups of Parquet"),
        ],
    )
    def test_follows_from_what_holds_the_records(
        self, kind: str, order: str, why: str, tmp_path: Path
    ) -> None:
        source = make(kind, tmp_path, 20)
        for view in (source, source.split(a=0.5, b=0.5)[0], source + penstock.open([{"n": 1}])):
            found = chosen_order(view, shuffle=True)
            assert found[0] == order
            assert why in found[1]

    def test_of_plain_text_does_not_depend_on_its_name(self, tmp_path: Path) -> None:
        source = penstock.open(write_jsonl(tmp_path / "app.log", 20))
        assert chosen_order(source, shuffle=True)[0] == "full"

    def test_goes_on_to_the_next_epoch_by_itself_and_where_it_is_told(self, lines: Path) -> None:
        loader = DataLoader(lines, batch_size=10, shuffle=True)
        first, second, third = (flat(loader) for _ in range(3))
        assert len({tuple(first), tuple(second), tuple(third)}) == 3
        loader.set_epoch(1)
        assert flat(loader) == second
        assert flat(loader) == third

    def test_an_early_break_ends_the_epoch(self, lines: Path) -> None:
        loader = DataLoader(lines, batch_size=10, shuffle=True)
        first = flat(loader)
        for _ in loader:
            break
        third = flat(loader)
        loader.set_epoch(2)
        assert flat(loader) == third != first

    def test_asking_for_an_iterator_moves_nothing(self, lines: Path) -> None:
        loader = DataLoader(lines, batch_size=10, shuffle=True)
        iter(loader)
        iter(loader)
        assert loader.state_dict()["epoch"] == 0
        assert flat(loader) == Order(100).positions(0, 100).tolist()

    def test_several_epochs_come_in_one_pass(self, lines: Path) -> None:
        loader = DataLoader(lines, batch_size=30, shuffle=True, epochs=3)
        expected = [Order(100, epoch=epoch).positions(0, 100).tolist() for epoch in range(6)]
        assert len(loader) == 12
        assert flat(loader) == [*expected[0], *expected[1], *expected[2]]
        assert flat(loader) == [*expected[3], *expected[4], *expected[5]]

    def test_several_epochs_in_one_pass_resume(self, lines: Path) -> None:
        def loader() -> DataLoader:
            return DataLoader(lines, batch_size=30, shuffle=True, epochs=3)

        whole = ids_of(loader())
        for cut in range(1, len(whole)):
            first = loader()
            run = iter(first)
            seen = [next(run).ids.tolist() for _ in range(cut)]
            second = loader()
            second.load_state_dict(first.state_dict())
            assert seen + ids_of(second) == whole

    def test_none_is_endless(self, lines: Path) -> None:
        loader = DataLoader(lines, batch_size=40, shuffle=True, epochs=None)
        run = iter(loader)
        batches = [next(run) for _ in range(10)]
        assert loader.state_dict()["epoch"] == 3
        assert sorted(flat(batches[:3])) == sorted(flat(batches[3:6])) == list(range(100))
        with pytest.raises(TypeError, match="does not end"):
            len(loader)

    def test_nothing_has_no_batches(self) -> None:
        for epochs in (1, None):
            loader = DataLoader(penstock.open([{"a": 1}]).take([]), batch_size=4, epochs=epochs)
            assert list(loader) == []
        assert list(DataLoader([{"a": 1}], batch_size=4, drop_last=True, epochs=None)) == []

    def test_drop_last_drops_the_rest(self, lines: Path) -> None:
        loader = DataLoader(lines, batch_size=30, drop_last=True)
        assert len(loader) == 3
        assert flat(loader) == list(range(90))


class TestSharing:
    @pytest.mark.parametrize("world", [1, 2, 3, 6])
    def test_global_batches_do_not_depend_on_the_ranks(self, world: int, lines: Path) -> None:
        ranks = [
            list(
                DataLoader(lines, batch_size=12 // world, shuffle=True, rank=rank, world_size=world)
            )
            for rank in range(world)
        ]
        assert len({len(batches) for batches in ranks}) == 1
        alone = ids_of(DataLoader(lines, batch_size=12, shuffle=True))
        for step, expected in enumerate(alone):
            rows = [pair for rank in ranks for pair in _rows(rank[step])]
            assert [number for number, counts in rows if counts] == expected

    def test_global_batch_size_is_shared(self, lines: Path) -> None:
        loader = DataLoader(lines, global_batch_size=12, rank=2, world_size=3)
        assert len(next(iter(loader))) == 4
        with pytest.raises(OptionError, match="cannot be shared by 5 ranks"):
            DataLoader(lines, global_batch_size=12, rank=0, world_size=5)

    def test_fewer_records_than_ranks(self) -> None:
        shown = [
            row
            for rank in range(5)
            for row in _rows(
                *DataLoader([{"a": 1}, {"a": 2}], batch_size=1, rank=rank, world_size=5)
            )
        ]
        assert shown == [(0, True), (1, True), (1, False), (1, False), (1, False)]

    def test_a_state_goes_on_with_other_ranks(self, lines: Path) -> None:
        first = DataLoader(lines, batch_size=6, shuffle=True, rank=1, world_size=2)
        run = iter(first)
        for _ in range(3):
            next(run)
        state = first.state_dict()
        rest = [
            DataLoader(lines, batch_size=4, shuffle=True, rank=rank, world_size=3)
            for rank in range(3)
        ]
        for loader in rest:
            loader.load_state_dict(state)
        got = [[_rows(batch) for batch in loader] for loader in rest]
        seen = [
            number
            for step in zip(*got, strict=True)
            for rows in step
            for number, counts in rows
            if counts
        ]
        assert seen == Order(100).positions(36, 100).tolist()

    def test_another_global_batch_goes_on_at_the_same_position(self, lines: Path) -> None:
        first = DataLoader(lines, batch_size=12, shuffle=True)
        run = iter(first)
        next(run), next(run)
        second = DataLoader(lines, batch_size=5, shuffle=True)
        second.load_state_dict(first.state_dict())
        assert len(second) == 5 + 16
        assert flat(second) == Order(100).positions(24, 100).tolist()


def _rows(batch: Any) -> list[tuple[int, bool]]:
    ids = list(batch.ids)
    valid = [True] * len(ids) if batch.valid is None else list(batch.valid)
    return [(int(number), bool(counts)) for number, counts in zip(ids, valid, strict=True)]


class TestEncode:
    def test_names_take_their_types_from_the_schema(self, lines: Path) -> None:
        batch = next(iter(DataLoader(lines, ["n", "x", "tags", "text"], batch_size=3)))
        assert batch["n"].dtype == torch.int64
        assert batch["x"].dtype == torch.float64
        assert batch["tags"].lengths.tolist() == [0, 1, 2]
        assert batch["text"] == ["t0", "t1", "t2"]

    def test_a_callable_gets_columns(self, lines: Path) -> None:
        def encode(columns: pa.RecordBatch) -> dict[str, torch.Tensor]:
            return {"double": 2 * torch.tensor(columns["n"].to_pylist())}

        for workers in (0, "auto", 2):
            loader = DataLoader(lines, encode, batch_size=10, num_workers=workers)  # type: ignore[arg-type]
            for batch in loader:
                assert isinstance(batch, penstock.Batch)
                assert batch["double"].tolist() == [2 * n for n in batch.ids.tolist()]

    def test_a_callable_may_return_anything(self, lines: Path) -> None:
        for workers in (0, "auto", 2):
            loader = DataLoader(lines, len, batch_size=40, num_workers=workers)  # type: ignore[arg-type]
            assert list(loader) == [40, 40, 20]

    def test_an_encoder_knows_where_its_batch_stands(self, lines: Path) -> None:
        class Standing:
            fields = MappingProxyType({"n": pa.int16()})

            def encode(self, columns: pa.RecordBatch, where: Any) -> Any:
                assert columns.schema.field("n").type == pa.int16()
                return where.epoch, where.seed, where.positions.tolist(), where.ids.tolist()

        loader = DataLoader(lines, Standing(), batch_size=60, shuffle=True, seed=3)
        order = Order(100, seed=3).positions(0, 100).tolist()
        assert list(loader) == [
            (0, 3, list(range(60)), order[:60]),
            (0, 3, list(range(60, 100)), order[60:]),
        ]

    def test_a_category_has_one_code_in_all_batches(self) -> None:
        records = [{"c": value} for value in "babcab"]
        loader = DataLoader(records, {"c": "category"}, batch_size=2)
        codes = [code for batch in loader for code in batch["c"].codes.tolist()]
        assert codes == [0, 1, 0, 2, 1, 0]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "batch_size"),
            ({"batch_size": 0}, "batch_size=0"),
            ({"batch_size": True}, "batch_size=True"),
            ({"batch_size": 2, "epochs": 0}, "epochs=0"),
            ({"batch_size": 2, "shuffle": "blocks"}, "shuffle='blocks'"),
            ({"batch_size": 2, "num_workers": -1}, "num_workers=-1"),
            ({"batch_size": 2, "num_workers": "many"}, "num_workers='many'"),
            ({"batch_size": 2, "on_error": "skip"}, "on_error='skip'"),
            ({"batch_size": 2, "on_changed": "no"}, "on_changed='no'"),
            ({"batch_size": 2, "output": "torch"}, "output='torch'"),
            ({"batch_size": 2, "encode": "price"}, r"\['price'\]"),
            ({"batch_size": 2, "encode": 5}, "encode=5"),
            ({"batch_size": 2, "encode": len, "output": "arrow"}, "leave encode out"),
            ({"batch_size": 2, "rank": 0}, "give both"),
            ({"batch_size": 2, "rank": 2, "world_size": 2}, "rank=2"),
            ({"batch_size": 2, "mesh": 5}, "mesh=5"),
            ({"batch_size": 2, "stall_timeout": 0}, "stall_timeout=0"),
            ({"batch_size": 2, "materialize": True}, "materialize=True needs to know the fields"),
            ({"batch_size": 2, "materialize": "yes"}, "materialize='yes': expected 'auto' or True"),
            (
                {"batch_size": 2, "num_workers": 1, "multiprocessing_context": "thread"},
                "multiprocessing_context='thread'",
            ),
        ],
        ids=str,
    )
    def test_what_cannot_work_is_said_at_once(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            DataLoader([{"a": 1}], **options)


class TestTheObject:
    def test_it_pickles_and_copies_with_its_state(self, lines: Path) -> None:
        loader = DataLoader(lines, TYPES, batch_size=10, shuffle=True)
        run = iter(loader)
        next(run), next(run)
        state = loader.state_dict()
        twins = [pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader), copy.copy(loader)]
        rest = flat(run)
        for twin in twins:
            assert twin.state_dict() == state
            twin.load_state_dict(state)
            assert flat(twin) == rest

    def test_it_shows_what_it_is(self, lines: Path) -> None:
        loader = DataLoader(lines, batch_size=10)
        assert repr(loader) == "<DataLoader of 100 records, batch_size=10, sequential order>"

    def test_explain_tells_the_decisions(self, lines: Path) -> None:
        decisions = DataLoader(lines, TYPES, batch_size=10, shuffle=True, num_workers=2).explain()
        assert decisions["order"] == "full, seed 0: any record can be read by itself here"
        assert "2 worker processes, by fork" in decisions["workers"]
        assert "rank 0 of 1" in decisions["sharing"]
        assert str(decisions).startswith("source ")

    def test_explain_names_the_records_of_a_step(self, lines: Path) -> None:
        loader = DataLoader(lines, batch_size=10, shuffle=True, rank=0, world_size=2)
        for rank in (0, 1):
            other = DataLoader(lines, batch_size=10, shuffle=True, rank=rank, world_size=2)
            for step, batch in enumerate(other):
                plan = loader.explain(step, rank)
                assert plan.ids.tolist() == batch.ids.tolist()
                text = lines.read_bytes()
                first = text[plan.offsets[0] : plan.offsets[0] + plan.bytes[0]]
                assert json.loads(first) == record(int(plan.ids[0]))
                assert set(plan.files) == {str(lines)}

    def test_explain_of_a_step_that_is_done(self, lines: Path) -> None:
        loader = DataLoader(lines, batch_size=10, shuffle=True)
        run = iter(loader)
        seen = [next(run).ids.tolist() for _ in range(3)]
        assert [loader.explain(step).ids.tolist() for step in range(3)] == seen
        assert loader.explain(3).ids.tolist() == next(run).ids.tolist()

    @pytest.mark.parametrize("workers", [0, "auto", 2])
    @pytest.mark.parametrize("way", WAYS)
    def test_stats_are_flat_numbers(self, way: bool, workers: Any, lines: Path) -> None:  # noqa: FBT001
        loader = DataLoader(lines, TYPES, batch_size=10, num_workers=workers, materialize=way)
        began = time.perf_counter()
        received = [time.perf_counter() for _ in loader]
        ended = time.perf_counter()
        stats = loader.stats()
        assert all(type(value) is float for value in stats.values())
        assert stats["records"] == 100
        assert stats["batches"] == 10
        assert stats["decode_seconds"] > 0
        assert stats["encode_seconds"] > 0
        assert stats["wait_seconds"] > 0
        # All the time is the one or the other.
        counted = stats["wait_seconds"] + stats["use_seconds"]
        assert received[-1] - received[0] <= counted <= ended - began
        # What is mapped is read by nobody: to gather it counts as decoding.
        assert (stats["read_seconds"] > 0) == (way is False)
        assert set(stats) == {
            *("batches", "records", "bad_records", "records_per_second"),
            *("read_seconds", "decode_seconds", "encode_seconds", "wait_seconds", "use_seconds"),
            *("storage_requests", "storage_bytes", "storage_retries", "storage_throttled"),
            "cache_hits",
        }
