"""Rank and world size of this process, which decide its part of the data."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import storage
from penstock._lazy import imported
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.distributed.device_mesh import DeviceMesh

_DATA_PARALLEL = frozenset(
    ("data", "data_parallel", "ddp", "dp", "dp_replicate", "dp_shard", "fsdp", "hsdp", "replicate")
)
"""Names of the dimensions of a mesh along which data differs."""


class Ranks(NamedTuple):
    """Rank and world size of one process."""

    rank: int
    world_size: int
    why: str
    """Where the two numbers come from."""
    peers: tuple[int, ...] = ()
    """The global ranks that see the same data, where a process group can compare them."""


def find_ranks(rank: int | None, world_size: int | None, mesh: object | None) -> Ranks:
    """Return rank and world size: given, of the mesh, torch.distributed or the environment."""
    if (rank is None) != (world_size is None):
        raise OptionError(f"rank={rank} and world_size={world_size}: give both, or neither.")
    if rank is not None and world_size is not None:
        return _checked(operator.index(rank), operator.index(world_size), "as given")
    if mesh is not None:
        return _of_mesh(mesh)
    # A process that did not import torch has no process group; the import would take a second.
    distributed: Any = imported("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        size = distributed.get_world_size()
        return _checked(distributed.get_rank(), size, "from torch.distributed", range(size))
    found = storage.world_size()
    if found is not None:
        return _checked(storage.rank(), found, "from RANK and WORLD_SIZE")
    return Ranks(0, 1, "alone")


def _checked(rank: int, world_size: int, why: str, peers: Iterable[int] = ()) -> Ranks:
    if world_size < 1 or not 0 <= rank < world_size:
        raise OptionError(
            f"rank={rank} of world_size={world_size} ({why}): ranks go from 0 to world_size - 1."
        )
    return Ranks(rank, world_size, why, tuple(peers))


def _of_mesh(mesh: Any) -> Ranks:  # noqa: ANN401 (a DeviceMesh or a process group, if torch is there)
    if hasattr(mesh, "get_coordinate"):
        return _of_device_mesh(mesh)
    distributed: Any = imported("torch.distributed")
    group_type = getattr(distributed, "ProcessGroup", None)
    if distributed is not None and group_type is not None and isinstance(mesh, group_type):
        rank = distributed.get_rank(mesh)
        peers = distributed.get_process_group_ranks(mesh)
        return _checked(rank, len(peers), "from the process group", peers)
    raise OptionError(f"mesh={mesh!r}: expected a DeviceMesh or a process group of torch.")


def _of_device_mesh(mesh: DeviceMesh) -> Ranks:
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise OptionError(f"mesh={mesh!r}: this process is not a part of it.")
    sizes = [mesh.size(dimension) for dimension in range(mesh.ndim)]
    names = mesh.mesh_dim_names or ()
    chosen = [at for at, name in enumerate(names) if name in _DATA_PARALLEL]
    if mesh.ndim == 1:
        chosen = [0]
    elif not chosen:
        raise OptionError(
            f"mesh has the dimensions {', '.join(names) or mesh.ndim}, and none is called "
            f"{', '.join(sorted(_DATA_PARALLEL))}: give the one along which data differs, as in "
            f"mesh={'mesh[' + repr(names[0]) + ']' if names else 'a mesh with mesh_dim_names'}."
        )
    rank, world_size = 0, 1
    for at in chosen:
        rank, world_size = rank * sizes[at] + coordinate[at], world_size * sizes[at]
    along = " × ".join(names[at] for at in chosen) if names else "the mesh"
    return _checked(rank, world_size, f"along {along} of the mesh", mesh.mesh.flatten().tolist())


def rank_batch_size(size: int | None, global_size: int | None, ranks: Ranks) -> int:
    """Return the batch size of one rank, which may be given for all ranks together."""
    if global_size is not None:
        each, rest = divmod(global_size, ranks.world_size)
        if rest or size not in (None, each):
            with_size = f" with batch_size={size}" if size else ""
            raise OptionError(
                f"global_batch_size={global_size} cannot be shared by {ranks.world_size} ranks "
                f"({ranks.why}){with_size}. Give a multiple of {ranks.world_size}, or batch_size "
                "alone."
            )
        return each
    assert size is not None  # noqa: S101 (the loader was given one of the two)
    return size
