"""`PolarsDataModule`: the records of frames, shared out, shuffled, sampled and drawn."""

from __future__ import annotations

import random
import tempfile
from hashlib import sha256
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import penstock
from penstock.errors import OptionError, PenstockError
from penstock.lightning import EngineOptions, PolarsDataModule
from penstock.schema import Category, Number, SchemaModel
from tests.lightning.small_models import FRAME, batches, counted, ids, model, seen

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning", "ignore:.*use of fork:DeprecationWarning"
)

MANY = pl.DataFrame({"x": [float(number) for number in range(100)]})


def module(frame: Any = MANY, batch_size: int = 4, **options: Any) -> PolarsDataModule:
    options = {"num_workers": 0, "engine": EngineOptions(seed=1), **options}
    return PolarsDataModule(SchemaModel(Number("x"), batch_size=batch_size), train=frame, **options)


def as_rank(data: PolarsDataModule, rank: int, world_size: int) -> PolarsDataModule:
    """Return a module whose trainer has this rank."""
    data.trainer = SimpleNamespace(global_rank=rank, world_size=world_size, num_nodes=1)  # type: ignore[assignment]
    return data


def flat(made: Iterable[Any]) -> list[int]:
    return [one for each in ids(made) for one in each]


# Frames.


def test_frames_of_every_library_give_the_same_batches() -> None:
    expected = [seen(one) for one in batches(PolarsDataModule(model(), train=FRAME, num_workers=0))]
    assert len(expected) == 4
    for frame in (
        FRAME.lazy().filter(pl.col("x") >= 0),
        FRAME.to_pandas(),
        FRAME.to_arrow(),
        FRAME.to_arrow().combine_chunks().to_batches()[0],
        penstock.open(FRAME.to_dicts()),
    ):
        data = PolarsDataModule(model(), train=frame, num_workers=0)
        assert [seen(one) for one in batches(data)] == expected


def test_a_lazy_frame_is_mapped_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lazy = pl.LazyFrame({"x": np.arange(1_000_000.0)}).filter(pl.col("x") % 2 == 0)
    before = pa.total_allocated_bytes()
    data = module(lazy, 100_000)
    assert pa.total_allocated_bytes() - before < 1_000_000
    assert list(tmp_path.iterdir()) == []
    assert [len(batch.ids) for batch in batches(data)] == [100_000] * 5
    assert next(iter(batches(data))).ids.tolist() == list(range(100_000))


def test_a_lazy_frame_without_a_place_to_lie_is_an_error_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError) as raised:
        module(FRAME.lazy(), 3)
    (note,) = raised.value.__notes__
    assert note.startswith("train=: a LazyFrame is collected into a temporary file.")
    assert "TMPDIR, or give frame.collect()" in note


@pytest.mark.parametrize("frame", [FRAME["x"], pd.Series([1]), FRAME.to_arrow()["x"], [{"x": 1}]])
def test_what_is_no_frame_is_a_type_error_with_the_split(frame: Any) -> None:
    with pytest.raises(TypeError, match=r"^test=\w+: expected a polars, pandas or Arrow frame"):
        module(test=frame)


def test_one_frame_serves_all_splits() -> None:
    data = PolarsDataModule(SchemaModel(Number("x"), batch_size=50), dataframe=MANY, num_workers=0)
    for split in ("train", "validate", "test", "predict"):
        assert counted(batches(data, split)) == list(range(100))
    assert [len(data.train_dataloader()), len(data.predict_dataloader())] == [2, 2]


def test_an_empty_frame_has_no_batches() -> None:
    data = module(MANY.head(0))
    assert len(batches(data)) == len(list(batches(data))) == 0
    with pytest.raises(ValueError, match="there is no record to draw"):
        batches(module(MANY.head(0), replacement=True))


def test_a_batch_has_records_in_their_order_and_the_last_one_is_short() -> None:
    found = batches(module())
    assert ids(found) == [list(range(start, start + 4)) for start in range(0, 100, 4)]
    assert [len(batch) for batch in batches(module(batch_size=30))] == [30, 30, 30, 10]
    assert len(batches(module(batch_size=30))) == 4


def test_prediction_has_the_records_and_needs_no_targets() -> None:
    schema = SchemaModel(Number("x"), Category("c", target=True), batch_size=4)
    data = PolarsDataModule(
        schema,
        predict=FRAME.drop("c"),
        num_workers=0,
        observation_buffer_size=10,
        sample_rate=0.5,
        replacement=True,
        engine=EngineOptions(equalize="drop", epoch="infinite"),
    )
    found = list(batches(data, "predict"))
    assert flat(found) == list(range(11))
    assert [row for batch in found for row in batch["metadata"]] == [
        [{"x": float(number)}] for number in range(11)
    ]
    assert {one for batch in found for one in batch["record/c"].state.flatten().tolist()} == {3}
    # Neither does a rank leave anything out.
    shares = [counted(batches(as_rank(data, rank, 3), "predict")) for rank in range(3)]
    assert sorted(one for share in shares for one in share) == list(range(11))


