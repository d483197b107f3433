"""What the plugin that watches every test says of what one leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from tests import left_behind
from tests.left_behind import Held, left_since

PROGRAM = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1); input()'])"
"""Starts a process of its own, which ends with its input."""


@pytest.fixture(autouse=True)
def _without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_behind, "PATIENCE", 0.0)


def test_a_descriptor_is_named() -> None:
    before = Held.now()
    number = os.open(os.devnull, os.O_RDONLY)
    left = left_since(before)
    os.close(number)
    assert left == [f"descriptor {number} of {os.devnull}"]
    assert left_since(before) == []


def test_a_thread_is_named() -> None:
    before, goes_on = Held.now(), threading.Event()
    thread = threading.Thread(target=goes_on.wait, name="reader")
    thread.start()
    left = left_since(before)
    goes_on.set()
    thread.join()
    assert left == [f"thread reader ({thread.native_id})"]
    assert left_since(before) == []


def test_a_process_is_named_with_those_that_it_started() -> None:
    before = Held.now()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], **pipes) as process:
        assert process.stdout is not None
        process.stdout.read(1)  # Both run.
        left = [one for one in left_since(before) if one.startswith("process")]
        process.communicate()
    assert len(left) == 2
    assert any(one.startswith(f"process {process.pid} ({sys.executable}") for one in left)
    assert left_since(before) == []
