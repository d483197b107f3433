"""Batches of tokens as they are stored: many are read together, and nobody can tell."""

from __future__ import annotations

import json
import tracemalloc
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock import DataLoader
from penstock.errors import PenstockError
from penstock.order import Order
from tests.loading.samples import flat, ids_of
from tests.loading.token_samples import all_shown, matrix, open_tokens, shown, stream, write_samples

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source

ROWS = matrix(97, 6)
WAYS: tuple[Any, ...] = (0, "auto", 2)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """97 samples of 6 tokens in two files."""
    return open_tokens(tmp_path_factory.mktemp("tokens") / "t", ROWS)


class TestABatch:
    @pytest.mark.parametrize("workers", WAYS)
    @pytest.mark.parametrize("shuffle", [False, True])
    def test_is_a_tensor_of_the_rows_as_they_are_stored(
        self, source: Source, workers: Any, shuffle: Any
    ) -> None:
        loader = DataLoader(source, batch_size=8, shuffle=shuffle, num_workers=workers)
        batches = list(loader)
        assert [len(batch) for batch in batches] == [8] * 12 + [1]
        for batch in batches:
            assert type(batch) is torch.Tensor
            assert batch.dtype == torch.uint16
            assert batch.ids.dtype == np.int64
            assert batch.valid is None
            assert np.array_equal(batch.numpy(), ROWS[batch.ids])
        kind = "full" if shuffle else "sequential"
        assert flat(batches) == Order(97, kind=kind).positions(0, 97).tolist()  # type: ignore[arg-type]

    @pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.uint32, np.int64])
    @pytest.mark.parametrize("files", [1, 3])
    def test_keeps_the_type(self, dtype: Any, files: int, tmp_path: Path) -> None:
        rows = matrix(20, 5, dtype)
        for batch in DataLoader(open_tokens(tmp_path / "t", rows, files), batch_size=3):
            assert np.array_equal(batch.numpy(), rows[batch.ids])
            assert batch.numpy().dtype == dtype

    def test_is_written_to_by_its_user_alone(self, source: Source) -> None:
        for _ in range(2):
            for batch in DataLoader(source, batch_size=4):
                assert np.array_equal(batch.numpy(), ROWS[batch.ids])
                batch.fill_(0)
                batch.ids[:] = -1

    def test_may_be_kept_saved_and_changed_in_place(self, tmp_path: Path) -> None:
        rows = matrix(600, 200, np.int32)
        source = open_tokens(tmp_path / "t", rows)
        kept = list(DataLoader(source, batch_size=4, shuffle=True, epochs=3))
        batch = kept[300]
        torch.save(batch, tmp_path / "batch.pt")  # Itself, not what was read with it.
        assert (tmp_path / "batch.pt").stat().st_size < 4 * batch.nbytes
        batch.add_(1)
        assert np.array_equal(batch.numpy(), rows[batch.ids] + 1)
        batch.sub_(1)
        for other in kept:
            assert np.array_equal(other.numpy(), rows[other.ids])

    @pytest.mark.parametrize("workers", WAYS)
    def test_of_samples_of_different_lengths_is_a_list(self, workers: Any, tmp_path: Path) -> None:
        from penstock.datasets import TokensDataset

        samples = [stream(number % 5) for number in range(23)]
        source = TokensDataset.create_from_index_on_filesystem(write_samples(tmp_path, samples))
        loader = DataLoader(source, batch_size=4, shuffle=True, num_workers=workers)
        count = 0
        for batch in loader:
            assert isinstance(batch, list)
            for row, number in zip(batch, batch.ids.tolist(), strict=True):
                assert row.dtype == torch.uint16
                assert row.tolist() == samples[number].tolist()
                row.fill_(9)
                count += 1
        assert count == 23

    def test_does_not_keep_many_others_alive(self, tmp_path: Path) -> None:
        source = open_tokens(tmp_path / "t", matrix(6000, 2048))
        kept = None
        tracemalloc.start()
        try:
            for number, batch in enumerate(DataLoader(source, batch_size=2, shuffle=True)):
                if number == 1500:
                    kept = batch
            del batch
            size, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept is not None
        assert size < 5 << 20  # Of 24 MiB in all.
        assert peak < 16 << 20

    def test_columns_are_there_for_those_who_ask(self, source: Source) -> None:
        arrow = next(iter(DataLoader(source, batch_size=4, output="arrow")))
        assert arrow["tokens"].to_pylist() == ROWS[:4].tolist()
        typed = next(iter(DataLoader(source, {"tokens": "int64[6]"}, batch_size=4)))
        assert typed["tokens"].tolist() == ROWS[:4].tolist()
        called = DataLoader(source, lambda columns: columns.num_rows, batch_size=4)
        assert list(called) == [4] * 24 + [1]


