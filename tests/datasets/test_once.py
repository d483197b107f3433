from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from penstock.datasets._once import Once

FORK_WHILE_A_THREAD_FINDS = """
import os, threading
from penstock.datasets._once import Once

parent, started, go_on = os.getpid(), threading.Event(), threading.Event()

def find():
    if os.getpid() == parent:
        started.set()
        go_on.wait()
    return os.getpid()

value = Once()
thread = threading.Thread(target=value.get, args=[find])
thread.start()
started.wait()
child = os.fork()
if child == 0:
    os._exit(0 if value.get(find) == os.getpid() else 1)
status = os.waitpid(child, 0)[1]
go_on.set()
thread.join()
print(status, value.get(find) == parent)
"""


def test_a_child_forked_while_a_thread_is_at_it_finds_for_itself() -> None:
    # Newer Pythons warn of any fork beside threads; here it is what the test is about.
    out = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK_WHILE_A_THREAD_FINDS],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert out.stdout.split() == ["0", "True"]


def test_a_failure_is_not_kept() -> None:
    attempts = iter([ValueError("not yet"), None])

    def find() -> int:
        if failure := next(attempts):
            raise failure
        return 42

    value: Once[int] = Once()
    with pytest.raises(ValueError, match="not yet"):
        value.get(find)
    assert value.get(find) == 42


def test_a_pickled_copy_finds_its_own() -> None:
    value: Once[list[int]] = Once()
    copy = pickle.loads(pickle.dumps(value))
    assert value.get(list) is value.get(list)
    assert copy.get(list) is not value.get(list)
