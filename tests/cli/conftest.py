from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import zstandard

from penstock.jsonl import JsonlDir
from tests.cli.drafts import held_draft

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of a test's own."""
    folder = tmp_path / ".cache"
    monkeypatch.setenv("PENSTOCK_CACHE", str(folder))
    return folder


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory of three compressed shards, ten records in all."""
    directory = tmp_path / "logs"
    with JsonlDir(directory).writer_sync(".jsonl.zst", max_records_per_shard=4) as writer:
        writer.write_many({"id": i, "user": {"name": f"u{i}"}} for i in range(10))
    return directory


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A folder that takes most of a minute to read: a small file that holds 64 GB of text."""
    folder = tmp_path / "slow"
    folder.mkdir()
    frame = zstandard.compress(b'{"id":1,"text":"%s"}\n' % (b"a" * 10_000) * 6400)
    (folder / "a.jsonl.zst").write_bytes(frame * 1000)
    return folder


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
