"""Penstock feeds a training run from the records you already have."""

from typing import TYPE_CHECKING

from penstock import errors
from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.batch._batch import Batch as Batch
    from penstock.batch._parts import Jagged as Jagged
    from penstock.batch._tokens import Tokens as Tokens
    from penstock.datasets._open import open as open  # noqa: A004 (as users know it)
    from penstock.datasets._stream import stream as stream
    from penstock.jsonl._sink import writer as writer
    from penstock.loading._loader import DataLoader as DataLoader
    from penstock.order._mixture import Mixture as Mixture
    from penstock.schema._schema import Schema as Schema

__version__ = "0.1.0"

_names, __getattr__, __dir__ = facade(
    __name__,
    {
        "batch._batch": "Batch",
        "batch._parts": "Jagged",
        "batch._tokens": "Tokens",
        "datasets._open": "open",
        "datasets._stream": "stream",
        "jsonl._sink": "writer",
        "loading._loader": "DataLoader",
        "order._mixture": "Mixture",
        "schema._schema": "Schema",
    },
)
__all__ = ["errors", *_names]