# Shares.


@pytest.mark.parametrize("assignment", ["balanced", "hash"])
@pytest.mark.parametrize("sharding", ["file", "chunk", "record"])
@pytest.mark.parametrize(("world_size", "workers"), [(3, 0), (2, 2)])
def test_shares_are_disjoint_and_cover_everything(
    world_size: int, workers: int, sharding: str, assignment: Any
) -> None:
    engine = EngineOptions(seed=1, assignment=assignment, equalize="none")
    shares = [
        list(batches(as_rank(module(num_workers=workers, sharding=sharding, engine=engine), *at)))
        for at in ((rank, world_size) for rank in range(world_size))
    ]
    assert sorted(one for share in shares for one in flat(share)) == list(range(100))
    sizes = [sum(map(len, share)) for share in shares]
    if sharding == "file":
        assert sorted(sizes) == [0] * (world_size - 1) + [100]
    elif assignment == "balanced":
        assert max(sizes) - min(sizes) <= (1 if sharding == "record" else 9)


def test_every_reader_has_some_of_a_frame_smaller_than_a_chunk() -> None:
    for readers in (2, 7, 24):
        shares = [counted(batches(as_rank(module(), rank, readers))) for rank in range(readers)]
        assert min(map(len, shares)) > 0
    # Chunks of a given size are given out whole.
    shares = [counted(batches(as_rank(module(chunk_batch_size=60), rank, 3))) for rank in range(3)]
    assert shares == [[*range(60)], [*range(60, 100)], []]


def test_owners_by_hash_are_those_of_json2vec() -> None:
    def owner(key: str) -> int:
        return int.from_bytes(sha256(key.encode()).digest()[:8], "big") % 3

    engine = EngineOptions(seed=1, assignment="hash")
    for sharding, key in (
        ("file", lambda _: "dataframe:0"),
        ("chunk", lambda number: f"dataframe:chunk:{number // 7}"),
        ("record", lambda number: f"dataframe:record:{number}"),
    ):
        options = {"sharding": sharding, "chunk_batch_size": 7, "engine": engine}
        for rank in range(3):
            own = [number for number in range(100) if owner(key(number)) == rank]
            assert counted(batches(as_rank(module(**options), rank, 3))) == own, sharding


def test_ranks_are_announced_the_same_number_of_batches() -> None:
    for equalize, expected in (("wrap", [3, 3, 3]), ("drop", [2, 2, 2]), ("none", [3, 2, 2])):
        engine = EngineOptions(seed=1, equalize=equalize)  # type: ignore[arg-type]
        found = []
        for rank in range(3):
            data = module(MANY.head(7), 1, sharding="record", engine=engine)
            found.append(len(batches(as_rank(data, rank, 3))))
        assert found == expected, equalize
    data = as_rank(module(sample_rate=0.5, engine=EngineOptions(seed=1, equalize="drop")), 0, 2)
    with pytest.raises(OptionError, match="equalize='drop' needs to know how many batches"):
        batches(data)


# Shuffling and sampling.


def test_a_buffer_of_one_keeps_the_order_and_a_larger_one_shuffles_within_it() -> None:
    orders = []
    for split in ("train", "validate"):
        data = PolarsDataModule(
            SchemaModel(Number("x"), batch_size=8),
            dataframe=MANY,
            num_workers=0,
            observation_buffer_size=20,
            engine=EngineOptions(seed=3),
        )
        found = batches(data, split)
        orders += [flat(found), flat(found)]
        assert flat(batches(data, split)) == orders[-2]
    assert all(sorted(order) == list(range(100)) for order in orders)
    # Each epoch has an order of its own.
    assert orders[0] != orders[1]
    places = np.argsort(orders[0])
    assert np.abs(places - np.arange(100)).max() < 20
    assert flat(batches(module(observation_buffer_size=20))) != orders[0]


def test_a_sample_is_the_same_for_any_layout_and_another_one_for_each_epoch_and_split() -> None:
    data = module(sample_rate=0.3, validate=MANY, observation_buffer_size={"train": 9})
    first, second = (counted(batches(data)) for _ in range(2))
    assert first == second
    assert 15 < len(first) < 45
    found = batches(data)
    epochs = [counted(found), counted(found)]
    assert epochs[0] == first != epochs[1]
    assert counted(batches(data, "validate")) != first
    assert counted(batches(module(sample_rate=0.3, num_workers=2))) == first
    ranks = [counted(batches(as_rank(module(sample_rate=0.3), rank, 2))) for rank in range(2)]
    assert sorted(ranks[0] + ranks[1]) == first


