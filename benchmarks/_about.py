"""What a measurement was made with."""

from __future__ import annotations

import importlib.metadata
import platform

from penstock._cpus import usable_cpus


def about(*packages: str, **facts: object) -> dict[str, object]:
    """Return facts, the machine, and the versions of packages."""
    return {
        **{name.replace("_", " "): fact for name, fact in facts.items()},
        "cores": usable_cpus(),
        "Python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }
