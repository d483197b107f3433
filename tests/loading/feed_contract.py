"""What every feed keeps, whatever it feeds from: one state, exact resumes, each record once."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from typing import Any

import pytest

from penstock import DataLoader
from penstock.errors import OptionError
from tests.loading.stream_samples import rows

ENGINES = [
    {"num_workers": 0},
    {"num_workers": "auto"},
    {"num_workers": 1},
    {"num_workers": 1, "multiprocessing_context": "forkserver"},
]


class FeedContract:
    """Inherit it, and give `source`, whose records have a field n, and the values of that field."""

    @pytest.fixture
    def source(self) -> Any:
        raise NotImplementedError

    @pytest.fixture
    def expected(self) -> list[int]:
        raise NotImplementedError

    def loader(self, source: Any, **options: Any) -> DataLoader:
        defaults: dict[str, Any] = {"batch_size": 3, "seed": 5, "num_workers": 0, "epochs": 2}
        return DataLoader(source, {"n": "int64"}, **{**defaults, **options})

    def run(self, source: Any, **options: Any) -> tuple[list[list[int]], list[dict[str, Any]]]:
        """Return all batches of a run, and the states before, between and behind them."""
        loader = self.loader(source, **options)
        batches, states = [], [loader.state_dict()]
        for batch in loader:
            batches.append(rows(batch))
            states.append(json.loads(json.dumps(loader.state_dict())))
        return batches, states

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_an_epoch_has_each_record_once(
        self,
        source: Any,
        expected: list[int],
        shuffle: bool,  # noqa: FBT001
    ) -> None:
        batches, _ = self.run(source, shuffle=shuffle)
        assert Counter(chain(*batches)) == Counter(2 * expected)

    @pytest.mark.parametrize("options", ENGINES)
    def test_who_makes_the_batches_does_not_matter(self, source: Any, options: Any) -> None:
        batches, _ = self.run(source, shuffle=True)
        assert [rows(batch) for batch in self.loader(source, shuffle=True, **options)] == batches

    def test_a_run_goes_on_at_any_batch(self, source: Any) -> None:
        batches, states = self.run(source, shuffle=True)
        for cut, state in enumerate(states):
            again = self.loader(source, shuffle=True)
            again.load_state_dict(state)
            assert again.state_dict() == state
            assert [rows(batch) for batch in again] == batches[cut:]

    def test_the_state_decides_order_and_seed(self, source: Any) -> None:
        batches, states = self.run(source, shuffle=True)
        again = self.loader(source, seed=6)
        again.load_state_dict(states[2])
        assert [rows(batch) for batch in again] == batches[2:]

    def test_epochs_differ_and_can_be_chosen(self, source: Any) -> None:
        loader = self.loader(source, shuffle=True, epochs=1)
        first, second = ([rows(batch) for batch in loader] for _ in range(2))
        assert first != second
        loader.set_epoch(0)
        assert [rows(batch) for batch in loader] == first

    def test_ranks_share_an_epoch(self, source: Any, expected: list[int]) -> None:
        seen: list[int] = []
        for rank in range(3):
            loader = self.loader(source, rank=rank, world_size=3, shuffle=True, epochs=1)
            seen += [number for batch in loader for number in rows(batch)]
        assert Counter(seen) == Counter(expected)

    @pytest.mark.parametrize(("key", "value"), [("kind", "later"), ("version", 99)])
    def test_a_state_of_another_order_is_refused(self, source: Any, key: str, value: Any) -> None:
        state: Any = self.loader(source).state_dict()
        state["order"][key] = value
        with pytest.raises(OptionError, match=str(value)):
            self.loader(source).load_state_dict(state)

    def test_it_says_what_it_is(self, source: Any) -> None:
        loader = self.loader(source)
        assert {"source", "order", "state"} <= loader.explain().keys()  # type: ignore[union-attr]
        assert repr(loader).startswith("<DataLoader of ")
