from __future__ import annotations

import gc
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from penstock import _words
from tests.rounds import LONG, rounds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What stands beside the tests asserts as well; named before anything imports it.
pytest.register_assert_rewrite(
    "tests.batch",
    "tests.cli",
    "tests.datasets",
    "tests.decode",
    "tests.faults",
    "tests.index",
    "tests.integration",
    "tests.jsonl",
    "tests.loading",
    "tests.storage",
    "tests.work",
)

pytest_plugins = [
    "tests.left_behind",
    "tests.doctests",
    "tests.fuzz._report",
    "tests.servers.fixtures",
]

LONG_TIMEOUT = 1800

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and each process of a test inherits it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Normal runs try the same examples every time, so that a run fails for a change and not by chance;
# long runs look for new ones. Nothing depends on how fast the machine is.
settings.register_profile(
    "penstock",
    deadline=None,
    derandomize=not LONG,
    max_examples=rounds(30, 1000),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("penstock")


@pytest.fixture(autouse=True)
def own_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Give every test, and the processes it starts, a cache directory of its own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PENSTOCK_CACHE", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def nothing_said_before() -> None:
    """Let every test meet warnings that come once a process."""
    _words._warned.clear()  # noqa: SLF001


LONGEST = {"test_docs.py", "test_demo.py", "integration", "fuzz", "faults", "lightning", "loading"}
"""Files and folders that would leave one worker alone at the end if they came last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files that take longest; give every test the time its long counts need."""
    items.sort(key=lambda item: not LONGEST.intersection(item.path.parts))
    # All libraries are imported by now. Their objects stay: without this, each of the collections
    # that tests ask for takes a quarter of a second to look at them.
    gc.freeze()
    if LONG:
        for item in items:
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT), append=False)
