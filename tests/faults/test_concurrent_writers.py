"""Any number of processes append to one directory and lose nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.jsonl import JsonlDir
from tests.faults.child import run_together
from tests.faults.grounds import shard_number, shards_in
from tests.faults.writer_programs import record, write_some_shards
from tests.rounds import rounds

if TYPE_CHECKING:
    from tests.faults.grounds import Ground

PROCESSES = 8
SHARDS_EACH = rounds(4, 40)
RECORDS_A_SHARD = 5
RECORDS_EACH = SHARDS_EACH * RECORDS_A_SHARD - 2


@pytest.mark.parametrize(
    "extensions",
    [[".jsonl"], [".jsonl", ".jsonl.zst", ".jsonl.zstd"]],
    ids=["one extension", "mixed extensions"],
)
def test_eight_processes_append_at_once_and_lose_or_overwrite_nothing(
    ground: Ground, extensions: list[str]
) -> None:
    with JsonlDir(ground.path, ground.storage_options).writer_sync() as writer:
        writer.write(record("first", 0))
    arguments = [
        (
            ground.path,
            ground.storage_options,
            extensions[who % len(extensions)],
            f"writer-{who}",
            (RECORDS_EACH, RECORDS_A_SHARD),
        )
        for who in range(PROCESSES)
    ]
    with run_together(write_some_shards, arguments) as children:
        published = [child.result() for child in children]

    shards = dict(shards_in(ground.visible()))
    assert shards.pop("part-00000.jsonl") == [record("first", 0)]
    assert sorted(path for paths in published for path in paths) == sorted(
        f"{ground.path}/{name}" for name in shards
    )
    for who, paths in enumerate(published):
        assert len(paths) == SHARDS_EACH
        # In the order of the numbers, which is the order in which they are read.
        names = [path.rpartition("/")[2] for path in paths]
        assert names == sorted(names, key=shard_number)
        written = [each for name in names for each in shards[name]]
        assert written == [record(f"writer-{who}", number) for number in range(RECORDS_EACH)]
    if len(extensions) == 1:
        numbers = sorted(shard_number(name) for name in shards)
        assert numbers == list(range(1, PROCESSES * SHARDS_EACH + 1))
    assert ground.hidden() == []
    assert ground.unfinished_uploads() == []
