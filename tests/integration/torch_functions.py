"""What the tests of torch's own loader send to other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def listed(records: Iterable[dict[str, Any]]) -> list[int]:
    return [record["id"] for record in records]


def ids_of_loader(loader: Iterable[Any]) -> list[list[int]]:
    return [batch.ids.tolist() for batch in loader]
