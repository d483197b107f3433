"""Ctrl-C waits while a process is started, whichever thread the system hands it to."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from penstock.work import interrupts_held


def test_an_interrupt_that_another_thread_takes_comes_after_the_block() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)  # It does not block the signal.
    thread.start()
    reached = []
    try:
        with pytest.raises(KeyboardInterrupt), interrupts_held():  # noqa: PT012 (a moment in it)
            os.kill(os.getpid(), signal.SIGINT)
            over.wait(0.1)
            reached.append(True)
    finally:
        over.set()
        thread.join()
    assert reached == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