class TestViews:
    def test_are_read_like_any_source(self, source: Source, tmp_path: Path) -> None:
        one, other = source.split(a=0.5, b=0.5)
        for view in (one, other, source.take([5, 5, 96, 0]), one.take([1, 0]), source + source):
            expected = np.stack([np.asarray(view[number]) for number in range(len(view))])
            for batch in DataLoader(view, batch_size=3, shuffle=True):
                assert batch.dtype == torch.uint16
                assert np.array_equal(batch.numpy(), expected[batch.ids])

    def test_of_another_type_are_lists(self, source: Source, tmp_path: Path) -> None:
        wide = open_tokens(tmp_path / "t", matrix(5, 6, np.uint32))
        rows = [
            np.asarray(row).tolist()
            for batch in DataLoader(source + wide, batch_size=8)
            for row in batch
        ]
        assert rows == [*ROWS.tolist(), *matrix(5, 6, np.uint32).tolist()]

    def test_windows_are_sources_too(self, source: Source) -> None:
        windows = source.windows(10, 7)  # type: ignore[attr-defined]
        text = ROWS.reshape(-1)
        for batch in DataLoader(windows, batch_size=5, shuffle=True):
            assert batch.tolist() == [text[7 * n : 7 * n + 10].tolist() for n in batch.ids]


class TestRanks:
    @pytest.mark.parametrize("drop_last", [False, True])
    def test_share_every_step(self, source: Source, drop_last: Any) -> None:
        ranks = [
            list(
                DataLoader(
                    source, batch_size=5, shuffle=True, rank=rank, world_size=4, drop_last=drop_last
                )
            )
            for rank in range(4)
        ]
        assert {len(batches) for batches in ranks} == {4 if drop_last else 5}
        seen = []
        for step in zip(*ranks, strict=True):
            for batch in step:
                valid = np.ones(len(batch), bool) if batch.valid is None else batch.valid
                assert np.array_equal(batch.numpy()[valid], ROWS[batch.ids[valid]])
                seen += batch.ids[valid].tolist()
        whole = Order(97).positions(0, 80 if drop_last else 97).tolist()
        assert seen == whole

    def test_a_row_that_fills_up_does_not_count(self, source: Source) -> None:
        last = list(DataLoader(source, batch_size=50, rank=1, world_size=2))[-1]
        assert last.ids.tolist()[-2:] == [96, 96]
        assert last.valid.tolist() == [True] * 48 + [False]


