from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock import DataLoader
from penstock.errors import ChangedSourceError, OptionError
from penstock.index import create_default_jsonl_indexer
from penstock.order import Order
from tests.loading.samples import flat, ids_of, write_jsonl

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.datasets import Source

RECORDS = [{"n": number} for number in range(97)]


def cut_after(loader: DataLoader, batches: int) -> dict[str, Any]:
    run = iter(loader)
    for _ in range(batches):
        next(run)
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


def counted(batch: Any) -> list[int]:
    """Return the records of a batch that count."""
    ids: NDArray[np.int64] = np.asarray(batch.ids)
    kept: list[int] = (ids if batch.valid is None else ids[np.asarray(batch.valid)]).tolist()
    return kept


class TestElastic:
    @given(
        before=st.tuples(st.sampled_from([1, 2, 3, 4, 6]), st.integers(0, 8)),
        after=st.sampled_from([1, 2, 3, 4, 6, 12]),
        seed=st.integers(0, 3),
        drop_last=st.booleans(),
        shuffle=st.booleans(),
    )
    def test_other_ranks_go_on_with_the_very_next_record(
        self, before: tuple[int, int], after: int, seed: int, *, drop_last: bool, shuffle: bool
    ) -> None:
        world, cut = before

        def loaders(ranks: int) -> list[DataLoader]:
            return [
                DataLoader(
                    RECORDS,
                    global_batch_size=12,
                    shuffle=shuffle,
                    seed=seed,
                    drop_last=drop_last,
                    num_workers=0,
                    rank=rank,
                    world_size=ranks,
                )
                for rank in range(ranks)
            ]

        states = [cut_after(loader, cut) for loader in loaders(world)]
        assert all(state == states[0] for state in states)
        rest = loaders(after)
        for loader in rest:
            loader.load_state_dict(states[0])
        steps = [[counted(batch) for batch in loader] for loader in rest]
        assert len({len(batches) for batches in steps}) == 1
        seen = [number for step in zip(*steps, strict=True) for ids in step for number in ids]
        whole = ids_of(
            DataLoader(
                RECORDS,
                batch_size=12,
                shuffle=shuffle,
                seed=seed,
                drop_last=drop_last,
                num_workers=0,
            )
        )
        expected = [number for ids in whole[cut:] for number in ids]
        assert seen == expected  # Nothing twice: rows that fill up a batch do not count.


LANED = 70_000


def write_frames(path: Path, records: int, start: int = 0) -> Source:
    """Write more records than a window has, in more than a window's number of small frames."""
    with penstock.writer(path, frame_bytes=3000) as sink:
        sink.write({"n": number} for number in range(start, start + records))
    return penstock.open(path)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return write_frames(tmp_path_factory.mktemp("frames") / "a.jsonl.zst", LANED)


def rows_of(batch: pa.RecordBatch) -> list[tuple[int, bool]]:
    """Return what a batch holds, and whether it counts."""
    valid = batch.schema.metadata.get(b"penstock.valid")
    counts = [True] * batch.num_rows if valid is None else np.frombuffer(valid, bool).tolist()
    return list(zip(batch["n"].to_pylist(), counts, strict=True))


def laned(source: Source, rank: int, world: int, **more: Any) -> DataLoader:
    options: dict[str, Any] = {"shuffle": True, "seed": 2, "output": "arrow", "num_workers": 0}
    options["materialize"] = False  # Blocks are what is asked for here.
    return DataLoader(
        source,
        {"n": "int64"},
        batch_size=4800 // world,
        rank=rank,
        world_size=world,
        **{**options, **more},
    )


def global_batches(loaders: list[DataLoader]) -> list[list[int]]:
    """Return which records count in each step, over all ranks."""
    steps = zip(*loaders, strict=True)
    return [
        [number for batch in step for number, counts in rows_of(batch) if counts] for step in steps
    ]


