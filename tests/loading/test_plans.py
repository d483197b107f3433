"""Plans over lengths in a loader: any cut, ranks, workers, epochs; views, appends, kept plans."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock import DataLoader
from penstock.datasets import TokensDataset
from penstock.errors import BadRecordsError, OptionError
from penstock.loading import _kept_plans as kept_plans
from penstock.order import BucketPlan, CostPlan, Order, PackingPlan
from tests.loading.token_samples import write_samples

if TYPE_CHECKING:
    from pathlib import Path

SEED = 3
LENGTHS = [(n * 7919) % 13 + 1 for n in range(60)]


def plans(count: int) -> dict[str, Any]:
    lengths = LENGTHS[:count]
    return {
        "cost": CostPlan(lengths, 20),
        "skip": CostPlan(lengths, 11, oversize="skip"),
        "packing": PackingPlan(lengths, 15, 2),
        "bucket": BucketPlan(lengths, 4, 3),
    }


NAMES = st.sampled_from([*plans(0)])


def loader(plan: Any, count: int = 60, **options: Any) -> DataLoader:
    records = [{"n": n, "text": "x" * LENGTHS[n]} for n in range(count)]
    defaults: dict[str, Any] = {"shuffle": True, "seed": SEED, "epochs": 1, "num_workers": 0}
    return DataLoader(records, {"n": "int64"}, batch_size=plan, **(defaults | options))


def rows(batch: Any) -> list[int]:
    """Return the records of a batch that count."""
    valid = slice(None) if batch.valid is None else batch.valid
    numbers: list[int] = batch["n"][valid].tolist()
    assert numbers == batch.ids[valid].tolist()
    return numbers


def planned(plan: Any, count: int = 60, epoch: int = 0, skip: Any = ()) -> list[list[int]]:
    order = Order(count, seed=SEED, epoch=epoch, skip=skip)
    batches = plan.over(order)
    return [order.at(batches.positions(number)).tolist() for number in range(len(batches))]


def dealt(ranks: list[list[list[int]]]) -> list[list[int]]:
    """Return the batches of all ranks in the order of the plan, without those that do not count."""
    assert len({len(one) for one in ranks}) == 1  # Equal steps.
    return [batch for step in zip(*ranks, strict=True) for batch in step if batch]


@given(NAMES, st.integers(0, 60), st.integers(1, 4), st.integers(1, 4), st.data())
def test_a_run_goes_on_with_the_next_batch_on_any_ranks(
    name: str, count: int, before: int, after: int, data: st.DataObject
) -> None:
    plan, epoch = plans(count)[name], data.draw(st.integers(0, 2))
    skip = data.draw(st.lists(st.integers(0, count - 1), max_size=5)) if count else []
    expected = planned(plan, count, epoch, skip)
    cut = data.draw(st.integers(0, -(-len(expected) // before)))
    handed_out = []
    for rank in range(before):
        first = loader(plan, count, skip=skip, rank=rank, world_size=before)
        first.set_epoch(epoch)
        run = iter(first)
        handed_out.append([rows(batch) for _, batch in zip(range(cut), run, strict=False)])
        state = json.loads(json.dumps(first.state_dict()))
    assert dealt(handed_out) == expected[: before * cut]
    rest = []
    for rank in range(after):
        second = loader(plan, count, skip=skip, rank=rank, world_size=after)
        second.load_state_dict(state)
        rest.append([rows(batch) for batch in second])
    assert dealt(rest) == expected[before * cut :]


@given(NAMES, st.integers(1, 4))
def test_with_drop_last_every_rank_has_only_whole_steps(name: str, world_size: int) -> None:
    plan = plans(60)[name]
    options: dict[str, Any] = {"world_size": world_size, "drop_last": True}
    found = [
        [rows(batch) for batch in loader(plan, rank=rank, **options)] for rank in range(world_size)
    ]
    expected = planned(plan)
    assert dealt(found) == expected[: len(expected) - len(expected) % world_size]


@pytest.mark.parametrize("workers", ["auto", 2])
@pytest.mark.parametrize("name", [*plans(0)])
def test_workers_change_nothing(name: str, workers: Any) -> None:
    plan = plans(60)[name]
    found, expected = loader(plan, num_workers=workers, epochs=2), planned(plan)
    expected += planned(plan, epoch=1)
    assert len(found) == len(expected)
    assert [rows(batch) for batch in found] == expected


@pytest.mark.parametrize("name", [*plans(0)])
def test_batches_of_different_sizes_are_gathered_together(name: str, path: Path) -> None:
    plan = plans(60)[name]
    types = {"n": "int64", "text": "string"}
    options: dict[str, Any] = {"batch_size": plan, "shuffle": True, "seed": SEED, "epochs": 3}
    made = DataLoader(path, types, materialize=True, **options)
    batches, states, bins = [], [made.state_dict()], []
    for batch in made:
        assert [len(text) for text in batch["text"]] == [LENGTHS[n] for n in rows(batch)]
        batches.append(rows(batch))
        bins.append(None if batch.bins is None else batch.bins.tolist())
        states.append(made.state_dict())
    assert batches == [one for epoch in range(3) for one in planned(plan, epoch=epoch)]
    read = DataLoader(path, types, materialize=False, num_workers=0, **options)
    assert bins == [None if one.bins is None else one.bins.tolist() for one in read]
    assert made.stats()["records"] == sum(map(len, batches))
    for cut in (1, 7, len(batches) - 3):
        part = DataLoader(path, types, materialize=True, **options)
        part.load_state_dict(states[cut])
        assert [rows(batch) for batch in part] == batches[cut:]


def test_documents_of_tokens_are_batched_by_their_lengths(tmp_path: Path) -> None:
    samples = [np.full(length, n, np.uint16) for n, length in enumerate(LENGTHS)]
    folder = write_samples(tmp_path / "tokens", samples)
    source = TokensDataset.create_from_index_on_filesystem(folder)
    plan = PackingPlan("len()", 15, 2)
    found = DataLoader(source, batch_size=plan, shuffle=True, seed=SEED)
    expected = planned(PackingPlan(LENGTHS, 15, 2))
    assert [[int(row[0]) for row in batch] for batch in found] == expected


def test_records_skipped_in_mid_epoch_keep_their_rows_and_do_not_count() -> None:
    plan = plans(60)["cost"]
    first = loader(plan, epochs=2)
    run = iter(first)
    next(run)
    left_out = planned(plan)[3][0]
    second = loader(plan, epochs=2, skip=[left_out])
    second.load_state_dict(first.state_dict())
    found = [rows(batch) for batch in second]
    without = [[n for n in batch if n != left_out] for batch in planned(plan)[1:]]
    assert found == [batch for batch in without if batch] + planned(plan, epoch=1, skip=[left_out])


def test_the_rows_of_a_bin_are_known_to_batches_encoders_and_explain() -> None:
    class Encoder:
        fields: ClassVar = {"n": "int64"}

        def encode(self, columns: Any, where: Any) -> Any:
            return {"n": np.asarray(columns["n"]), "bin": np.repeat(*_bins(where.bins))}

    plan = plans(60)["packing"]
    batches = plan.over(Order(60, seed=SEED))
    for number, batch in enumerate(loader(plan)):
        assert batch.bins.tolist() == batches.bins(number).tolist()
        assert batch.to("cpu").bins.tolist() == batch.bins.tolist()
        ends = zip(batch.bins[:-1].tolist(), batch.bins[1:].tolist(), strict=True)
        assert all(sum(LENGTHS[n] for n in batch.ids[a:b].tolist()) <= 15 for a, b in ends)
    explained: Any = loader(plan).explain(2)
    assert explained.bins.tolist() == batches.bins(2).tolist()
    records = [{"n": n} for n in range(60)]
    options: dict[str, Any] = {"batch_size": plan, "shuffle": True, "seed": SEED}
    first: Any = next(iter(DataLoader(records, Encoder(), **options)))
    assert first["bin"].tolist() == np.repeat(*_bins(batches.bins(0))).tolist()
    listed: Any = next(iter(DataLoader(records, **options)))
    assert listed.bins.tolist() == batches.bins(0).tolist()
    arrow: Any = next(iter(DataLoader(records, output="arrow", **options)))
    found = np.frombuffer(arrow.schema.metadata[b"penstock.bins"], "<i8")
    assert found.tolist() == batches.bins(0).tolist()
    plain: Any = next(iter(DataLoader(records, {"n": "int64"}, batch_size=4)))
    assert plain.bins is None


def _bins(borders: Any) -> tuple[Any, Any]:
    return np.arange(len(borders) - 1), np.diff(borders)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "some.jsonl"
    file.write_text("".join(_line(n) for n in range(60)))
    return file


def _line(n: int) -> str:
    return json.dumps({"n": n, "size": LENGTHS[n % 60], "text": "x" * LENGTHS[n % 60]}) + "\n"


def test_lengths_may_be_a_field_its_length_or_that_of_the_index(path: Path) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": SEED}
    expected = planned(CostPlan(LENGTHS, 20))
    for name in ("size", "len(text)"):
        found = DataLoader(path, {"n": "int64"}, batch_size=CostPlan(name, 20), **options)
        assert [rows(batch) for batch in found] == expected
        assert name in found.explain()["plan"]  # type: ignore[index]
    sizes = [len(_line(n)) for n in range(60)]
    found = DataLoader(path, {"n": "int64"}, batch_size=CostPlan("len()", 200), **options)
    assert [rows(batch) for batch in found] == planned(CostPlan(sizes, 200))


def test_a_view_is_planned_by_its_own_lengths(path: Path) -> None:
    train, _ = penstock.open(path).split(train=0.7, val=0.3)
    found = DataLoader(train, {"size": "int64"}, batch_size=BucketPlan("size", 4), shuffle=True)
    batches = [batch["size"].tolist() for batch in found]
    assert sorted(n for one in batches for n in one) == sorted(train.arrow()["size"].to_pylist())
    assert all(one == sorted(one) for one in batches)


def test_a_run_goes_on_after_records_were_appended(path: Path) -> None:
    plan = CostPlan("len(text)", 20)
    first = DataLoader(path, {"n": "int64"}, batch_size=plan, shuffle=True, seed=SEED)
    run = iter(first)
    before = [rows(next(run)) for _ in range(4)]
    with path.open("a") as file:
        file.write("".join(_line(n) for n in range(60, 90)) + json.dumps({"text": "x" * 999}))
    second = DataLoader(path, {"n": "int64"}, batch_size=plan, shuffle=True, seed=SEED)
    with pytest.warns(UserWarning, match="were appended"):
        second.load_state_dict(first.state_dict())
    assert before + [rows(batch) for batch in second] == planned(CostPlan(LENGTHS, 20))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (CostPlan(LENGTHS, 21), "plan 'cost-20-emit-.*', version 1.*plan 'cost-21-emit-"),
        (CostPlan([*LENGTHS[:-1], 99], 20), "plan 'cost-20-emit-.*plan 'cost-20-emit-"),
        (BucketPlan(LENGTHS, 20), "plan 'bucket-20-8-"),
        (4, "has equal batches"),
    ],
)
def test_a_state_of_another_plan_is_refused(other: Any, message: str) -> None:
    state = loader(CostPlan(LENGTHS, 20)).state_dict()
    with pytest.raises(OptionError, match=message):
        loader(other).load_state_dict(state)


def test_on_changed_continue_goes_on_at_the_same_batch() -> None:
    first = loader(CostPlan(LENGTHS, 20))
    next(iter(first))
    changed = CostPlan([1, *LENGTHS[1:]], 20)
    second = loader(changed, on_changed="continue")
    second.load_state_dict(first.state_dict())
    assert [rows(batch) for batch in second] == planned(changed)[1:]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let plans of a few records be kept, in a cache of their own."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_plans, "_KEPT_FROM", 10)
    monkeypatch.setattr(kept_plans, "_RECENT", 0)
    monkeypatch.setattr(kept_plans, "_recent", OrderedDict())
    return tmp_path / "cache"


def test_a_large_plan_is_kept_and_found_by_others(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {name: planned(plans(60)[name]) for name in ("cost", "skip", "packing")}
    for name, batches in expected.items():
        assert [rows(batch) for batch in loader(plans(60)[name])] == batches
    assert len([*(cache / "views").glob("*.npy")]) == 6
    for kind in (CostPlan, PackingPlan):
        monkeypatch.setattr(kind, "arrays", None)  # Nothing is computed again.
    for name, batches in expected.items():
        assert [rows(batch) for batch in loader(plans(60)[name])] == batches


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"rubbish"])
def test_a_damaged_plan_is_computed_again(damage: bytes, cache: Path) -> None:
    plan = plans(60)["packing"]
    for _ in range(2):
        assert [rows(batch) for batch in loader(plan)] == planned(plan)
        for file in (cache / "views").glob("*-starts.npy"):
            file.unlink()
            file.write_bytes(damage)


def test_a_loader_with_a_plan_pickles_small(path: Path) -> None:
    found = DataLoader(path, {"n": "int64"}, batch_size=CostPlan("size", 20), num_workers=0)
    data = pickle.dumps(found)
    assert len(data) < 100_000
    assert [rows(batch) for batch in pickle.loads(data)] == [rows(batch) for batch in found]


def test_explain_says_what_padding_is_saved() -> None:
    text: str = loader(BucketPlan(LENGTHS, 4, 15)).explain()["plan"]  # type: ignore[index]
    assert "15 batches of 4 records on average" in text
    saved, plain = (float(part.split()[-1]) for part in text.split("%")[:2])
    assert saved < plain


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (CostPlan(LENGTHS[:59], 20), "costs has 59 values, and the source 60 records"),
        (CostPlan("size", 20), "no field 'size'|no record .*'size'"),
        (CostPlan("len()", 20), "records in memory have no length"),
        (CostPlan(LENGTHS, 20, order=Order(60)), "leave order out of CostPlan"),
    ],
)
def test_a_plan_that_does_not_fit_the_source_is_refused(plan: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        loader(plan)


def test_a_record_without_a_cost_is_named_unless_it_is_skipped(path: Path) -> None:
    path.write_text(_line(1) + '{"n": 2}\n' + _line(3))
    plan = CostPlan("size", 20)
    with pytest.raises(
        OptionError, match="record 1 has no whole number in size, or cannot"
    ) as error:
        len(DataLoader(path, {"n": "int64"}, batch_size=plan))
    assert "skip=[1, …]" in str(error.value)
    path.write_text('{"n": 1, "size": 0.5}\n' * 300)
    with pytest.raises(BadRecordsError, match=r"not a whole number.*give an array of them"):
        DataLoader(path, {"n": "int64"}, batch_size=plan)
    path.write_text(_line(1) + '{"n": 2}\n' + _line(3))
    assert len(DataLoader(path, {"n": "int64"}, batch_size=plan, skip=[1])) >= 1


def _mixed(weights: dict[str, float], *paths: Path, **options: Any) -> tuple[Any, DataLoader]:
    mixture = penstock.Mixture({path.stem: penstock.open(path) for path in paths}, weights)
    return mixture, DataLoader(mixture, batch_size=CostPlan("size", 20), **options)


def test_with_a_plan_the_weights_of_a_mixture_change_between_epochs(path: Path) -> None:
    other = path.with_name("other.jsonl")
    other.write_bytes(path.read_bytes())
    first, second = {"some": 1.0, "other": 1.0}, {"some": 3.0, "other": 1.0}
    mixture, begun = _mixed(first, path, other)
    run = iter(begun)
    next(run)
    with pytest.raises(OptionError, match="it stands at batch 1"):
        _mixed(second, path, other)[1].load_state_dict(begun.state_dict())
    with pytest.raises(OptionError, match="counts batches of a plan"):
        mixture.report(begun)
    assert sum(map(len, run)) > 0
    assert sum(seen.records for seen in mixture.report(begun).values()) == len(mixture)
    changed = _mixed(second, path, other)[1]
    changed.load_state_dict(begun.state_dict())
    ids = np.concatenate([batch.ids for batch in changed])
    assert len({*ids.tolist()}) == len(ids)
    assert np.count_nonzero(ids < 60) == pytest.approx(0.75 * len(ids), abs=2)


@pytest.mark.parametrize("by", ["field", "array"])
@pytest.mark.parametrize("grown", [["some"], ["other"], ["some", "other"]])
def test_a_planned_mixture_goes_on_over_the_records_it_began_with(
    path: Path, grown: list[str], by: str
) -> None:
    other = path.with_name("other.jsonl")
    other.write_bytes(path.read_bytes())

    def mixed() -> DataLoader:
        of = {name: penstock.open(path.with_name(f"{name}.jsonl")) for name in ("some", "other")}
        sizes = [record["size"] for one in of.values() for record in one]
        plan = CostPlan("size" if by == "field" else sizes, 20)
        mixture = penstock.Mixture(of, {"some": 2, "other": 1}, stop="all_exhausted")
        return DataLoader(mixture, {"size": "int64"}, batch_size=plan)

    begun = mixed()
    run = iter(begun)
    for _ in range(5):
        next(run)
    state = json.loads(json.dumps(begun.state_dict()))
    rest = [(batch.ids.tolist(), batch["size"].tolist()) for batch in run]
    for name in grown:
        at = path.with_name(f"{name}.jsonl")
        at.write_text(at.read_text() + _line(60) + _line(61))
    later = mixed()
    with pytest.warns(UserWarning, match=f"{2 * len(grown)} records were appended") as warned:
        later.load_state_dict(state)
    assert len(warned) == 1
    assert later.state_dict() == state
    for twin in pickle.loads(pickle.dumps(later)), later:
        assert [(batch.ids.tolist(), batch["size"].tolist()) for batch in twin] == rest
    later.load_state_dict(mixed().state_dict())  # Of a run that has them.
    assert max(number for batch in later for number in batch.ids) == 119 + 2 * len(grown)


def test_the_source_of_a_resumed_loader_has_the_numbers_of_its_batches(path: Path) -> None:
    other = path.with_name("other.jsonl")
    other.write_bytes(path.read_bytes())

    def mixed() -> DataLoader:
        sources = {"some": penstock.open(path), "other": penstock.open(other)}
        return DataLoader(penstock.Mixture(sources, {"some": 1, "other": 1}), batch_size=20)

    begun = mixed()
    next(iter(begun))
    path.write_text(path.read_text() + _line(60))
    resumed = mixed()
    with pytest.warns(UserWarning, match="appended"):
        resumed.load_state_dict(begun.state_dict())
    for batch in resumed:
        assert resumed.source[batch.ids] == list(batch)
