"""Batches on their way to a GPU; where there is none, what can be checked without."""

from __future__ import annotations

import pytest
import torch

from penstock import DataLoader

RECORDS = [{"n": number, "tags": [number] * (number % 3)} for number in range(1000)]
TYPES = {"n": "int64", "tags": "list<int64>"}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def test_batches_are_moved_to_the_device_named() -> None:
    loader = DataLoader(RECORDS, TYPES, batch_size=100, prefetch_to="cpu", shuffle=True)
    run = iter(loader)
    batch = next(run)
    assert batch["n"].tolist() == batch.ids.tolist()
    assert loader.state_dict()["position"] == 100


def test_pinning_needs_a_gpu_and_does_nothing_without() -> None:
    batch = next(iter(DataLoader(RECORDS, TYPES, batch_size=100, pin_memory=True)))
    assert batch["n"].is_pinned() == torch.cuda.is_available()


@needs_gpu
@pytest.mark.parametrize("workers", [0, "auto", 2])
def test_batches_come_one_ahead_of_use_and_the_state_does_not(workers: int) -> None:
    loader = DataLoader(
        RECORDS, TYPES, batch_size=100, prefetch_to="cuda", shuffle=True, num_workers=workers
    )
    for epoch in range(3):
        for number, batch in enumerate(loader, start=1):
            assert loader.state_dict()["position"] == 100 * number
            assert loader.state_dict()["epoch"] == epoch
            assert batch["n"].device.type == batch["tags"].values.device.type == "cuda"
            # Work on the stream in use sees the whole copy, and its memory is not used again.
            busy = torch.randn(2000, 2000, device="cuda")
            for _ in range(20):
                busy = (busy @ busy).sigmoid()
            assert torch.equal(batch["n"], batch.ids)
            assert batch["tags"].values.sum() == (batch.ids * (batch.ids % 3)).sum()
