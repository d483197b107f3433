"""Whatever becomes of a file, reading it gives its values or an error of ours, and soon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz._engine import fuzz
from tests.fuzz._formats import FORMATS, SEED
from tests.fuzz._known import KNOWN_DEATHS
from tests.fuzz._outcomes import causes, table
from tests.rounds import LONG, rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz._outcomes import Tally


@pytest.fixture(scope="module")
def tallies(pytestconfig: pytest.Config) -> Iterator[list[Tally]]:
    """What came of each format; a long run prints the table of it."""
    some: list[Tally] = []
    yield some
    if LONG:
        with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{table(some)}")


@pytest.mark.parametrize("name", FORMATS)
def test_damage_is_an_error_or_harmless(name: str, tallies: list[Tally]) -> None:
    tally = fuzz(name, SEED, range(rounds(*FORMATS[name].rounds)))
    tallies.append(tally)
    assert not tally.failures, causes(tally.failures)


def test_known_deaths_say_why() -> None:
    assert all(KNOWN_DEATHS.values())
