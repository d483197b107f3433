"""An Arrow table of the four fields into a batch of tensors, as a user who knows Arrow writes it.

It also runs in the environments of peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    import pyarrow as pa


def tensors_of(table: pa.Table) -> dict[str, torch.Tensor]:
    """Return a tensor for each scalar, and for the lists their values and lengths."""
    lists = table["tags"].combine_chunks()
    offsets = lists.offsets.to_numpy()
    return {
        "id": _tensor(table["id"], np.int64),
        "price": _tensor(table["price"], np.float32),
        "label": _tensor(table["label"], np.int64),
        "tags": torch.from_numpy(lists.flatten().to_numpy(zero_copy_only=False, writable=True)),
        "tags_lengths": torch.from_numpy(np.diff(offsets).astype(np.int64)),
    }


def _tensor(column: pa.ChunkedArray, dtype: type) -> torch.Tensor:
    # A copy: a tensor may be written to, and what Arrow holds may not.
    return torch.from_numpy(column.to_numpy().astype(dtype))
