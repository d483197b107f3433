from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.jsonl import JsonlDir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HELD = """
import sys
from penstock.storage import LocalStore
draft = LocalStore().draft(sys.argv[1], sys.argv[2])
draft.write(b"x" * 100)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory of three compressed shards, ten records in all."""
    directory = tmp_path / "logs"
    with JsonlDir(directory).writer_sync(".jsonl.zst", max_records_per_shard=4) as writer:
        writer.write_many({"id": i, "user": {"name": f"u{i}"}} for i in range(10))
    return directory


@pytest.fixture
def dead_draft(logs: Path) -> Path:
    """What a killed writer left in `logs`: 100 bytes."""
    with held_draft(logs, "shard.jsonl.zst") as process:
        process.kill()
        process.wait()
    (draft,) = logs.glob(".*")
    return draft


@pytest.fixture
def living_draft(logs: Path) -> Iterator[Path]:
    """A draft in `logs` whose writer is at work."""
    with held_draft(logs, "shard.jsonl.zst") as process:
        (draft,) = logs.glob(".*")
        yield draft
        process.kill()


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
