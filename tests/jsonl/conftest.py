from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _no_thread_is_left_behind() -> Iterator[None]:
    before = threads_of_ours()  # Those of a loader that stalled wait until their reads give up.
    yield
    if threads_of_ours() - before:
        gc.collect()  # A failed test's traceback may still hold a stream.
    assert not threads_of_ours() - before


def threads_of_ours() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "penstock" in thread.name}
