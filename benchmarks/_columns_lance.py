"""The peer Lance: the four fields as its columns, whole batches taken by row number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pyarrow.json
from _columns_arrow import tensors_of
from _load_collate import ids_of
from _load_side import BATCH, FIELDS, Loading
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

_TYPES = (pa.int64(), pa.float32(), pa.int64(), pa.list_(pa.int64()))
_SCHEMA = pa.schema(list(zip(FIELDS, _TYPES, strict=True)))


def convert(source: str, target: str) -> None:
    """Write just the four fields, read by Arrow's own reader of JSON Lines."""
    options = pyarrow.json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
    lance.write_dataset(pyarrow.json.open_json(source, parse_options=options), _home(target))


class Rows(Dataset):
    """Batches by lists of row numbers."""

    def __init__(self, path: str) -> None:
        self._rows = lance.dataset(_home(path))

    def __len__(self) -> int:
        return self._rows.count_rows()

    def __getitem__(self, numbers: list[int]) -> dict[str, torch.Tensor]:
        return tensors_of(self._rows.take(numbers, columns=list(FIELDS)))


def _home(path: str) -> str:
    return f"{path}/all.lance"


def made(path: str, workers: int) -> Iterable[dict[str, torch.Tensor]]:
    rows = Rows(path)
    batches = BatchSampler(RandomSampler(rows), BATCH, drop_last=False)
    # Its threads do not survive a fork, as its documentation says.
    method = "spawn" if workers else None
    return DataLoader(
        rows,
        sampler=batches,
        batch_size=None,
        num_workers=workers,
        multiprocessing_context=method,
    )


if __name__ == "__main__":
    Loading(made, ids_of, convert).serve()
