"""`CustomDataModule`: datasets of one's own, which every worker of every rank reads."""

from __future__ import annotations

import os
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import IterableDataset, get_worker_info

from penstock.lightning import CustomDataModule, EngineOptions, shard_info
from penstock.schema import Number, SchemaModel
from tests.lightning.preprocessing import some
from tests.lightning.small_models import FRAME, Rows, batches, model, seen

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning", "ignore:.*use of fork:DeprecationWarning"
)


class Whole(IterableDataset[Any]):
    """Reads all of its records, whoever asks."""

    def __init__(self, *records: Any) -> None:
        self.records = records or tuple(FRAME.to_dicts())

    def __iter__(self) -> Iterator[Any]:
        yield from self.records


class ByWorker(Whole):
    """Shares records over the workers of torch."""

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        assert worker is not None
        yield from self.records[worker.id :: worker.num_workers]


def module(dataset: Any, **options: Any) -> CustomDataModule:
    options = {"num_workers": 0, "engine": EngineOptions(seed=1), **options}
    return CustomDataModule(SchemaModel(Number("x"), batch_size=4), train=dataset, **options)


def values(data: CustomDataModule, strata: str = "train") -> list[float]:
    contents = [batch["record/x"].content for batch in batches(data, strata)]
    return [x for content in contents for x in content.flatten().tolist()]


PLAIN = FRAME["x"].to_list()


def test_records_come_in_their_order_and_the_last_batch_is_short() -> None:
    data = module(Whole())
    assert values(data) == values(data) == PLAIN
    assert [len(batch) for batch in batches(data)] == [4, 4, 3]
    with pytest.raises(TypeError, match="the number of batches is not known"):
        len(batches(data))


def test_the_code_of_the_document_of_json2vec_runs() -> None:
    data = CustomDataModule(
        model=model(),
        datasets={"train": Rows(), "validate": Rows(), "predict": Rows([{"x": 1.5}])},
        num_workers=0,
        persistent_workers=False,
        pin_memory=False,
    )
    assert [seen(batch).ids for batch in batches(data)] == [
        [0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10],
    ]  # fmt: skip
    (batch,) = batches(data, "predict")
    assert batch["metadata"] == [[{"x": 1.5}]]
    assert batch["record/c"].state.tolist() == [[3]]


@pytest.mark.parametrize("dataset", [Rows(), ByWorker()])
def test_a_dataset_that_shares_itself_is_read_once_by_all_workers(dataset: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert sorted(values(module(dataset, num_workers=2))) == PLAIN


def test_shares_of_ranks_and_workers_are_disjoint() -> None:
    found = []
    for rank in range(2):
        data = module(Rows(), num_workers=2)
        data.trainer = SimpleNamespace(global_rank=rank, world_size=2, num_nodes=1)  # type: ignore[assignment]
        found += values(data)
    assert sorted(found) == PLAIN
    assert shard_info() == (0, 1)


def test_one_that_does_not_is_read_by_each_worker_and_a_warning_says_so_once() -> None:
    data = module(Whole(), num_workers=2, test=Whole())
    with pytest.warns(UserWarning, match=r"Whole is read by 2 workers.*shard_info") as caught:
        assert sorted(values(data)) == sorted(PLAIN * 2)
    # Newer Pythons warn of forks, too.
    assert sum(issubclass(one.category, UserWarning) for one in caught) == 1
    dataset = Whole()
    dataset.shards_itself = True  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        values(data)
        values(module(dataset, num_workers=2))
        values(module(Whole(), num_workers=0))


class ByWorkerAndRank(ByWorker):
    """Shares records over ranks as well."""

    def __iter__(self) -> Iterator[Any]:
        worker, rank = get_worker_info(), int(os.environ.get("RANK", "0"))
        assert worker is not None
        yield from self.records[worker.id + rank :: worker.num_workers]


@pytest.mark.parametrize(
    ("dataset", "ranks", "is_warned"),
    [(ByWorker(), 1, False), (ByWorker(), 2, True), (ByWorkerAndRank(), 2, False)],
)
def test_one_that_looks_at_its_worker_has_to_look_at_its_rank_too(
    dataset: Any,
    ranks: int,
    is_warned: bool,  # noqa: FBT001
) -> None:
    data = module(dataset, num_workers=2)
    data.trainer = SimpleNamespace(global_rank=0, world_size=ranks, num_nodes=1)  # type: ignore[assignment]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches(data)
    texts = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    assert bool(texts) is is_warned
    assert all("is read by 4 workers of 2 ranks" in text for text in texts)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_item_that_is_no_dict_is_a_type_error_with_its_position(workers: int) -> None:
    data = module(Whole({"x": 1}, {"x": 2}, [3]), num_workers=workers)
    with pytest.raises(TypeError, match=r"record 2 of the dataset train= is a list: expect"):
        values(data)


def test_records_of_mixed_types_and_fields_are_read() -> None:
    records = [{"x": 1}, {"x": "2.5", "y": [1]}, {"y": {"z": 1}}, {"x": None}, {"x": True}]
    (first, last) = batches(module(Whole(*records)))
    assert first["record/x"].content.flatten().tolist() == [1, 2.5, 0, 0]
    assert first["record/x"].state.flatten().tolist() == [0, 0, 1, 1]
    assert last["record/x"].content.flatten().tolist() == [1]


def test_observations_are_preprocessed_sampled_and_shuffled() -> None:
    made = [x + part for x in PLAIN if x % 4 != 1 for part in (0, 0.1)]
    assert values(module(Whole(), preprocessor=some)) == pytest.approx(made)
    mixed = values(module(Whole(), preprocessor=some, observation_buffer_size=6))
    assert sorted(mixed) == pytest.approx(made)
    assert mixed != pytest.approx(made)
    sampled = values(module(Whole(), preprocessor=some, sample_rate=0.5))
    assert set(map(str, sampled)) < set(map(str, values(module(Whole(), preprocessor=some))))
    options = {"sample_rate": 0.5, "observation_buffer_size": 6, "predict": Whole()}
    assert values(module(Whole(), **options), "predict") == PLAIN


def test_a_bad_record_is_masked_if_that_was_asked_for() -> None:
    records = [{"x": 1}, {"x": "many"}, {"x": 3}]
    for on_error in (None, "skip"):
        with pytest.raises(ValueError, match=r"many.*bad_values='mask'"):
            values(module(Whole(*records), engine=EngineOptions(on_error=on_error)))
    engine = EngineOptions(bad_values="mask")
    (batch,) = batches(module(Whole(*records), engine=engine))
    assert batch.valid is not None
    assert batch.valid.tolist() == [True, False, True]


def test_a_dataset_opens_its_connections_in_each_worker() -> None:
    assert sorted(values(module(_Connected(), num_workers=2))) == [0, 0, 1, 1]


class _Connected(IterableDataset[Any]):
    shards_itself = True

    def __getstate__(self) -> Any:
        raise AssertionError("forked workers pickle no dataset")

    def __iter__(self) -> Iterator[Any]:
        connection = iter(range(2))
        yield from ({"x": number} for number in connection)
