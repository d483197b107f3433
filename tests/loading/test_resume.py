from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

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

RECORDS = [{"n": number} for number in range(97)]


def cut_after(loader: DataLoader, batches: int) -> dict[str, Any]:
    run = iter(loader)
    for _ in range(batches):
        next(run)
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


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
        steps = [ids_of(loader) for loader in rest]
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
        assert list(dict.fromkeys(seen)) == expected


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

    @pytest.mark.parametrize("shuffle", [False, True, "block"])
    def test_appended_records_are_no_change(self, folder: Path, shuffle: Any) -> None:
        before = ids_of(DataLoader(folder, ["n"], batch_size=10, shuffle=shuffle))
        state = cut_after(DataLoader(folder, ["n"], batch_size=10, shuffle=shuffle), 3)
        append(folder)
        loader = DataLoader(folder, ["n"], batch_size=10, shuffle=shuffle)
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
        for count, told in ((90, "had 100 records, and has 90 now"), (100, "are others")):
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
