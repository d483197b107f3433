"""Ranks of torch.distributed: each record once, in the one order, in equally many steps."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import penstock
from penstock.jsonl import JsonlFile
from penstock.order import Order, share_rows
from penstock.order._blocks import WINDOW_RECORDS
from tests.loading import gloo_programs
from tests.loading.ranks import global_batch
from tests.rounds import LONG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.datasets import Source
    from tests.loading.ranks import Job, Nursery

SEED = 7
EPOCHS = 2
WORLDS = (1, 2, 3)
WORKERS = (0, 1, 3)
METHODS = ("fork", "forkserver", "spawn")
RECORDS = WINDOW_RECORDS + 5_001
"""Of the compressed source: more than one window, and nothing divides it."""
FEW = 1_003
SIZES = {"block": 12_000, "full": 120}
"""Global batches."""


def _runs() -> Iterator[tuple[int, int, str, str, bool]]:
    """Yield world size, workers, start method, order, and whether records come out of columns.

    All combinations in the long run, else each pair of the first three.
    """
    for (i, world), (j, workers), (k, method) in itertools.product(
        enumerate(WORLDS), enumerate(WORKERS), enumerate(METHODS)
    ):
        if LONG:
            yield from (
                (world, workers, method, kind, way) for kind in SIZES for way in (False, True)
            )
        elif (i + j + k) % 3 == 0:
            kind = "full" if (i + 2 * j) % 3 else "block"
            yield world, workers, method, kind, k == 1


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    folder = tmp_path_factory.mktemp("ranks")
    packed = JsonlFile(folder / "packed.jsonl.zst")
    with packed.writer_sync(frame_bytes=4_000) as writer:
        writer.write_many([{"n": number} for number in range(RECORDS)])
    plain = folder / "plain.jsonl"
    plain.write_text("".join(f'{{"n": {number}}}\n' for number in range(FEW)))
    # Indexed once, before any rank wants it.
    return {"block": penstock.open(packed.path), "full": penstock.open(plain)}


def test_the_sources_have_more_than_one_window_and_many_blocks(sources: dict[str, Source]) -> None:
    assert len(sources["block"]) > WINDOW_RECORDS
    assert len(sources["block"].blocks) > 100


@pytest.mark.parametrize(("world_size", "workers", "method", "kind", "way"), list(_runs()))
def test_ranks_share_the_one_order(  # noqa: PLR0913, PLR0917 (what is paired)
    world_size: int,
    workers: int,
    method: str,
    kind: str,
    way: bool,  # noqa: FBT001
    nursery: Nursery,
    sources: dict[str, Source],
    tmp_path: Path,
) -> None:
    source = sources[kind]
    loader: dict[str, Any] = {
        "global_batch_size": SIZES[kind],
        "shuffle": True,
        "seed": SEED,
        "epochs": EPOCHS,
        "num_workers": workers,
        "materialize": way,
    }
    if workers:
        loader["multiprocessing_context"] = method
    run = {"path": source.files[0], "loader": loader}
    job = nursery.start(gloo_programs.go_through, tmp_path / "job", world_size, run)
    job.wait()
    _check_rows(job, source, kind)


def _check_rows(job: Job, source: Source, kind: Any) -> None:
    ranks, size = job.rows(), SIZES[kind]
    world_size = len(ranks)
    steps = -(-len(source) // size)
    assert [len(rows) for rows in ranks] == [EPOCHS * steps] * world_size
    lengths = [(job.folder / f"rank-{rank}.length").read_text() for rank in range(world_size)]
    assert lengths == [f"{EPOCHS * steps}"] * world_size
    for epoch in range(EPOCHS):
        blocks = source.blocks if kind == "block" else None
        order = Order(len(source), seed=SEED, epoch=epoch, kind=kind, blocks=blocks)
        seen = []
        for step in range(steps):
            rows = [rows[epoch * steps + step] for rows in ranks]
            for rank, row in enumerate(rows):
                positions, valid = share_rows(
                    step,
                    size // world_size,
                    rank,
                    world_size,
                    len(source),
                    drop_last=False,
                    lanes=order.lanes,
                )
                assert row["ids"] == order.at(positions).tolist()
                assert row["valid"] == valid.tolist()
                assert row["ranks"] == world_size
                assert row["everywhere"] == sum(sum(each["valid"]) for each in rows)
            assert all(row["state"] == rows[0]["state"] for row in rows)
            seen += global_batch(rows, order.lanes)
        assert seen == order.positions(0, len(source)).tolist()
        assert sorted(seen) == list(range(len(source)))


@pytest.mark.parametrize(("length", "workers"), [(FEW, 2), (FEW - 2, 0), (2, 0), (7, 1)])
def test_an_evaluation_on_three_ranks_counts_each_record_once(
    length: int, workers: int, nursery: Nursery, tmp_path: Path
) -> None:
    path = tmp_path / "some.jsonl"
    values = np.random.default_rng(length).permutation(length)
    path.write_text("".join(f'{{"n": {value}}}\n' for value in values))
    loader = {"batch_size": 8, "num_workers": workers}
    penstock.open(path)
    job = nursery.start(
        gloo_programs.evaluate, tmp_path / "job", 3, {"path": str(path), "loader": loader}
    )
    job.wait()
    told = [json.loads((job.folder / f"rank-{rank}.json").read_text()) for rank in range(3)]
    assert (
        told
        == [{"steps": -(-length // 24), "sum": float(values.sum()), "count": float(length)}] * 3
    )
