"""Records that only flow, through the same loader: recipes, engines, delivery, state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import DataLoader
from penstock.errors import BadRecordsError, OptionError, SchemaMismatchError
from penstock.loading._feed import HasFeed
from penstock.order import Order
from tests.loading import stream_samples as samples
from tests.loading.feed_contract import FeedContract
from tests.loading.toy_encoders import GrowingVocabulary
from tests.loading.toy_feed import UNIT_IDS, Flow

if TYPE_CHECKING:
    from penstock.datasets import Stream

SIZES = [7, 0, 4, 1, 12, 3]


def flow(sizes: list[int] | None = None) -> Flow:
    sizes = SIZES if sizes is None else sizes
    return Flow(
        [
            [{"n": 100 * unit + n, "word": "abcdefg"[n * n % 7]} for n in range(size)]
            for unit, size in enumerate(sizes)
        ]
    )


def loader(sizes: list[int] | None = None, **options: Any) -> DataLoader:
    defaults: dict[str, Any] = {"encode": {"n": "int64"}, "batch_size": 3, "seed": 5}
    return DataLoader(flow(sizes), **{**defaults, **options})


def expected(sizes: list[int], size: int, epoch: int = 0) -> list[list[int]]:
    order = Order(len(sizes), seed=5, epoch=epoch).positions(0, len(sizes)).tolist()
    units = [[100 * unit + n for n in range(sizes[unit])] for unit in order]
    return [unit[at : at + size] for unit in units for at in range(0, len(unit), size)]


def rows(batch: Any) -> list[int]:
    """Return the records of a batch that count."""
    numbers = batch["n"].tolist()
    assert [100 * (one // UNIT_IDS) + one % UNIT_IDS for one in batch.ids.tolist()] == numbers
    flags = [True] * len(numbers) if batch.valid is None else batch.valid.tolist()
    return [number for number, counts in zip(numbers, flags, strict=True) if counts]


def test_the_toy_fulfils_the_protocol() -> None:
    assert isinstance(flow(), HasFeed)


class TestFlow(FeedContract):
    @pytest.fixture
    def source(self) -> Flow:
        return flow()

    @pytest.fixture
    def expected(self) -> list[int]:
        return [100 * unit + n for unit, size in enumerate(SIZES) for n in range(size)]


class TestStream(FeedContract):
    @pytest.fixture
    def source(self) -> Stream:
        return samples.flow(SIZES, buffer=4)

    @pytest.fixture
    def expected(self) -> list[int]:
        return samples.all_of(SIZES)


class TestMappedStreamOfBatches(TestStream):
    @pytest.fixture
    def source(self) -> Stream:
        return samples.flow(SIZES, chunk=5, mapped=True, buffer=4)

    @pytest.fixture
    def expected(self) -> list[int]:
        return samples.all_of(SIZES, mapped=True)


class TestAddressed(FeedContract):
    @pytest.fixture
    def source(self) -> list[dict[str, int]]:
        return [{"n": number} for number in range(17)]

    @pytest.fixture
    def expected(self) -> list[int]:
        return list(range(17))


def test_the_toy_hands_out_unit_after_unit() -> None:
    found = [rows(batch) for batch in loader(epochs=2, num_workers=3)]
    assert found == expected(SIZES, 3) + expected(SIZES, 3, epoch=1)


def test_every_recipe_takes_them() -> None:
    numbers = expected(SIZES, 3)
    plain = loader(encode=None)
    assert [[record["n"] for record in batch] for batch in plain] == numbers
    arrow = loader(encode=None, output="arrow")
    assert [batch["n"].to_pylist() for batch in arrow] == numbers
    called = loader(encode=lambda columns: {"n": columns["n"].to_numpy()}, drop_last=True)
    assert [batch["n"].tolist() for batch in called] == numbers


@given(
    st.lists(st.integers(0, 9), max_size=5),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 12),
)
def test_another_number_of_ranks_goes_on_with_the_next_record(
    sizes: list[int], before: int, after: int, cut: int
) -> None:
    handed_out = [record for unit in expected(sizes, 10) for record in unit]
    seen: list[list[int]] = []
    state: dict[str, Any] = {}
    for rank in range(before):
        first = loader(sizes, rank=rank, world_size=before, num_workers=0)
        mine = [rows(batch) for _, batch in zip(range(cut), first, strict=False)]
        seen = [a + b for a, b in zip(seen, mine, strict=True)] if rank else mine
        state = json.loads(json.dumps(first.state_dict()))
    done = [record for batch in seen for record in batch]
    assert done == handed_out[: len(done)]
    rest: list[list[int]] = []
    for rank in range(after):
        second = loader(sizes, rank=rank, world_size=after, num_workers=0)
        second.load_state_dict(state)
        mine = [rows(batch) for batch in second if state["epoch"] == 0]
        rest = [a + b for a, b in zip(rest, mine, strict=True)] if rank else mine
    if state["epoch"] == 0:
        assert done + [record for batch in rest for record in batch] == handed_out


def test_an_encoder_that_learns_goes_on_with_its_state() -> None:
    whole = [batch["code"].tolist() for batch in loader(encode=GrowingVocabulary())]
    first = loader(encode=GrowingVocabulary(), num_workers=2)
    run = iter(first)
    begun = [next(run)["code"].tolist() for _ in range(4)]
    second = loader(encode=GrowingVocabulary(), num_workers=0)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert begun + [batch["code"].tolist() for batch in second] == whole


def test_a_bad_record_is_named_or_masked() -> None:
    broken = Flow([[{"n": 0}, {"n": "x"}, {"n": 2}]])
    with pytest.raises(SchemaMismatchError, match="record 1"):
        next(iter(DataLoader(broken, {"n": "int64"}, batch_size=3)))
    masked = DataLoader(broken, {"n": "int64"}, batch_size=3, on_error="mask")
    assert next(iter(masked)).valid.tolist() == [True, False, True]
    with pytest.raises(BadRecordsError, match="max_bad=0"):
        list(DataLoader(broken, {"n": "int64"}, batch_size=3, on_error="mask", max_bad=0))


def test_types_and_a_length_that_are_not_known_are_refused() -> None:
    with pytest.raises(OptionError, match="only flow"):
        loader(encode=["n"])
    with pytest.raises(TypeError, match="no length"):
        len(loader())


@pytest.mark.parametrize("workers", [0, 1, "auto"])
def test_an_endless_flow_without_a_record_ends(workers: Any) -> None:
    assert [*loader([0, 0], epochs=None, num_workers=workers)] == []


def test_records_come_as_they_are_without_an_encoder() -> None:
    batches = [*DataLoader(Flow([[{"a": 1}, {"a": 2}]]), batch_size=2, num_workers=0)]
    assert batches == [[{"a": 1}, {"a": 2}]]