class TestResume:
    @given(
        before=st.sampled_from([(1, 0), (2, "auto"), (3, 0), (4, "auto")]),
        after=st.sampled_from([(1, "auto"), (2, 0), (4, "auto"), (6, 0)]),
        cut=st.integers(0, 9),
        seed=st.integers(0, 2),
        windows=st.booleans(),
    )
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_goes_on_with_the_very_next_record_on_other_ranks(  # noqa: PLR0913
        self, source: Source, before: Any, after: Any, cut: int, seed: int, *, windows: bool
    ) -> None:
        encode = penstock.Tokens(6, shift=False) if windows else None

        def loaders(ranks: int, workers: Any) -> list[DataLoader]:
            options = {"global_batch_size": 12, "shuffle": True, "seed": seed}
            return [
                DataLoader(source, encode, rank=n, world_size=ranks, num_workers=workers, **options)
                for n in range(ranks)
            ]

        states = []
        for loader in loaders(*before):
            for _ in islice(loader, cut):
                pass
            states.append(json.loads(json.dumps(loader.state_dict())))
        assert all(state == states[0] for state in states)
        rest = loaders(*after)
        for loader in rest:
            loader.load_state_dict(states[0])
        seen = []
        for step in zip(*rest, strict=True):
            for batch in step:
                valid = ... if batch.valid is None else np.asarray(batch.valid)
                seen += np.asarray(batch.ids)[valid].tolist()
        expected = Order(97, seed=seed).positions(0, 97).tolist()[12 * cut :]
        # A state of the last batch has an empty rest; the loop above took one batch too few for it.
        assert seen == (expected or Order(97, seed=seed).positions(97, 97).tolist())

    @pytest.mark.parametrize("workers", WAYS)
    def test_the_state_counts_what_was_handed_out(self, source: Source, workers: Any) -> None:
        loader = DataLoader(source, batch_size=4, shuffle=True, num_workers=workers, epochs=3)
        for number, _ in enumerate(loader, start=1):
            state, stats = loader.state_dict(), loader.stats()
            epoch, batch = divmod(number - 1, 25)
            assert (state["epoch"], state["position"]) == (epoch, min(97, 4 * (batch + 1)))
            assert stats["batches"] == number
            assert stats["records"] == 97 * epoch + min(97, 4 * (batch + 1))
        assert stats["wait_seconds"] > 0

    def test_at_any_batch_from_any_way_to_any_other(self, source: Source) -> None:
        def loader(way: Any) -> DataLoader:
            return DataLoader(source, batch_size=9, shuffle=True, seed=5, num_workers=way)

        whole = all_shown(loader(0))
        first = loader("auto")
        run = iter(first)
        for cut in range(len(whole)):
            second = loader(2 if cut == 5 else 0)
            second.load_state_dict(first.state_dict())
            assert all_shown(second) == whole[cut:]
            assert shown(next(run)) == whole[cut]

    def test_the_state_has_the_form_of_any_other(self, source: Source) -> None:
        other = DataLoader([{"n": 1}], batch_size=1).state_dict()
        assert list(DataLoader(source, batch_size=1).state_dict()) == list(other)
        assert list(DataLoader(source, penstock.Tokens(5), batch_size=1).state_dict()) == list(
            other
        )

    def test_a_pass_may_be_left_and_two_may_run(self, source: Source) -> None:
        loader = DataLoader(source, batch_size=4, shuffle=True)
        whole = ids_of(loader)
        for count in (0, 1, 3, 7, 24):
            loader = DataLoader(source, batch_size=4, shuffle=True)
            run = iter(loader)
            assert ids_of(islice(run, count)) == whole[:count]
            run.close()  # type: ignore[attr-defined]
            assert loader.state_dict()["position"] == 4 * count
            loader.set_epoch(0)
            for one, two, expected in zip(iter(loader), iter(loader), whole, strict=True):
                assert one.ids.tolist() == two.ids.tolist() == expected

    def test_few_samples_go_round_without_end(self, tmp_path: Path) -> None:
        source = open_tokens(tmp_path / "t", matrix(5, 3), files=1)
        loader = DataLoader(source, batch_size=2, shuffle=True, epochs=None)
        seen = ids_of(islice(loader, 90))
        expected = [Order(5, epoch=epoch).positions(0, 5).tolist() for epoch in range(30)]
        assert seen == [part for one in expected for part in (one[:2], one[2:4], one[4:])]


