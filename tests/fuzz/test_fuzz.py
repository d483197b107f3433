"""Whatever becomes of a file, reading it gives its values or an error of ours, and soon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz._engine import fuzz
from tests.fuzz._formats import FORMATS, SEED
from tests.fuzz._known import KNOWN_DEATHS
from tests.fuzz._outcomes import causes
from tests.fuzz._report import OUTCOMES, told
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("name", FORMATS)
def test_damage_is_an_error_or_harmless(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    tally = fuzz(name, SEED, range(rounds(*FORMATS[name].rounds)))
    record_property(OUTCOMES, told(tally))
    assert not tally.failures, causes(tally.failures)


def test_known_deaths_say_why() -> None:
    assert all(KNOWN_DEATHS.values())
