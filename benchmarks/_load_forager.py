"""The peer data-forager under torch's loader, or under torchdata's stateful one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _forager import convert
from _load_collate import collate, ids_of
from _load_side import BATCH, Loading
from data_forager.datasets.jsonl import JsonlDataset
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

if TYPE_CHECKING:
    from collections.abc import Iterable


def made(path: str, workers: int, *, stateful: bool = False) -> Iterable[dict]:
    # A new dataset each time: workers must not inherit files that the parent has read from.
    dataset = JsonlDataset.create_from_index_on_filesystem(path)
    loader = StatefulDataLoader if stateful else DataLoader
    return loader(dataset, batch_size=BATCH, shuffle=True, num_workers=workers, collate_fn=collate)


if __name__ == "__main__":
    Loading(made, ids_of, convert).serve()