class TestBlockOrder:
    """The order of compressed and of remote data, dealt into lanes that ranks take as a whole."""

    @pytest.mark.parametrize(("before", "after"), [(1, 8), (2, 3), (3, 2), (8, 1), (8, 3)])
    def test_other_ranks_go_on_with_the_very_next_record(
        self, frames: Source, before: int, after: int
    ) -> None:
        order = Order(LANED, seed=2, kind="block", blocks=frames.blocks)
        assert order.lanes == 64
        expected = [
            sorted(order.positions(start, min(start + 4800, LANED)).tolist())
            for start in range(0, LANED, 4800)
        ]
        states, seen = [], []
        for rank in range(before):
            loader = laned(frames, rank, before)
            run = iter(loader)
            seen.append([rows_of(next(run)) for _ in range(6)])
            states.append(json.loads(json.dumps(loader.state_dict())))
        assert all(state == states[0] for state in states)
        assert states[0]["order"] == {"kind": "block", "version": 1, "lanes": 64}
        first = [[row for rows in step for row in rows] for step in zip(*seen, strict=True)]
        assert all(counts for step in first for _, counts in step)
        assert [sorted(number for number, _ in step) for step in first] == expected[:6]
        rest = [laned(frames, rank, after) for rank in range(after)]
        for loader in rest:
            loader.load_state_dict(states[0])
        assert list(map(sorted, global_batches(rest))) == expected[6:]

    @pytest.mark.parametrize("world", [1, 3])
    def test_what_is_skipped_at_the_cut_does_not_count(self, frames: Source, world: int) -> None:
        state = cut_after(laned(frames, 0, 1), 6)
        order = Order(LANED, seed=2, kind="block", blocks=frames.blocks)
        rest = order.positions(6 * 4800, LANED).tolist()
        left_out = set(rest[::1000])
        loaders = [
            laned(frames, rank, world, skip=sorted(left_out), seed=9) for rank in range(world)
        ]
        for loader in loaders:
            loader.load_state_dict(state)
        seen = [number for step in global_batches(loaders) for number in step]
        assert sorted(seen) == sorted(set(rest) - left_out)
        following = [number for step in global_batches(loaders) for number in step]
        assert sorted(following) == sorted(set(range(LANED)) - left_out)

    @pytest.mark.parametrize("records", [100, LANED + 5])
    def test_other_records_have_their_own_lanes_when_told_to_continue(
        self, records: int, tmp_path: Path
    ) -> None:
        # From lanes to none, and from none to lanes.
        then = write_frames(tmp_path / "a.jsonl.zst", LANED if records == 100 else 100)
        size = 10 if records == 100 else 1
        state = cut_after(DataLoader(then, batch_size=size, shuffle=True, output="arrow"), 2)
        now = write_frames(tmp_path / "b.jsonl.zst", records, 7)
        loader = laned(now, 0, 1, on_changed="continue")
        loader.load_state_dict(state)
        order = Order(records, kind="block", blocks=now.blocks)
        assert order.lanes == (1 if records == 100 else 64)
        assert loader.state_dict()["order"] == {
            "kind": "block",
            "version": 1,
            "lanes": order.lanes,
        }
        seen = [number - 7 for step in global_batches([loader]) for number in step]
        assert seen == order.positions(2 * size, records).tolist()


class TestEndOfAnEpoch:
    def test_a_state_of_the_last_batch_has_an_empty_rest(self) -> None:
        """A loop that saves in its body goes on as if it had not been cut, also there."""
        expected = [Order(97, epoch=epoch).positions(0, 97).tolist() for epoch in (1, 2)]
        for tell in (False, True):
            loader = DataLoader(RECORDS, batch_size=10, shuffle=True)
            loader.load_state_dict(cut_after(DataLoader(RECORDS, batch_size=10, shuffle=True), 10))
            seen = []
            for epoch in range(3):
                if tell:
                    loader.set_epoch(epoch)
                seen.append(flat(loader))
            assert seen == [[], *expected]

    def test_a_state_after_the_loop_goes_on_with_the_next_epoch(self) -> None:
        loader = DataLoader(RECORDS, batch_size=10, shuffle=True)
        flat(loader)
        assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)
        second = DataLoader(RECORDS, batch_size=10, shuffle=True)
        second.load_state_dict(loader.state_dict())
        assert flat(second) == Order(97, epoch=1).positions(0, 97).tolist()

    def test_set_epoch_keeps_the_place_in_the_epoch_of_a_state(self) -> None:
        state = cut_after(DataLoader(RECORDS, batch_size=10, shuffle=True), 4)
        loader = DataLoader(RECORDS, batch_size=10, shuffle=True)
        loader.load_state_dict(state)
        loader.set_epoch(0)
        assert flat(loader) == Order(97).positions(40, 97).tolist()
        loader.load_state_dict(state)
        loader.set_epoch(3)
        assert flat(loader) == Order(97, epoch=3).positions(0, 97).tolist()


