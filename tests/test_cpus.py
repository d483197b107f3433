from __future__ import annotations

import os
import subprocess
import sys

from penstock._cpus import usable_cpus


def test_at_least_one_processor_is_usable_and_not_more_than_there_are() -> None:
    assert 1 <= usable_cpus() <= (os.cpu_count() or 1)


def test_a_process_uses_the_processors_that_it_is_bound_to() -> None:
    bind = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
    can_be_bound = hasattr(os, "sched_setaffinity")  # Not on macOS.
    program = (
        f"import os; from penstock._cpus import usable_cpus; {bind if can_be_bound else ''}"
        "print(usable_cpus())"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert int(told.stdout) == (1 if can_be_bound else os.cpu_count())
