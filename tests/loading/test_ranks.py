from __future__ import annotations

import pytest

from penstock import DataLoader, storage
from penstock.errors import OptionError
from penstock.loading._ranks import Ranks, find_ranks


class TestRanks:
    def test_are_zero_of_one_by_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RANK", raising=False)
        monkeypatch.delenv("WORLD_SIZE", raising=False)
        assert find_ranks(None, None, None) == Ranks(0, 1, "alone")

    def test_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "2")
        monkeypatch.setenv("WORLD_SIZE", "3")
        assert find_ranks(None, None, None)[:2] == (2, 3)
        assert find_ranks(0, 2, None)[:2] == (0, 2)

    def test_are_looked_up_when_a_pass_begins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loader = DataLoader([{"n": n} for n in range(8)], batch_size=2)
        assert len(loader) == 4
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert len(loader) == 2
        assert [batch.ids.tolist() for batch in loader] == [[2, 3], [6, 7]]

    def test_a_nonsense_environment_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "3")
        monkeypatch.setenv("WORLD_SIZE", "3")
        with pytest.raises(OptionError, match="from RANK and WORLD_SIZE"):
            find_ranks(None, None, None)

    @pytest.mark.parametrize(
        ("world_size", "rank", "told"),
        [
            ("2", None, "WORLD_SIZE=2 .* RANK is not set"),
            ("2", "", "WORLD_SIZE=2 .* RANK is not set"),
            ("2", "first", "RANK='first' is no number"),
            ("2", "-1", "RANK='-1' is no number"),
            ("1", "x", "RANK='x' is no number"),
            ("two", "0", "WORLD_SIZE='two' .* expected the number"),
            ("0", "0", "WORLD_SIZE='0' .* 1 or more"),
        ],
    )
    def test_an_environment_that_says_half_of_it_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, world_size: str, rank: str | None, told: str
    ) -> None:
        monkeypatch.setenv("WORLD_SIZE", world_size)
        monkeypatch.delenv("RANK", raising=False)
        if rank is not None:
            monkeypatch.setenv("RANK", rank)
        with pytest.raises(OptionError, match=f"{told}.* give rank and world_size"):
            next(iter(DataLoader([{"n": 1}], batch_size=1)))
        # Who is told everything does not look, and who shows progress takes what there is.
        loader = DataLoader([{"n": 1}], batch_size=1, rank=0, world_size=1, num_workers=0)
        assert [batch.ids.tolist() for batch in loader] == [[0]]
        assert storage.rank() == 0

    def test_one_process_needs_no_rank(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "1")
        monkeypatch.delenv("RANK", raising=False)
        assert find_ranks(None, None, None)[:2] == (0, 1)

    def test_a_rank_alone_is_no_distributed_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "3")
        monkeypatch.delenv("WORLD_SIZE", raising=False)
        assert find_ranks(None, None, None) == Ranks(0, 1, "alone")