class TestTheState:
    def test_is_plain_json_with_the_keys_of_the_format(self) -> None:
        state = cut_after(DataLoader(RECORDS, batch_size=10, shuffle=True, seed=3), 2)
        assert state.pop("fingerprint")
        assert state == {
            "version": 1,
            "length": 97,
            "seed": 3,
            "epoch": 0,
            "order": {"kind": "full", "version": 1, "lanes": 1},
            "position": 20,
            "skip": [],
        }

    def test_counts_what_was_handed_out_and_not_what_was_made_ahead(self, tmp_path: Path) -> None:
        lines = write_jsonl(tmp_path / "a.jsonl", 200)
        for workers in (0, "auto", 3):
            loader = DataLoader(lines, ["n"], batch_size=10, num_workers=workers)  # type: ignore[arg-type]
            for number, _ in enumerate(loader, start=1):
                assert loader.state_dict()["position"] == 10 * number

    def test_decides_order_and_seed_of_the_run(self) -> None:
        state = cut_after(DataLoader(RECORDS, batch_size=10, shuffle=True, seed=3), 2)
        loader = DataLoader(RECORDS, batch_size=10)
        loader.load_state_dict(state)
        assert flat(loader) == Order(97, seed=3).positions(20, 97).tolist()

    @pytest.mark.parametrize("state", [{}, {"version": 1}, 5, {"version": 99}])
    def test_of_something_else_is_refused(self, state: Any) -> None:
        with pytest.raises(OptionError):
            DataLoader(RECORDS, batch_size=10).load_state_dict(state)


class TestChangedData:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "data"
        folder.mkdir()
        write_jsonl(folder / "a.jsonl", 100)
        return folder

    @pytest.mark.parametrize("way", [False, True], ids=["decoded", "gathered"])
    @pytest.mark.parametrize("shuffle", [False, True, "block"])
    def test_appended_records_are_no_change(self, folder: Path, shuffle: Any, way: Any) -> None:
        options: dict[str, Any] = {"batch_size": 10, "shuffle": shuffle, "materialize": way}
        before = ids_of(DataLoader(folder, ["n"], **options))
        state = cut_after(DataLoader(folder, ["n"], **options), 3)
        append(folder)
        loader = DataLoader(folder, ["n"], **options)
        assert len(loader.source) == 150
        with pytest.warns(UserWarning, match="50 records were appended since the run") as told:
            loader.load_state_dict(state)
        assert len(told) == 1
        assert ids_of(loader) == before[3:]
        assert sorted(flat(loader)) == list(range(100))

    def test_a_split_goes_on_after_an_append(self, folder: Path) -> None:
        def loader() -> DataLoader:
            train, _ = penstock.open(folder).split(train=0.7, val=0.3)
            return DataLoader(train, ["n"], batch_size=10, shuffle=True)

        before = ids_of(loader())
        state = cut_after(loader(), 3)
        append(folder)
        longer = loader()
        with pytest.warns(UserWarning, match="were appended"):
            longer.load_state_dict(state)
        assert ids_of(longer) == before[3:]

    def test_other_records_are_refused_with_what_changed(self, folder: Path) -> None:
        state = cut_after(DataLoader(folder, ["n"], batch_size=10, shuffle=True), 3)
        for count, told in ((90, "had 100 records, and has 90 now"), (100, "but other records")):
            write_jsonl(folder / "a.jsonl", count, 5)
            create_default_jsonl_indexer(folder, overwrite=True)()
            loader = DataLoader(folder, ["n"], batch_size=10, shuffle=True)
            with pytest.raises(ChangedSourceError, match=told):
                loader.load_state_dict(state)

    def test_unless_told_to_continue(self, folder: Path) -> None:
        state = cut_after(DataLoader(folder, ["n"], batch_size=10, shuffle=True), 3)
        write_jsonl(folder / "a.jsonl", 90, 5)
        create_default_jsonl_indexer(folder, overwrite=True)()
        loader = DataLoader(folder, ["n"], batch_size=10, shuffle=True, on_changed="continue")
        loader.load_state_dict(state)
        assert flat(loader) == Order(90).positions(30, 90).tolist()


def append(folder: Path) -> None:
    write_jsonl(folder / "b.jsonl", 50, 100)
    create_default_jsonl_indexer(folder, update=True)()
