"""An encoder of one's own has what ours have: stages, state, parts, rows beside the records."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock
from penstock import DataLoader
from penstock.batch import Encoder
from penstock.errors import OptionError
from tests.batch.encoder_contract import EncoderContract, plain
from tests.loading.toy_encoders import GrowingVocabulary, HashedMask, WithNegatives

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT, BATCH = 60, 8
ENCODERS = [GrowingVocabulary, HashedMask, WithNegatives]
Made = dict[str, Any]


def word(number: int) -> str:
    return f"w{number * number % 23}"


class TestGrowingVocabulary(EncoderContract):
    @pytest.fixture
    def encoder(self) -> Encoder:
        return GrowingVocabulary()

    @pytest.fixture
    def columns(self, encoder: Encoder) -> pa.RecordBatch:
        return pa.record_batch({"word": [word(number) for number in range(9)]})


class TestHashedMask(EncoderContract):
    @pytest.fixture
    def encoder(self) -> Encoder:
        return HashedMask()

    @pytest.fixture
    def columns(self, encoder: Encoder) -> pa.RecordBatch:
        return pa.record_batch({"n": range(9)})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("toys") / "a.jsonl"
    rows = ({"n": number, "word": word(number)} for number in range(COUNT))
    found.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


def loader(path: Path, encoder: object, **options: Any) -> DataLoader:
    defaults = {"batch_size": BATCH, "shuffle": True, "seed": 5, "epochs": 2, "materialize": False}
    return DataLoader(penstock.open(path), encoder, **{**defaults, **options})


def shown(batch: Any) -> Made:
    valid = None if batch.valid is None else batch.valid.tolist()
    return {"ids": batch.ids.tolist(), "valid": valid, **plain(batch)}


@pytest.mark.parametrize("encoder", ENCODERS)
class TestOnTheWay:
    def test_it_fulfils_the_protocol(self, encoder: Callable[[], Any]) -> None:
        assert isinstance(encoder(), Encoder)

    @pytest.mark.parametrize("workers", ["auto", 2])
    def test_batches_do_not_depend_on_who_makes_them(
        self, path: Path, encoder: Callable[[], Any], workers: Any
    ) -> None:
        alone = [shown(batch) for batch in loader(path, encoder(), num_workers=0)]
        found = [shown(batch) for batch in loader(path, encoder(), num_workers=workers)]
        assert found == alone

    def test_batches_come_out_of_columns_alike(
        self, path: Path, encoder: Callable[[], Any]
    ) -> None:
        decoded = [shown(batch) for batch in loader(path, encoder())]
        assert [shown(batch) for batch in loader(path, encoder(), materialize=True)] == decoded

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_run_goes_on_at_any_batch(
        self, path: Path, encoder: Callable[[], Any], workers: int
    ) -> None:
        first = loader(path, encoder(), num_workers=0)
        whole, states = [], [first.state_dict()]
        for batch in first:
            whole.append(shown(batch))
            states.append(json.loads(json.dumps(first.state_dict())))
        for cut in range(0, len(whole), 5 if workers else 1):
            second = loader(path, encoder(), num_workers=workers)
            second.load_state_dict(states[cut])
            assert [shown(batch) for batch in second] == whole[cut:]

    def test_a_copy_of_a_loader_learns_by_itself(
        self, path: Path, encoder: Callable[[], Any]
    ) -> None:
        first = loader(path, encoder())
        run = iter(first)
        for _ in range(3):
            next(run)
        state = copy.deepcopy(first.state_dict())
        list(copy.copy(first))
        assert first.state_dict() == state


@pytest.mark.parametrize("encoder", [HashedMask, WithNegatives])
def test_two_ranks_go_on_with_the_rows_that_one_would_have_had(
    path: Path, encoder: Callable[[], Any]
) -> None:
    one = loader(path, encoder(), batch_size=2 * BATCH)
    run = iter(one)
    next(run)
    state = one.state_dict()
    expected = _rows([shown(batch) for batch in run])
    found = []
    for rank in range(2):
        other = loader(path, encoder(), rank=rank, world_size=2)
        other.load_state_dict(state)
        found += [shown(batch) for batch in other]
    assert _rows(found) == expected


def _rows(batches: list[Made]) -> list[tuple[Any, ...]]:
    """Return the rows of all batches that count, each with all that was drawn for it."""
    rows = []
    for batch in batches:
        count = len(batch["ids"])
        for row, number in enumerate(batch["ids"]):
            if batch["valid"] is None or batch["valid"][row]:
                own = [batch[name][row] for name in ("n", "target", "is_masked") if name in batch]
                drawn = batch.get("candidate", [])[count + 2 * row : count + 2 * row + 2]
                rows.append((number, *own, *drawn))
    return sorted(rows)


def test_two_ranks_go_on_with_the_words_that_one_knew(path: Path) -> None:
    one = loader(path, GrowingVocabulary(), epochs=1)
    run = iter(one)
    for _ in range(3):
        next(run)
    state = one.state_dict()
    known = state["encoder"]["words"]  # type: ignore[index]
    assert 1 < len(known) < 12
    seen = set()
    for rank in range(2):
        encoder = GrowingVocabulary()
        other = loader(path, encoder, epochs=1, rank=rank, world_size=2, batch_size=BATCH // 2)
        other.load_state_dict(state)
        for batch in other:
            words = list(encoder.codes)
            found = [words[code] for code in batch["code"].tolist()]
            assert found == [word(number) for number in batch.ids.tolist()]
            seen |= set(batch.ids[slice(None) if batch.valid is None else batch.valid].tolist())
        assert list(encoder.codes)[: len(known)] == known
    assert len(seen) == COUNT - 3 * BATCH


def test_rows_may_stand_beside_those_of_the_records(path: Path) -> None:
    batch = next(iter(loader(path, WithNegatives())))
    assert len(batch["n"]) == BATCH
    assert len(batch["candidate"]) == 3 * BATCH
    assert "2 negatives" in loader(path, WithNegatives()).explain()["batch"]  # type: ignore[index]


def test_rows_that_do_not_count_are_marked_for_it(path: Path) -> None:
    options: dict[str, Any] = {"rank": 6, "world_size": 7, "epochs": 1}
    batches = list(loader(path, HashedMask(), **options))
    assert batches[-1].valid is not None


def test_an_encoder_describes_itself_as_it_is_now(path: Path) -> None:
    learning = loader(path, GrowingVocabulary())
    assert "0 words" in learning.explain()["batch"]  # type: ignore[index]
    list(learning)
    known = len({word(number) for number in range(COUNT)})
    assert f"{known} words" in learning.explain()["batch"]  # type: ignore[index]


def test_a_state_of_another_encoder_is_refused(path: Path) -> None:
    learnt = loader(path, GrowingVocabulary()).state_dict()
    with pytest.raises(OptionError, match="this one learns nothing"):
        loader(path, HashedMask()).load_state_dict(learnt)
    with pytest.raises(OptionError, match="nothing of GrowingVocabulary"):
        loader(path, GrowingVocabulary()).load_state_dict(loader(path, HashedMask()).state_dict())
