"""Records drawn with replacement: by an array, by a field, or balanced by the values of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import DataLoader
from penstock.errors import ChangedSourceError, OptionError
from penstock.index import create_default_jsonl_indexer
from penstock.order import Weighted, alias_table
from penstock.order._weighted import WeightedOrder
from tests.loading import gloo_programs
from tests.loading.processes import still_there
from tests.loading.ranks import global_batch
from tests.loading.test_killed_runs import _kill
from tests.loading.toy_encoders import HashedMask
from tests.loading.toy_feed import Flow
from tests.loading.toy_plan import ThreeFive
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source
    from tests.loading.ranks import Nursery

COUNT = 90
LABELS = ["cat"] * 70 + ["dog"] * 15 + ["emu"] * 5
RECORDS = [
    {"n": number, "w": number % 4 / 2, "label": LABELS[number], "text": "x" * (number % 7)}
    for number in range(COUNT)
]
WEIGHTS = np.array([one["w"] for one in RECORDS])


def loader(source: Any = None, **options: Any) -> DataLoader:
    usual: dict[str, Any] = {"batch_size": 8, "num_workers": 0, "seed": 3}
    records = RECORDS if source is None else source
    return DataLoader(records, {"n": "int64"}, **{**usual, **options})


def rows(batch: Any) -> list[int]:
    """Return the records of a batch that count."""
    counts = slice(None) if batch.valid is None else batch.valid
    found: list[int] = batch.ids[counts].tolist()
    assert batch["n"][counts].tolist() == found
    return found


def all_rows(run: DataLoader) -> list[int]:
    return [number for batch in run for number in rows(batch)]


def expected(weights: Any, epoch: int = 0, draws: int | None = None) -> list[int]:
    table = alias_table(np.asarray(weights, np.float64))
    order = WeightedOrder(len(weights), seed=3, epoch=epoch, draws=draws, table=lambda: table)
    found: list[int] = order.positions(0, len(order)).tolist()
    return found


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Source:
    path = tmp_path_factory.mktemp("weights") / "a.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in RECORDS))
    return penstock.open(path)


@pytest.mark.parametrize("workers", [0, "auto", 2])
@pytest.mark.parametrize(
    "weights", [WEIGHTS, WEIGHTS.tolist(), torch.tensor(WEIGHTS), "w", Weighted("w")]
)
def test_an_array_and_a_field_draw_alike(lines: Source, weights: Any, workers: Any) -> None:
    run = loader(lines, weights=weights, num_workers=workers, epochs=2)
    assert len(run) == 2 * 12
    found = all_rows(run)
    assert found == expected(WEIGHTS) + expected(WEIGHTS, 1)
    assert not {number for number in found if WEIGHTS[number] == 0}


def test_a_length_may_be_given_and_a_field_may_be_measured(lines: Source) -> None:
    run = loader(lines, weights=Weighted(WEIGHTS, length=500), batch_size=50)
    assert len(run) == 10
    assert all_rows(run) == expected(WEIGHTS, draws=500)
    lengths = [len(one["text"]) for one in RECORDS]
    assert all_rows(loader(lines, weights="len(text)")) == expected(lengths)


@pytest.mark.parametrize("shuffle", [False, True, "full", "block"])
def test_shuffle_does_not_matter(lines: Source, shuffle: Any) -> None:
    run = loader(lines, weights="w", shuffle=shuffle)
    order = run.explain()["order"]  # type: ignore[index]
    assert order == "weighted, seed 3: drawn with replacement, by 'w'; shuffle does not matter"
    assert run.explain(step=2).ids.tolist() == expected(WEIGHTS)[16:24]  # type: ignore[union-attr]
    assert all_rows(run) == expected(WEIGHTS)


def test_columns_give_the_same_batches(lines: Source) -> None:
    decoded = loader(lines, weights="w", materialize=False)
    gathered = loader(lines, weights="w", materialize=True)
    assert all_rows(gathered) == all_rows(decoded)


def test_views_have_weights_of_their_own(lines: Source) -> None:
    view = lines.take(range(80, 90))
    run = DataLoader(view, {"n": "int64"}, batch_size=5, weights=np.arange(10), seed=3)
    found = [n for batch in run for n in batch["n"].tolist()]
    assert found == [80 + number for number in expected(np.arange(10))]
    by_field = DataLoader(view, {"n": "int64"}, batch_size=5, weights="w", seed=3)
    ids = [number for batch in by_field for number in batch.ids.tolist()]
    assert ids == expected(WEIGHTS[80:])


class TestBalance:
    @pytest.mark.parametrize("seed", range(3))
    def test_each_value_comes_equally_often(self, lines: Source, seed: int) -> None:
        run = DataLoader(
            lines, {"label": "string"}, batch_size=90, balance="label", seed=seed, epochs=100
        )
        found = [label for batch in run for label in batch["label"]]
        counts = np.array([found.count(label) for label in ("cat", "dog", "emu")])
        assert ((counts - 3000) ** 2 / 3000).sum() < 13.8  # 99.9 % for 2 degrees of freedom.

    def test_records_of_one_value_come_equally_often(self, lines: Source) -> None:
        run = loader(lines, balance="label", epochs=100, batch_size=90)
        counts = np.bincount(all_rows(run), minlength=COUNT)
        for low, high in ((0, 70), (70, 85), (85, 90)):
            own = counts[low:high]
            mean = 3000 / (high - low)
            assert ((own - mean) ** 2 / mean).sum() < (high - low) + 5 * np.sqrt(2 * (high - low))

    @pytest.mark.parametrize(
        "values", [[1, 2, 2, -(2**62)], [True, False, False, False], ["a", "b", "b", ""]]
    )
    def test_numbers_texts_and_booleans(self, values: list[Any]) -> None:
        source = [{"n": number, "of": value} for number, value in enumerate(values)]
        counts = np.bincount(all_rows(loader(source, balance="of", epochs=900)), minlength=4)
        share = 3600 / len(set(values))
        for value in set(values):
            own = sum(int(counts[n]) for n, other in enumerate(values) if other == value)
            assert abs(own - share) < 5 * np.sqrt(share)

    def test_skipped_records_do_not_count(self, lines: Source) -> None:
        run = loader(lines, balance="label", skip=[(0, 65)], epochs=100, batch_size=25)
        counts = np.bincount(all_rows(run), minlength=COUNT)
        assert counts[:65].sum() == 0
        assert abs(counts[65:70].sum() - 2500 / 3) < 5 * np.sqrt(2500 / 3)

    def test_a_record_without_a_value_is_named(self) -> None:
        source = penstock.open([{"n": 0, "of": "a"}, {"n": 1}, {"n": 2, "of": None}])
        with pytest.raises(OptionError, match=r"balance='of': 2 records have no value .* record 1"):
            all_rows(loader(source, balance="of"))
        with pytest.raises(OptionError, match="no value"):
            next(iter(loader(source, balance="of", skip=[1])))
        view = source.where("of is not null")
        assert set(all_rows(loader(view, balance="of"))) == {0}

    def test_a_field_that_is_not_there_or_has_no_values_to_count(self, lines: Source) -> None:
        with pytest.raises(OptionError, match="no record has a field 'lable'"):
            all_rows(loader(lines, balance="lable"))
        with pytest.raises(
            OptionError, match=r"field 'w' is no category.*balance by another field"
        ):
            all_rows(loader(lines, balance="w"))


@settings(max_examples=rounds(20, 200))
@given(
    before=st.sampled_from([1, 2, 3, 4]),
    after=st.sampled_from([1, 2, 3, 6]),
    cut=st.integers(0, 14),
    epoch=st.integers(0, 3),
    draws=st.one_of(st.none(), st.integers(1, 200)),
    skip=st.sets(st.integers(0, COUNT - 1), max_size=5),
)
def test_other_ranks_go_on_with_the_very_next_record(  # noqa: PLR0913, PLR0917
    before: int, after: int, cut: int, epoch: int, draws: int | None, skip: set[int]
) -> None:
    def ranks(world_size: int, limit: int, state: Any) -> tuple[list[int], dict[str, Any]]:
        parts, states = [], []
        for rank in range(world_size):
            run = loader(
                weights=Weighted(WEIGHTS, length=draws),
                batch_size=None,
                global_batch_size=12,
                skip=sorted(skip),
                rank=rank,
                world_size=world_size,
            )
            run.set_epoch(epoch) if state is None else run.load_state_dict(state)
            parts.append([rows(b) for _, b in zip(range(limit), run, strict=False)])
            states.append(json.loads(json.dumps(run.state_dict())))
        assert all(one == states[0] for one in states)
        return [n for step in zip(*parts, strict=True) for own in step for n in own], states[0]

    whole, _ = ranks(1, 100, None)
    assert len(whole) == (COUNT - len(skip) if draws is None else draws)
    assert not skip & set(whole)
    first, state = ranks(before, cut, None)
    if state["epoch"] != epoch:  # The pass was over, and the run stands in the next epoch.
        assert first == whole
        return
    rest, _ = ranks(after, 100, state)
    assert first + rest == whole


def test_records_skipped_in_mid_epoch_do_not_count_and_are_not_drawn_from_the_next_on() -> None:
    first = loader(weights=WEIGHTS, epochs=2)
    run = iter(first)
    for _ in range(3):
        next(run)
    second = loader(weights=WEIGHTS, epochs=2, skip=[5, (10, 20)])
    second.load_state_dict(first.state_dict())
    batches = [rows(batch) for batch in second]
    gone = {5, *range(10, 20)}
    assert [n for own in batches[:9] for n in own] == [
        n for n in expected(WEIGHTS)[24:] if n not in gone
    ]
    kept = np.delete(np.arange(COUNT), sorted(gone))
    assert [n for own in batches[9:] for n in own] == kept[expected(WEIGHTS[kept], 1)].tolist()


class TestResume:
    def cut(self, source: Any, **options: Any) -> dict[str, Any]:
        first = loader(source, **options)
        next(iter(first))
        state: dict[str, Any] = json.loads(json.dumps(first.state_dict()))
        return state

    def test_other_weights_are_refused_unless_the_run_may_go_on(self, lines: Source) -> None:
        state = self.cut(lines, weights=WEIGHTS)
        others: list[dict[str, Any]] = [
            {"weights": WEIGHTS + 1},
            {"weights": Weighted(WEIGHTS, length=7)},
            {"weights": "w"},
            {"balance": "label"},
        ]
        for other in others:
            with pytest.raises(ChangedSourceError, match="the weights are not those"):
                loader(lines, **other).load_state_dict(state)
        second = loader(lines, weights=WEIGHTS + 1, on_changed="continue")
        second.load_state_dict(state)
        assert all_rows(second) == expected(WEIGHTS + 1)[8:]
        third = loader(lines, weights=Weighted(WEIGHTS, length=7), on_changed="continue")
        third.load_state_dict(state)
        assert third.state_dict()["position"] == 7

    def test_a_state_without_weights_is_of_another_run(self, lines: Source) -> None:
        for one, other in (({"weights": "w"}, {}), ({"shuffle": True}, {"weights": "w"})):
            with pytest.raises(OptionError, match=r"the state is of (weighted|full) order"):
                loader(lines, **other).load_state_dict(self.cut(lines, **one))

    @pytest.mark.parametrize("how", [{"weights": "w"}, {"balance": "label"}, {}])
    def test_a_run_goes_on_over_the_records_it_began_with(
        self, tmp_path: Path, how: dict[str, Any]
    ) -> None:
        def write(records: list[dict[str, Any]], part: int) -> Source:
            text = "".join(json.dumps(one) + "\n" for one in records)
            (tmp_path / f"{part}.jsonl").write_text(text)
            create_default_jsonl_indexer(tmp_path, update=part > 0)()
            return penstock.open(tmp_path)

        source = write(RECORDS, 0)
        first = loader(source, **(how or {"weights": WEIGHTS}))
        run = iter(first)
        next(run)
        state = json.loads(json.dumps(first.state_dict()))
        rest = [rows(batch) for batch in run]
        grown = write([{"n": COUNT + n, "w": 100, "label": "fox"} for n in range(20)], 1)
        more = how or {"weights": np.append(WEIGHTS, np.full(20, 100.0))}
        second = loader(grown, **more)
        with pytest.warns(UserWarning, match="20 records were appended"):
            second.load_state_dict(state)
        assert [rows(batch) for batch in second] == rest
        assert max(all_rows(loader(grown, **more))) >= COUNT

    def test_a_changed_source_goes_on_with_the_weights_of_now(self) -> None:
        state = self.cut(RECORDS, weights="w")
        second = loader(RECORDS[:40], weights="w", on_changed="continue")
        second.load_state_dict(state)
        assert all_rows(second) == expected(WEIGHTS[:40])[8:]


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"weights": "w", "balance": "label"}, "weights and balance both"),
            ({"weights": "w", "batch_size": ThreeFive()}, "a plan places each record once"),
            ({"balance": 7}, "balance=7: give the name of a field"),
            ({"weights": [1.0, 2.0]}, "weights has 2 numbers, and the source 90 records"),
            ({"weights": [[1.0] * COUNT]}, "an array with a number for each record"),
            ({"weights": ["a"] * COUNT}, "an array with a number for each record"),
            ({"weights": np.where(np.arange(COUNT) == 17, -1, 1)}, "record 17 has -1;"),
            ({"weights": np.where(np.arange(COUNT) == 17, np.nan, 1)}, "record 17 has no number;"),
            ({"weights": np.where(np.arange(COUNT) == 17, np.inf, 1)}, "record 17 has inf;"),
            ({"weights": np.zeros(COUNT)}, "record 0 has the weight 0, and so have all others"),
            ({"weights": "w", "shuffle": "weighted"}, "shuffle='weighted'"),
        ],
    )
    def test_what_cannot_be_is_refused_when_a_loader_is_made(
        self, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(OptionError, match=message):
            loader(**options)

    def test_a_field_is_looked_at_before_the_run_moves(self) -> None:
        bad = [dict(one) for one in RECORDS]
        bad[17]["w"] = -1
        del bad[20]["w"]
        run = loader(bad, weights="w")
        with pytest.raises(OptionError, match=r"record 17 has -1 in the field 'w'.*skip=\[17\]"):
            next(iter(run))
        assert run.state_dict()["position"] == 0
        with pytest.raises(OptionError, match="record 20 has no number in the field 'w'"):
            next(iter(loader(bad, weights="w", skip=[17])))
        assert len(all_rows(loader(bad, weights="w", skip=[17, 20]))) == COUNT - 2
        with pytest.raises(OptionError, match="field 'ww'"):
            next(iter(loader(bad, weights="ww")))

    def test_a_weight_of_a_record_that_is_skipped_does_not_matter(self) -> None:
        weights = np.where(np.arange(COUNT) == 17, np.nan, 1)
        assert 17 not in all_rows(loader(weights=weights, skip=[17]))

    def test_records_that_only_flow(self) -> None:
        for how in ({"weights": [1.0]}, {"balance": "n"}):
            with pytest.raises(OptionError, match="need records that have numbers"):
                DataLoader(Flow([[{"n": 1}]]), {"n": "int64"}, batch_size=2, **how)

    def test_no_record_at_all(self) -> None:
        assert list(loader([], weights=[])) == []
        with pytest.raises(OptionError, match="no record to draw"):
            list(loader([], weights=Weighted([], length=5)))


def test_a_record_that_comes_again_is_drawn_for_again() -> None:
    run = DataLoader(RECORDS, HashedMask(), batch_size=90, weights="w", seed=1, epochs=1)
    (batch,) = run
    pairs = set(zip(batch.ids.tolist(), batch["is_masked"].tolist(), strict=True))
    assert len(pairs) > len(set(batch.ids.tolist()))


def test_the_table_of_many_records_is_made_once_and_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    count = 70_000
    source = penstock.open(pa.table({"n": np.arange(count), "w": np.arange(count) % 7}))

    def first(**how: Any) -> Any:
        options = {"weights": np.arange(count) % 7, "num_workers": 0, **how}
        return next(iter(DataLoader(source, {"n": "int64"}, batch_size=1000, **options))).ids

    expected = first(weights="w").tolist()  # Of a field of records in memory nothing is kept.
    assert not (tmp_path / "cache" / "views").exists()
    assert first().tolist() == expected
    (table,) = (tmp_path / "cache" / "views").glob("*.npy")
    assert table.stat().st_size < 8 * count + 1000
    made = table.stat().st_ino
    assert first().tolist() == expected
    assert table.stat().st_ino == made
    np.lib.format.open_memmap(table, mode="r+")[:, 1] = 2**31  # Damage.
    with pytest.raises(penstock.errors.PenstockError):
        first()
    table.write_bytes(b"nothing")
    assert first().tolist() == expected
    assert table.stat().st_ino != made


@pytest.mark.parametrize("number", range(rounds(1, 6)))
def test_a_killed_job_goes_on_exactly_on_other_ranks(
    number: int, nursery: Nursery, lines: Source, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    seen: list[int] = []
    for job_number, world in enumerate((2, 3)):
        run = {
            "path": lines.files[0],
            "loader": {
                "global_batch_size": 6,
                "seed": 3,
                "epochs": 3,
                "num_workers": (number + world) % 3,
                **({"balance": "label"} if number % 2 else {"weights": "w"}),
            },
            "checkpoint": str(checkpoint),
            "every": 3,
        }
        job = nursery.start(gloo_programs.train, tmp_path / f"job-{job_number}", world, run)
        until = None
        if job_number == 0:
            assert still_there(_kill(job, 8 + number, workers=bool(number % 2))) == []
            state = json.loads(checkpoint.read_text())
            until = [state["epoch"], state["position"]]
        else:
            job.wait()
        ranks = job.rows()
        for step, row in enumerate(ranks[0]):
            if until is None or row["at"] <= until:
                seen += global_batch([one[step] for one in ranks], lanes=1)
    how: dict[str, Any] = {"balance": "label"} if number % 2 else {"weights": "w"}
    assert seen == all_rows(loader(lines, batch_size=6, epochs=3, **how))
