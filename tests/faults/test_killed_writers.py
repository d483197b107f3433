"""A writer killed at any moment loses nothing published and shows nothing that was not."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.jsonl import JsonlDir, JsonlFile
from tests.faults.child import Child
from tests.faults.grounds import records_in, shard_number, shards_in
from tests.faults.writer_programs import (
    record,
    write_shards_for_ever,
    write_versions_for_ever,
)
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.grounds import Ground

RECORDS_A_SHARD = 150
RECORDS_A_FILE = 60
KILLS = rounds(4, 50)
EXTENSIONS = pytest.mark.parametrize("extension", [".jsonl", ".jsonl.zst"])


def _kill_at_a_random_moment(
    chance: random.Random, program: Callable[..., object], *arguments: object
) -> list[str]:
    """Start a writer, kill it, and return what it had reported."""
    with Child(program, *arguments) as child:
        assert child.hear() == "ready"
        # Every other time at any moment; else around a publish, as soon as there have been some.
        told = [child.hear() for _ in range(chance.choice([0, chance.randrange(1, 6)]))]
        time.sleep(chance.uniform(0, 0.02) if told else chance.uniform(0, 0.3))
        return told + child.kill()


class _Shards:
    """What is known of a directory while its writers come and go."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._seen: dict[str, bytes] = {}
        self.told: dict[str, str] = {}
        """Who reported a shard as published."""

    def __len__(self) -> int:
        return len(self._seen)

    def report(self, paths: list[str], tag: str) -> None:
        self.told |= dict.fromkeys((path.removeprefix(self._ground.at("")) for path in paths), tag)

    def look(self) -> None:
        """Read the shards that are new; what was seen before must still be there."""
        names = [name for name in self._ground.names() if name[0] not in "._"]
        assert set(self._seen) <= set(names)
        self._seen |= {name: self._ground.read(name) for name in names if name not in self._seen}
        assert set(self.told) <= set(names), "a shard that was reported as published is not there"
        numbers = sorted(shard_number(name) for name in names)
        assert numbers == list(range(len(names)))

    def check(self) -> None:
        """Check that all shards are as first seen, whole, and hold their records in order."""
        assert self._ground.visible() == self._seen
        by_tag: dict[str, list[Any]] = {}
        for name, records in shards_in(self._seen):
            (tag,) = {each["tag"] for each in records}
            assert self.told.get(name, tag) == tag
            assert len(records) == RECORDS_A_SHARD
            by_tag.setdefault(tag, []).extend(records)
        for tag, records in by_tag.items():
            assert records == [record(tag, number) for number in range(len(records))]


@EXTENSIONS
def test_killed_writers_of_a_directory_leave_only_whole_shards(
    ground: Ground, extension: str, caplog: pytest.LogCaptureFixture
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"random seed: {seed}")
    chance = random.Random(seed)
    shards = _Shards(ground)
    for kill in range(KILLS):
        tag = f"killed-{kill}"
        arguments = (ground.path, ground.storage_options, extension, tag, RECORDS_A_SHARD)
        told = _kill_at_a_random_moment(chance, write_shards_for_ever, *arguments)
        shards.report(told, tag)
        shards.look()
        # Each writer clears away what the one before it left, if it came to write at all.
        assert len(ground.hidden()) <= (0 if ground.is_remote else 2)
        assert ground.unfinished_uploads() == []

    caplog.set_level(logging.INFO, "penstock")
    left = ground.hidden()
    with JsonlDir(ground.path, ground.storage_options).writer_sync(extension) as writer:
        writer.write_many(record("alive", number) for number in range(RECORDS_A_SHARD))
    shards.report(writer.published, "alive")
    shards.look()
    # A server may finish what a writer had sent before it was killed.
    before = len(shards) - 1
    assert writer.published == [ground.at(f"part-{before:05d}{extension}")]
    shards.check()
    assert ground.hidden() == []
    assert [name for name in left if name in caplog.text] == left
    read = JsonlDir(ground.path, ground.storage_options).iter_records_sync()
    assert sum(1 for _ in read) == (before + 1) * RECORDS_A_SHARD


@EXTENSIONS
def test_killed_writers_of_a_file_leave_the_last_version_or_the_next(
    ground: Ground, extension: str
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"random seed: {seed}")
    chance = random.Random(seed)
    path = ground.at(f"file{extension}")
    allowed: set[tuple[str, int]] = set()
    for kill in range(KILLS):
        tag = f"killed-{kill}"
        arguments = (path, ground.storage_options, tag, RECORDS_A_FILE)
        told = _kill_at_a_random_moment(chance, write_versions_for_ever, *arguments)
        assert told == [str(version) for version in range(len(told))]
        # The last that was reported, or what had been sent and died before it could say so.
        if told:
            allowed = {(tag, len(told) - 1)}
        allowed.add((tag, len(told)))
        visible = ground.visible()
        if visible:
            records = records_in(*visible.popitem())
            seen = (records[0]["tag"], records[0]["version"])
            assert seen in allowed
            assert records == [record(seen[0], n, version=seen[1]) for n in range(RECORDS_A_FILE)]
        else:
            assert told == []
        assert visible == {}
        assert len(ground.hidden()) <= (0 if ground.is_remote else 2)
        assert ground.unfinished_uploads() == []

    with JsonlFile(path, ground.storage_options).writer_sync() as writer:
        writer.write({"tag": "alive"})
    assert ground.hidden() == []
    assert list(JsonlFile(path, ground.storage_options).iter_records_sync()) == [{"tag": "alive"}]
