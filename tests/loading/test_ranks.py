from __future__ import annotations

import pytest

from penstock import DataLoader
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