def test_no_generator_of_the_user_is_touched_and_the_seed_decides_all() -> None:
    def epoch(**options: Any) -> list[Any]:
        data = PolarsDataModule(
            model(), train=FRAME, num_workers=0, observation_buffer_size=4, sample_rate=0.8,
            **options,
        )  # fmt: skip
        return [seen(batch) for batch in batches(data)]

    def states() -> list[Any]:
        return [random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()]  # noqa: NPY002

    before = states()
    one = epoch(engine=EngineOptions(seed=5))
    assert states() == before
    assert one == epoch(engine=EngineOptions(seed=5)) != epoch(engine=EngineOptions(seed=6))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        assert epoch() == one


def test_the_seed_of_the_first_loader_stays() -> None:
    data = module(observation_buffer_size=50, engine=None)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = flat(batches(data))
        torch.manual_seed(2)
        assert flat(batches(data)) == first
        assert flat(batches(module(observation_buffer_size=50, engine=None))) != first


# Replacement.


def test_draws_with_replacement_come_from_the_whole_frame() -> None:
    data = module(replacement=True)
    found = batches(data)
    draws = [flat(found) for _ in range(3)]
    assert [len(one) for one in draws] == [100] * 3
    assert len(set(draws[0])) < 80
    assert draws[0] != draws[1] != draws[2]
    often = np.bincount(np.concatenate(draws), minlength=100)
    assert often.max() < 12
    assert np.count_nonzero(often) > 80
    assert flat(batches(module(replacement=True))) == draws[0]
    # A draw of a rank may be any record, also one that it does not own.
    for rank in range(2):
        own = flat(batches(as_rank(module(replacement=True, batch_size=50), rank, 2)))
        assert len(own) >= 48
        assert min(own) < 25
        assert max(own) > 75


def test_an_epoch_without_end_goes_on() -> None:
    engine = EngineOptions(seed=1, epoch="infinite")
    found = batches(module(MANY.head(6), 4, replacement={"train": True}, engine=engine))
    with pytest.raises(TypeError, match="not known"):
        len(found)
    run = iter(found)
    assert [len(next(run)) for _ in range(10)] == [4, 2] * 5


# Workers.


def test_only_training_is_endless_and_it_draws_with_replacement() -> None:
    engine = EngineOptions(seed=1, epoch="infinite")
    data = PolarsDataModule(
        model(), dataframe=FRAME, replacement=True, num_workers=0, engine=engine
    )
    made = islice(batches(data, "validate"), 9)
    assert [len(batch) for batch in made] == [3, 3, 3, 2]
    assert len(batches(data, "test")) == 4
    data = PolarsDataModule(model(), dataframe=FRAME, num_workers=0, engine=engine)
    with pytest.raises(OptionError, match="epoch='infinite' draws with replacement"):
        batches(data)
    assert len(batches(data, "validate")) == 4


def test_workers_are_forked_from_a_process_that_has_used_polars() -> None:
    frame = MANY.lazy().group_by("x").len().sort("x").collect()
    for mode in (None, "fork"):
        engine = EngineOptions(seed=1, multiprocessing_context=mode)  # type: ignore[arg-type]
        found = batches(module(frame, num_workers=2, engine=engine))
        assert counted(found) == list(range(100))


def test_batches_of_workers_come_in_turn_and_are_the_same_each_time() -> None:
    data = module(num_workers=2, observation_buffer_size=10)
    first = ids(batches(data))
    assert first == ids(batches(data))
    assert len(first) == len(batches(data))


# Bad records.


def test_a_bad_value_raises_and_is_named_or_is_masked() -> None:
    frame = pl.DataFrame({"x": ["1", "2", "three", "4", "5"]})
    with pytest.raises(PenstockError, match=r"record/x.*three"):
        list(batches(module(frame)))
    data = module(frame, engine=EngineOptions(seed=1, bad_values="mask"))
    found = list(batches(data))
    assert [len(batch) for batch in found] == [4, 1]
    assert counted(found) == [0, 1, 3, 4]


def test_a_column_that_is_missing_is_null_and_warns_at_last() -> None:
    data = module(MANY.rename({"x": "y"}), 5)
    with pytest.warns(UserWarning, match=r"record/x: .* found no value in 20 batches"):
        states = {
            one for batch in batches(data) for one in batch["record/x"].state.flatten().tolist()
        }
    assert states == {1}
