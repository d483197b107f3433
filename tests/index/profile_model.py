"""The profile of records as one would write it down: a walk through every value."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from penstock.index import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KINDS = {type(None): "null", bool: "bool", int: "int", float: "float", str: "string"}
KINDS |= {list: "list", dict: "object"}


def profile_of(records: list[Any]) -> dict[str, dict[str, Any]]:
    """Return by path: types with count, first and last, how often it is missing, and values."""
    found: dict[str, dict[str, Any]] = {}
    objects: dict[str, int] = defaultdict(int)

    def walk(path: str, value: Any, record: int) -> None:
        kind = KINDS[type(value)]
        if path:
            place = found.setdefault(path, {"types": {}, "values": []})
            count, first, _ = place["types"].get(kind, (0, record, record))
            place["types"][kind] = (count + 1, first, record)
            place["values"].append(value)
        if isinstance(value, list):
            for item in value:
                walk(f"{path}[]", item, record)
        elif isinstance(value, dict):
            objects[path] += 1
            for name, inner in value.items():
                walk(f"{path}.{name}" if path else name, inner, record)

    for number, record in enumerate(records):
        walk("", record, number)
    for path, place in found.items():
        count = sum(count for count, _, _ in place["types"].values())
        parent = path.rpartition(".")[0]
        place["missing"] = 0 if path.endswith("[]") else objects[parent] - count
    return found


def profile_records(batches: Iterable[Sequence[object]]) -> Profile:
    """Return the profile of records that come in batches, numbered from 0."""
    profile = Profile()
    for batch in batches:
        profile.add(batch, profile.records)
    return profile
