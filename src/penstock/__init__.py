"""Penstock feeds a training run from the records you already have."""

from typing import TYPE_CHECKING

from penstock import errors
from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.batch._batch import Batch as Batch
    from penstock.batch._parts import Jagged as Jagged
    from penstock.batch._tokens import Tokens as Tokens
    from penstock.datasets._open import open as open  # noqa: A004 (as users know it)
    from penstock.jsonl._sink import writer as writer
    from penstock.loading._loader import DataLoader as DataLoader

__version__ = "0.1.0"

_names, __getattr__, __dir__ = facade(
    __name__,
    {
        "Batch": "batch._batch",
        "DataLoader": "loading._loader",
        "Jagged": "batch._parts",
        "Tokens": "batch._tokens",
        "open": "datasets._open",
        "writer": "jsonl._sink",
    },
)
__all__ = ["errors", *_names]
