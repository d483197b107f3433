"""Batches on their way to a GPU; where there is none, what can be checked without."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from penstock import Batch, DataLoader
from penstock.errors import OptionError

RECORDS = [{"n": number, "tags": [number] * (number % 3)} for number in range(1000)]
TYPES = {"n": "int64", "tags": "list<int64>"}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


@pytest.mark.parametrize("workers", [0, "auto", 2])
def test_batches_are_moved_to_the_device_named(workers: Any) -> None:
    """The meta device keeps shapes and no values, so that a batch that stayed would be seen."""
    loader = DataLoader(
        RECORDS, TYPES, batch_size=300, prefetch_to="meta", shuffle=True, num_workers=workers
    )
    sizes = []
    for batch in loader:
        assert isinstance(batch, Batch)
        assert batch.ids is not None
        tensors = [batch["n"], batch["tags"].values, batch["tags"].lengths, batch.ids]
        assert [tensor.device.type for tensor in tensors] == ["meta"] * len(tensors)
        assert [tensor.dtype for tensor in tensors] == [torch.int64] * len(tensors)
        assert batch["n"].shape == batch.ids.shape == (len(batch),)
        sizes.append(len(batch))
        assert loader.state_dict()["position"] == sum(sizes)
    assert sizes == [300, 300, 300, 100]


def test_which_rows_count_is_moved_with_them() -> None:
    loader = DataLoader(RECORDS[:3], TYPES, batch_size=2, prefetch_to="meta", rank=1, world_size=2)
    batch = next(iter(loader))
    assert batch.valid is not None
    assert batch.valid.device.type == "meta"
    assert batch.valid.shape == batch.ids.shape


def test_what_cannot_be_moved_is_refused() -> None:
    with pytest.raises(OptionError, match=r"prefetch_to=.?meta.* cannot be moved to a device"):
        next(iter(DataLoader(RECORDS, batch_size=100, prefetch_to="meta")))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_said() -> None:
    with pytest.raises(OptionError, match="prefetch_to='cuda': torch finds no GPU"):
        next(iter(DataLoader(RECORDS, TYPES, batch_size=100, prefetch_to="cuda")))


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
