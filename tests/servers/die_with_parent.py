"""Become a program that the kernel kills when the process that started it ends, however it ends.

    python die_with_parent.py PARENT_PID PROGRAM ARGUMENT …

A test run may be killed with no chance to clean up. `preexec_fn` could do the same from inside
`subprocess`, but it may deadlock in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    # Other systems have no such signal: there the fixtures alone end the servers.
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # The signal is not sent for a parent that had ended before it was asked for.
    if os.getppid() != parent:
        sys.exit(f"the parent {parent} ended before {command[0]} was started")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
