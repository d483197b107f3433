from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.loading.ranks import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """A process that has imported torch and starts jobs of several ranks."""
    from tests.loading.ranks import Nursery

    with Nursery() as started:
        yield started
