"""On a mesh, data-parallel ranks share the records, and tensor-parallel peers get the same ones."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from tests.integration.launching import run_by_torchrun, run_program
from tests.rounds import LONG


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of four processes was given."""
    place = tmp_path_factory.mktemp("mesh")
    launch = run_by_torchrun if LONG else run_program
    found = launch("mesh_program", place, processes=4)
    assert [(rank["data"], rank["tensor"]) for rank in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    return found


@pytest.mark.parametrize("told", ["dimension", "second", "mesh", "group"])
def test_tensor_parallel_peers_get_the_same_and_data_parallel_ranks_share(
    told: str, ranks: list[dict[str, Any]]
) -> None:
    given = [rank[told] for rank in ranks]
    assert given[0] == given[1]
    assert given[2] == given[3]
    assert {len(steps) for steps in given} == {4}
    assert sorted(chain(*given[0], *given[2])) == list(range(23))


def test_a_mesh_its_dimension_and_its_group_mean_the_same_ranks(
    ranks: list[dict[str, Any]],
) -> None:
    for rank in ranks:
        assert rank["dimension"] == rank["mesh"] == rank["group"]
        assert rank["dimension"] != rank["second"]
        assert rank["length"] == 4
        assert f"rank {rank['data']} of 2" in rank["why"]


def test_without_a_mesh_all_processes_share(ranks: list[dict[str, Any]]) -> None:
    assert sorted(chain.from_iterable(chain(*rank["all"]) for rank in ranks)) == list(range(23))


def test_a_state_goes_on_along_the_mesh(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["resumed"] == rank["dimension"]