class TestSkips:
    @pytest.mark.parametrize("workers", WAYS)
    def test_shorten_the_order(self, source: Source, workers: Any) -> None:
        loader = DataLoader(
            source, batch_size=8, shuffle=True, skip=[3, (10, 20)], num_workers=workers
        )
        batches = list(loader)
        assert sorted(flat(batches)) == [n for n in range(97) if n != 3 and not 10 <= n < 20]
        assert all(np.array_equal(batch.numpy(), ROWS[batch.ids]) for batch in batches)

    @pytest.mark.parametrize("workers", WAYS)
    @pytest.mark.parametrize("encode", [None, penstock.Tokens(6)], ids=str)
    def test_added_at_a_resume_keep_a_row_that_does_not_count(
        self, source: Source, workers: Any, encode: Any
    ) -> None:
        first = DataLoader(source, encode, batch_size=8)
        next(iter(first))
        second = DataLoader(source, encode, batch_size=8, skip=[9, 40], num_workers=workers)
        second.load_state_dict(first.state_dict())
        for batch in second:
            ids = np.asarray(batch.ids)
            valid = np.isin(ids, [9, 40], invert=True)
            assert valid.all() if batch.valid is None else batch.valid.tolist() == valid.tolist()
            rows = batch if encode is None else batch["input_ids"]
            assert np.array_equal(rows.numpy()[valid], ROWS[ids[valid]])
            assert not rows.numpy()[~valid].any()
            if encode is not None:
                assert (batch["labels"].numpy()[~valid] == -100).all()


class TestOnTheWay:
    def test_a_batch_takes_its_numbers_to_a_device(self, source: Source) -> None:
        loader = DataLoader(source, batch_size=20, prefetch_to="meta")
        for number, batch in enumerate(loader):
            assert batch.device.type == "meta"
            assert batch.ids.tolist() == list(range(97))[20 * number : 20 * (number + 1)]
            assert batch.valid is None
            assert loader.state_dict()["position"] == min(97, 20 * (number + 1))

    def test_pinning_keeps_them_too(self, source: Source) -> None:
        batches = list(DataLoader(source, batch_size=20, pin_memory=True))
        assert flat(batches) == list(range(97))
        assert {batch.is_pinned() for batch in batches} == {torch.cuda.is_available()}

    def test_what_is_decided_is_said(self, source: Source) -> None:
        told = DataLoader(source, batch_size=4).explain()
        assert isinstance(told, dict)
        assert told["workers"].startswith("the caller's own thread: to gather tokens")
        assert "tensor of the tokens" in told["batch"]
        step = DataLoader(source, batch_size=4).explain(step=3)
        assert step.ids.tolist() == [12, 13, 14, 15]  # type: ignore[union-attr]
        assert step.bytes.tolist() == [12] * 4  # type: ignore[union-attr]

    @pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
    @pytest.mark.parametrize("encode", [None, penstock.Tokens(4, boundaries=7919)], ids=str)
    def test_processes_make_the_same(self, source: Source, method: str, encode: Any) -> None:
        whole = all_shown(DataLoader(source, encode, batch_size=40, shuffle=True))
        loader = DataLoader(
            source,
            encode,
            batch_size=40,
            shuffle=True,
            num_workers=1,
            multiprocessing_context=method,
        )
        assert all_shown(loader) == whole


class TestSomethingIsWrong:
    @pytest.mark.parametrize("workers", WAYS)
    def test_a_file_that_shrank_is_told_by_the_batch_that_needs_it(
        self, workers: Any, tmp_path: Path
    ) -> None:
        rows = matrix(40, 600)
        source = open_tokens(tmp_path / "t", rows)
        loader = DataLoader(source, batch_size=2, num_workers=workers)
        run = iter(loader)
        seen = [next(run)]
        with (tmp_path / "t" / "1.bin").open("r+b") as file:
            file.truncate(4096)
        with pytest.raises(PenstockError, match=r"1\.bin") as caught:
            seen.extend(run)
        assert len(seen) >= 2
        for batch in seen:
            assert np.array_equal(batch.numpy(), rows[batch.ids])
        assert loader.state_dict()["position"] == 2 * len(seen)
        note = f"In the batch of step {len(seen)} of epoch 0: records {2 * len(seen)}"
        assert any(one.startswith(note) for one in caught.value.__notes__)

    @pytest.mark.parametrize("on_error", ["raise", "mask"])
    def test_a_file_that_is_gone_is_no_bad_record(self, on_error: Any, tmp_path: Path) -> None:
        source = open_tokens(tmp_path / "t", matrix(10, 5), files=1)
        loader = DataLoader(source, batch_size=2, on_error=on_error, num_workers=0)
        (tmp_path / "t" / "0.bin").unlink()
        with pytest.raises((PenstockError, OSError), match=r"0\.bin"):
            list(loader)
