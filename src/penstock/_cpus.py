"""How many processors this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cpus() -> int:
    """Return the smaller of CPU affinity and cgroup quota, at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(allowed or 1, _quota()))


def _quota() -> int:
    """Return the processors that the cgroup grants, or a large number where none is set."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return math.ceil(int(limit) / int(period))
    except (OSError, ValueError):
        return 1 << 16
