"""Drafts in the hands of another process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HELD = """
import sys
from penstock.storage import LocalStore
draft = LocalStore().draft(sys.argv[1], sys.argv[2])
draft.write(b"x" * 100)
print("held", flush=True)
sys.stdin.read()
"""


def held_draft(directory: Path, label: str) -> subprocess.Popen[str]:
    """Start a process that holds a draft until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, directory, label],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process
