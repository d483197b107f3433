"""Encodes records on the row path and on the columnar path, and compares both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import penstock
from penstock.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock import Batch
    from penstock.schema import Leaf


def batches(
    records: Sequence[Any], *fields: Leaf, split: str = "train", schema: Schema | None = None
) -> dict[str, Batch]:
    """Return the batch of records as each path makes it, from schemas that know the same."""
    found = {}
    for path in ("rows", "columnar"):
        own = Schema(*fields) if schema is None else schema
        state = own.state_dict()
        own = own.for_split(split)
        own.path = path
        if path == "rows":
            found[path] = own.encode(records, split)
        else:
            loader = penstock.DataLoader(records, own, batch_size=len(records))
            (found[path],) = loader
        if path == "rows" and schema is not None:
            own.load_state_dict(state)
    return found


def both(records: Sequence[Any], *fields: Leaf, **options: Any) -> Batch:
    found = batches(records, *fields, **options)
    rows, columnar = found["rows"], found["columnar"]
    for address, field in columnar.items():
        if address == "metadata":
            assert field == rows[address]
            continue
        assert_equal(field, rows[address], address)
    return columnar


def assert_equal(one: Any, other: Any, where: str) -> None:
    for part in ("state", "content", "trainable", "targets"):
        _same(getattr(one, part), getattr(other, part), f"{where} {part}")


def _same(one: Any, other: Any, where: str) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            _same(one[name], other[name], f"{where} {name}")
    else:
        assert one.dtype == other.dtype, where
        assert torch.equal(one, other), where
