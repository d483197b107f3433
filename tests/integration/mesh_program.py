"""What each process of a 2 × 2 mesh of data- and tensor-parallel ranks is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.device_mesh import init_device_mesh

import penstock
from tests.integration.launching import join_group, run_main

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [{"id": number} for number in range(23)]


def loader(mesh: object) -> penstock.DataLoader:
    return penstock.DataLoader(
        RECORDS, ["id"], batch_size=3, shuffle=True, seed=5, mesh=mesh, num_workers=0
    )


def seen(batches: penstock.DataLoader) -> list[list[int]]:
    return [(b.ids if b.valid is None else b.ids[b.valid]).tolist() for b in batches]


def main(place: Path, _plan: None) -> dict[str, Any]:
    join_group(place)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    data, tensor = mesh.get_coordinate()
    whole = loader(mesh["dp"])
    first = seen(whole)
    begun = loader(mesh["dp"])
    run = iter(begun)
    before = [next(run).ids.tolist() for _ in range(2)]
    other = loader(mesh["dp"])
    other.load_state_dict(begun.state_dict())
    return {
        "data": data,
        "tensor": tensor,
        "length": len(whole),
        "dimension": first,
        "second": seen(whole),
        "mesh": seen(loader(mesh)),
        "group": seen(loader(mesh["dp"].get_group())),
        "all": seen(loader(None)),
        "resumed": before + seen(other),
        "why": whole.explain()["sharing"],
    }


if __name__ == "__main__":
    run_main(main)
