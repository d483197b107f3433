"""A run over an object store: how often it asks, and what becomes of it when that answers badly."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import penstock
from penstock import DataLoader
from penstock.batch import Tokens
from penstock.errors import StallError
from penstock.jsonl import JsonlDir
from penstock.order import Order, estimate
from tests.loading import rank_programs
from tests.rounds import LONG
from tests.servers.faults import Fault, reset_in_body, s3_error, stall

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.s3
COUNT = 70_000
GRID = [(1, 0), (1, 4), (2, 0), *([(2, 4), (8, 0), (8, 4)] if LONG else [])]


@pytest.fixture(scope="module")
def url(s3_server: S3Server) -> str:
    name = f"s3://{s3_server.new_bucket()}/data"
    with JsonlDir(name, s3_server.storage_options).writer_sync(
        ".jsonl.zst", COUNT // 2, frame_bytes=3000
    ) as writer:
        writer.write_many({"id": number} for number in range(COUNT))
    return name


def opened(url: str, server: S3Server | FaultProxy, **more: Any) -> Any:
    return penstock.open(url, storage_options={**server.storage_options, **more})


def blocks_asked_for(proxy: FaultProxy) -> int:
    return sum(request.range is not None for request in proxy.requests)


@pytest.mark.parametrize(("world", "workers"), GRID)
def test_every_block_is_asked_for_once_by_all_ranks_and_workers_of_a_host(
    url: str, s3_server: S3Server, fault_proxy: FaultProxy, world: int, workers: int
) -> None:
    source = opened(url, s3_server)  # It builds the index.
    blocks = len(source.blocks) - 1
    order = Order(COUNT, kind="block", blocks=source.blocks)
    assert order.lanes == 64
    programs = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", rank_programs.__name__),
                *map(json.dumps, (url, fault_proxy.storage_options, rank, world, workers, None)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    told = [json.loads(program.communicate(timeout=100)[0]) for program in programs]
    ranks = [one["batches"] for one in told]
    expected = order.positions(0, COUNT).tolist()
    size = 512 // world
    for step in range(len(ranks[0])):
        rows = [ranks[rank][step] for rank in range(world)]
        assert len({len(row) for row in rows}) == 1
        whole = [row[at] for at in range(len(rows[0])) for row in rows]  # Lanes in turn.
        part = expected[step * size * world : (step + 1) * size * world]
        assert whole[: len(part)] == part
    asked = blocks_asked_for(fault_proxy)
    assert blocks <= asked <= 1.05 * blocks
    assert sum(one["stats"]["storage_requests"] for one in told) == asked
    predicted = estimate(
        source.location(source.blocks[:-1]).bytes.astype(int), "block", world, workers, 10**10
    )
    assert asked <= 1.05 * predicted.requests


@pytest.mark.parametrize(("before", "after"), [(2, 3), *([(8, 2)] if LONG else [])])
def test_other_ranks_go_on_in_the_middle_and_ask_for_no_block_again(
    url: str, s3_server: S3Server, fault_proxy: FaultProxy, before: int, after: int
) -> None:
    opened(url, s3_server)  # It builds the index.
    source = opened(url, fault_proxy)
    size, cut = 4800, 6

    def loaders(world: int) -> list[DataLoader]:
        options: dict[str, Any] = {"batch_size": size // world, "shuffle": True, "output": "arrow"}
        return [
            DataLoader(source, {"id": "int64"}, rank=rank, world_size=world, **options)
            for rank in range(world)
        ]

    order = Order(COUNT, kind="block", blocks=source.blocks)
    seen, states = [], []
    for loader in loaders(before):
        run = iter(loader)
        seen += [row for _ in range(cut) for row in counted(next(run))]
        states.append(json.loads(json.dumps(loader.state_dict())))
        run.close()  # type: ignore[attr-defined]
    assert all(state == states[0] for state in states)
    assert sorted(seen) == sorted(order.positions(0, cut * size).tolist())
    rest = loaders(after)
    for loader in rest:
        loader.load_state_dict(states[0])
    steps = [
        sorted(row for batch in step for row in counted(batch)) for step in zip(*rest, strict=True)
    ]
    assert steps == [
        sorted(order.positions(start, min(start + size, COUNT)).tolist())
        for start in range(cut * size, COUNT, size)
    ]
    blocks = len(source.blocks) - 1
    assert blocks <= blocks_asked_for(fault_proxy) <= 1.05 * blocks


def counted(batch: Any) -> list[int]:
    """Return the records of a batch that count."""
    valid = batch.schema.metadata.get(b"penstock.valid")
    ids = np.asarray(batch["id"])
    kept: list[int] = (ids if valid is None else ids[np.frombuffer(valid, bool)]).tolist()
    return kept


def test_throttling_and_resets_cost_retries_and_no_records(
    url: str, s3_server: S3Server, fault_proxy: FaultProxy
) -> None:
    opened(url, s3_server)
    source = opened(url, fault_proxy)
    fault_proxy.add(Fault(s3_error(503, "SlowDown"), method="GET", times=5, after=40))
    fault_proxy.add(Fault(reset_in_body(200), method="GET", times=5, after=80))
    loader = DataLoader(source, {"id": "int64"}, batch_size=4096, shuffle=True, output="arrow")
    expected = Order(COUNT, kind="block", blocks=source.blocks).positions(0, COUNT).tolist()
    assert [number for batch in loader for number in batch["id"].to_pylist()] == expected
    stats = loader.stats()
    assert stats["storage_throttled"] == 5
    assert stats["storage_retries"] >= 5


@pytest.mark.parametrize("workers", [0, "auto", 2])
def test_a_stall_names_rank_object_and_range(
    url: str, s3_server: S3Server, fault_proxy: FaultProxy, workers: Any
) -> None:
    opened(url, s3_server)
    # The threads that nobody waits for any more give up soon, too.
    source = opened(url, fault_proxy, timeout=4, retry_timeout=4)
    fault_proxy.add(Fault(stall(), method="GET", times=None))
    loader = DataLoader(
        source, {"id": "int64"}, batch_size=64, rank=1, world_size=2, output="arrow",
        num_workers=workers, stall_timeout=2, materialize=False,
    )  # fmt: skip
    with pytest.raises(StallError, match=rf"rank 1 of 2 .* {url}/part-00000.jsonl.zst, bytes \d+"):
        next(iter(loader))


def test_tokens_of_a_column_are_not_looked_for_before_they_are_read(
    url: str, s3_server: S3Server, fault_proxy: FaultProxy
) -> None:
    opened(url, s3_server)  # It builds the index.
    source = opened(url, fault_proxy)
    fault_proxy.requests.clear()
    DataLoader(source, Tokens(4, field="id"), batch_size=8)
    assert fault_proxy.requests == []


def test_full_order_reads_records_and_not_blocks(
    url: str, s3_server: S3Server, tmp_path: Path
) -> None:
    source = opened(url, s3_server, cache_dir=str(tmp_path / "blocks"))
    loader = DataLoader(source, {"id": "int64"}, batch_size=8, shuffle="full", output="arrow")
    batch = next(iter(loader))
    assert batch["id"].to_pylist() == Order(COUNT).positions(0, 8).tolist()
    assert not (tmp_path / "blocks").exists()
