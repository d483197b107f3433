"""What the tests of writers run in processes of their own."""

from __future__ import annotations

import itertools
import random
from typing import Any

from penstock.jsonl import JsonlDir, JsonlFile
from tests.faults.child import wait_for_the_others

TEXT_BYTES = 400


def record(tag: str, number: int, **more: object) -> dict[str, Any]:
    """Return a record that says who wrote it, with text that compresses badly."""
    text = random.Random(f"{tag} {number}").randbytes(TEXT_BYTES // 2).hex()
    return {"tag": tag, "n": number, **more, "text": text}


def write_shards_for_ever(
    path: str, options: dict[str, str], extension: str, tag: str, records_a_shard: int
) -> None:
    """Fill shard after shard, and print the path of each as soon as it is published."""
    # Little text is held back, so that drafts are written to all the time.
    writer = JsonlDir(path, options).writer_sync(
        extension, max_records_per_shard=records_a_shard, flush_bytes=1000, frame_bytes=4000
    )
    with writer:
        print("ready", flush=True)
        told = 0
        for number in itertools.count():
            writer.write(record(tag, number))
            for shard in writer.published[told:]:
                print(shard, flush=True)
                told += 1


def write_versions_for_ever(path: str, options: dict[str, str], tag: str, records: int) -> None:
    """Replace one file again and again, and print each version once it is published."""
    print("ready", flush=True)
    for version in itertools.count():
        with JsonlFile(path, options).writer_sync(flush_bytes=1000, frame_bytes=4000) as writer:
            writer.write_many(record(tag, n, version=version) for n in range(records))
        print(version, flush=True)


def write_some_shards(
    path: str, options: dict[str, str], extension: str, tag: str, counts: tuple[int, int]
) -> list[str]:
    """Append so many records, so many a shard, together with others; return what was published."""
    records, records_a_shard = counts
    writer = JsonlDir(path, options).writer_sync(extension, max_records_per_shard=records_a_shard)
    wait_for_the_others()
    with writer:
        writer.write_many(record(tag, number) for number in range(records))
    return writer.published
