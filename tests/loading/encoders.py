"""Callables that a user might give as `encode`, good and bad ones; workers import them."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.batch import Batch, FieldEncoder
from penstock.storage import current_meter

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.batch import BatchPosition


class OddError(Exception):
    """An error of a user's own module."""


class TwoWordsError(Exception):
    """Its constructor wants more than it keeps, so it does not come back from a pickle."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")
        self.why = why


class LockedError(Exception):
    """Holds what cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def sees_variable(columns: pa.RecordBatch) -> list[str]:
    return [os.environ["PENSTOCK_TEST"]] * len(columns)


def counts_requests(columns: pa.RecordBatch) -> list[int]:
    """Count a request of a batch, as reading from an object store does."""
    meter = current_meter()
    assert meter is not None
    meter.count(requests=1)
    return [1] * len(columns)


def raises_odd(columns: pa.RecordBatch) -> Any:
    del columns
    raise OddError("too odd")


def raises_two_words(columns: pa.RecordBatch) -> Any:
    del columns
    raise TwoWordsError("odd", "by nature")


def raises_locked(columns: pa.RecordBatch) -> Any:
    del columns
    raise LockedError("kept shut")


def raises_unknown(columns: pa.RecordBatch) -> Any:
    class InnerError(Exception):
        pass

    raise InnerError(f"of {columns.num_rows} rows")


def raises_from_another(columns: pa.RecordBatch) -> Any:
    try:
        _ = {}["missing"]  # type: ignore[var-annotated]
    except KeyError as why:
        raise OddError("because of a key") from why
    return columns


def makes_functions(columns: pa.RecordBatch) -> Any:
    return [lambda: columns]


def makes_large(columns: pa.RecordBatch) -> Batch:
    """Return 50 MB that tell the first record: as a batch, for they are not a row a record."""
    first = columns["n"][0].as_py()
    large = np.arange(first, first + 50_000_000 // 8, dtype=np.int64)
    return Batch({"large": large, "n": columns["n"].to_numpy(zero_copy_only=False)})


def makes_all_dtypes(columns: pa.RecordBatch) -> list[Any]:
    """Return tensors of every type and of odd shapes, in a list and deeper."""
    import torch

    count = columns.num_rows
    names = (
        "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 "
        "float8_e4m3fn uint16 uint32 uint64"
    )
    whole = [torch.arange(count).to(getattr(torch, name)) for name in names.split()]
    odd = {
        "empty": torch.empty(0, 3),
        "empty bfloat16": torch.empty((2, 0), dtype=torch.bfloat16),
        "no dimension": torch.tensor(7, dtype=torch.bfloat16),
        "not contiguous": torch.arange(12).reshape(3, 4).T,
        "expanded": torch.ones(1).expand(5),
        "part": torch.arange(100)[10:13],
        "sparse": torch.eye(3).to_sparse(),
        "with gradient": torch.ones(2, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    return [whole, odd]


def makes_arrays(columns: pa.RecordBatch) -> list[Any]:
    """Return arrays of numpy and Arrow, and plain objects."""
    return [
        np.empty((0, 2), np.float32),
        np.array(5, np.int16),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(20)[::3],
        np.array(["a", "bcd"]),
        np.array([{"a": 1}, None], dtype=object),
        np.zeros(3, dtype=[("x", "i4"), ("y", "f8")]),
        columns,
        columns.slice(1, 1),
        {"text": "ä", "bytes": b"x" * 100_000, "nothing": None, "pair": (1, {2})},
    ]


def uses_torch_threads(columns: pa.RecordBatch) -> list[float]:
    """Do with torch what it shares out among threads."""
    import torch

    return [float((torch.ones(3_000_000) * 2).sum())] * columns.num_rows


class Doubled(FieldEncoder):
    """Field types, and something of one's own done to them."""

    def encode(self, columns: pa.RecordBatch, where: BatchPosition) -> Batch:
        batch = super().encode(columns, where)
        batch["n"] *= 2
        return batch

    def __reduce__(self) -> tuple[type[FieldEncoder], tuple[object, ...]]:
        return Doubled, (self.types,)


def plus_one(columns: pa.RecordBatch) -> dict[str, Any]:
    """Return what stands in two columns."""
    lengths = np.diff(columns["tags"].offsets.to_numpy())
    return {"n": columns["n"].to_numpy() + 1, "lengths": lengths}


plus_one.fields = {"n": "int64", "tags": "list<int64>"}  # type: ignore[attr-defined]


def tells_memory(columns: pa.RecordBatch) -> list[int]:
    """Return how many bytes of memory are this process's alone, once for each record."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("Private_Dirty:"))
    return [1024 * int(found)] * len(columns)


class Weighted:
    """Writes into a large array of its own."""

    def __init__(self, size: int) -> None:
        self.weights = np.ones(size)

    def __call__(self, columns: pa.RecordBatch) -> list[float]:
        self.weights[0] += 1
        return [float(self.weights.sum())] * len(columns)
