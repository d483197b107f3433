"""The peer data-forager under torch's loader; it opens the folder that Penstock wrote."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

import numpy as np
from _tokens_side import BATCH, LENGTH, Rows, ids_of
from data_forager.datasets.tokens import TokensDataset
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Iterable

logging.disable(logging.DEBUG)  # It tells of every file that it opens.
# Its arrays are read-only, of which torch tells once in every process.
warnings.filterwarnings("ignore", "The given NumPy array is not writable")


def made(path: str, workers: int, *, length: int = LENGTH) -> Iterable[object]:
    if length != LENGTH:
        raise ValueError(f"its samples are read as they were written, {LENGTH} tokens each")
    # A new dataset each time: workers must not inherit files that the parent has read from.
    dataset = TokensDataset.create_from_index_on_filesystem(path, token_dtype=np.uint16)
    return DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=workers)


def convert(source: str, target: str) -> None:
    raise NotImplementedError("it reads what others wrote")


if __name__ == "__main__":
    Rows(made, ids_of, convert).serve()
