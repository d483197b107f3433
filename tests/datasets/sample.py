"""Records for tests of sources, and what a plain-Python reader makes of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

Record = dict[str, Any]

_CITIES = ["Köln", "東京", None, "line\nbreak", "😀"]


def sample_records(n: int) -> list[Record]:
    """Return records of every shape: nulls, missing and late fields, structs and lists of them."""
    records: list[Record] = []
    for i in range(n):
        record: Record = {
            "id": i,
            "score": i / 4 - 3,
            "name": f"näme {i}, “quoted” \\ 日本 {'x' * (i % 40)}",
            "flag": i % 2 == 0,
            "maybe": None if i % 3 == 0 else i * 1_000_003,
            "user": None if i % 7 == 3 else {"age": i % 90, "home": {"city": _CITIES[i % 5]}},
            "tags": [f"t{j}" for j in range(i % 4)],
            "items": [{"sku": i * 10 + j, "price": j / 2} for j in range(i % 3)],
        }
        if i % 5 == 4:
            del record["maybe"], record["items"]
        if i >= n * 3 // 4:
            record["late"] = f"only from {n * 3 // 4} on"
        records.append(record)
    return records


def flat_records(n: int) -> list[Record]:
    """Return the same records with their scalar fields only, for formats without nesting."""
    names = ("id", "score", "name", "flag", "maybe")
    return [{name: record.get(name) for name in names} for record in sample_records(n)]


def filled(records: list[Record]) -> list[Record]:
    """Return records as columns give them: every field is there, null where it was missing."""
    rows: list[Record] = pa.array(records, pa.struct([]) if not records else None).to_pylist()
    return rows


def pick(value: object, path: str) -> object:
    """Return what stands at a path of a record: the plain way that projection is held against."""
    if isinstance(value, dict) and path in value:
        return value[path]
    head, _, rest = path.partition(".")
    name = head.rstrip("[]")
    return _deeper(value.get(name) if isinstance(value, dict) else None, head[len(name) :], rest)


def _deeper(inner: object, lists: str, rest: str) -> object:
    if lists:
        return None if inner is None else [_deeper(item, lists[2:], rest) for item in inner]  # type: ignore[attr-defined]
    return pick(inner, rest) if rest else inner


def typed_paths(records: list[Record]) -> dict[str, str]:
    """Return each path to scalars in some records, with the type that holds them."""
    found: dict[str, str] = {}
    for record in records:
        for name, value in record.items():
            _collect(value, name, "{}", found)
    return found


def _collect(value: object, path: str, type_: str, found: dict[str, str]) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _collect(inner, f"{path}.{name}", type_, found)
    elif isinstance(value, list):
        for item in value:
            whole = path if not isinstance(item, dict) else f"{path}[]"
            _collect(item, whole, type_.format("list<{}>"), found)
    elif value is not None:
        names = {bool: "bool", int: "int64", float: "float64", str: "string"}
        found[path] = type_.format(names[type(value)])
