"""A loop by Accelerate: what each step got and gathered, how it goes on from a saved state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator

import penstock
from tests.integration.launching import join_group, run_main

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [{"id": number, "x": number / 100} for number in range(19)]


def prepared(workers: int) -> tuple[Accelerator, penstock.DataLoader, torch.nn.Module, Any]:
    accelerator = Accelerator(cpu=True)
    loader = penstock.DataLoader(
        RECORDS,
        {"id": "int64", "x": "float32"},
        global_batch_size=4,
        shuffle=True,
        seed=3,
        num_workers=workers,
    )
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    given = loader
    loader, model, optimizer = accelerator.prepare(loader, model, optimizer)
    assert loader is given
    accelerator.register_for_checkpointing(loader)
    return accelerator, loader, model, optimizer


def epoch(
    run: tuple[Accelerator, penstock.DataLoader, torch.nn.Module, Any],
    saves: Path | None = None,
) -> list[list[Any]]:
    """Train for an epoch; return of each step the own and the gathered records that count."""
    accelerator, loader, model, optimizer = run
    steps = []
    for batch in loader:
        loss = model(batch["x"][:, None]).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        valid = torch.ones(len(batch), dtype=torch.bool) if batch.valid is None else batch.valid
        ids, counts = accelerator.gather((batch.ids, valid))
        steps.append([batch.ids[valid].tolist(), ids[counts].tolist()])
        if saves is not None:
            accelerator.save_state(saves / f"{len(steps)}", safe_serialization=False)
    return steps


def main(place: Path, plan: list[int]) -> dict[str, Any]:
    join_group(place)
    run = prepared(workers=0)
    length = len(run[1])
    whole = [epoch(run, place / "saved"), epoch(run)]
    rests = {}
    for cut in plan:
        other = prepared(workers=2)
        other[0].load_state(place / "saved" / f"{cut}")
        rests[cut] = [epoch(other), epoch(other)]
    return {"length": length, "whole": whole, "rests": rests}


if __name__ == "__main__":
    run_main(main)
