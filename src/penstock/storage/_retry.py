"""Retries after passing failures: with jitter, until a deadline."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_log = logging.getLogger("penstock.storage")
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
_CHANCE = random.SystemRandom()
"""Neither the numbers that the user's own seed promises him, nor the same in every fork."""


def retry(
    call: Callable[[], T],
    *,
    what: str,
    is_passing: Callable[[Exception], bool],
    timeout: float,
    on_repeat: Callable[[], object] = lambda: None,
) -> T:
    """Return `call()`, repeated while it fails for a passing reason and time is left.

    The pause before attempt n is random between 0 and 0.1 s × 2ⁿ (at most 10 s), so that many
    clients that were throttled together do not come back together. The last failure is raised.
    `on_repeat` is called before each attempt but the first.
    """
    deadline = time.monotonic() + timeout
    attempt = 0
    while True:
        try:
            return call()
        except Exception as failure:
            attempt += 1
            longest = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
            pause = _CHANCE.uniform(0, longest)
            if not is_passing(failure) or time.monotonic() + pause >= deadline:
                raise
            _log.debug("%s failed (attempt %d), again in %.1f s", what, attempt, pause)
            time.sleep(pause)
            on_repeat()
