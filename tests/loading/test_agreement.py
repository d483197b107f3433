"""Ranks that see different data say so, at once or as soon as the other one is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.loading import gloo_programs
from tests.loading.ranks import Nursery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def records(count: int) -> list[dict[str, int]]:
    return [{"n": number} for number in range(count)]


def outcomes(
    nursery: Nursery, folder: Path, *own: dict[str, Any], **loader: object
) -> list[tuple[int, str]]:
    """Return the steps of each rank, and what it raised."""
    run = {"path": "", "loader": {"batch_size": 2, "num_workers": 0, "own": own, **loader}}
    job = nursery.start(gloo_programs.disagree, folder / "job", len(own), run)
    job.wait()
    return [
        tuple(json.loads((job.folder / f"rank-{rank}.json").read_text()))
        for rank in range(len(own))
    ]


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"source": records(801)}, "length 801"),
        ({"source": [*records(799), {"n": 0}]}, "fingerprint"),
        ({"source": []}, "length 0"),
        ({"source": records(800), "seed": 1}, "seed 1"),
        ({"source": records(800), "shuffle": True}, "order"),
        ({"source": records(800), "batch_size": 3}, "batch 6"),
        ({"source": records(800), "drop_last": True}, "drop_last True"),
        ({"source": records(800), "skip": [3]}, "skip"),
        ({"source": records(800), "epoch": 1}, "epoch 1"),
        ({"source": records(800), "weights": [1.0, 2.0] * 400}, "order"),
    ],
)
def test_a_difference_is_named_on_both_sides(
    own: dict[str, Any], named: str, nursery: Nursery, tmp_path: Path
) -> None:
    first, second = outcomes(nursery, tmp_path, {"source": records(800)}, own)
    texts = [first[1], second[1]]
    assert any(texts), "neither rank was refused"
    for text in filter(None, texts):
        assert named in text
        assert "rank 0 has" in text
        assert "rank 1 has" in text
    if named != "length 0":  # It may be at its end before the other one has begun.
        assert all(texts)


def test_ranks_are_compared_where_torch_has_no_public_way_to_the_store(
    nursery: Nursery, tmp_path: Path
) -> None:
    own = [{"source": records(800)}, {"source": records(801)}]
    found = outcomes(nursery, tmp_path, *own, older_torch=True)
    assert all("rank 0 has" in text for _, text in found)


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_began_alone_is_stopped_when_the_other_comes(
    late: int, nursery: Nursery, tmp_path: Path
) -> None:
    own = [{"source": records(4000)}, {"source": records(4002)}]
    found = outcomes(nursery, tmp_path, *own, late=late)
    assert all(text for _, text in found)
    assert found[late][0] == 0
    assert 1 <= found[1 - late][0] < 1000


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_agree_go_through_all_steps(
    ranks: int, nursery: Nursery, tmp_path: Path
) -> None:
    own = [{"source": records(12 * ranks), "passes": 2} for _ in range(ranks)]
    assert outcomes(nursery, tmp_path, *own, shuffle=True) == [(6, "")] * ranks


def test_ranks_that_are_given_are_not_compared(nursery: Nursery, tmp_path: Path) -> None:
    own = [{"source": records(count), "rank": 0, "world_size": 1} for count in (4, 6)]
    assert outcomes(nursery, tmp_path, *own) == [(2, ""), (3, "")]
