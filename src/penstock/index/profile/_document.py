"""The document of `profile.json`: every field, and drift: what changes over the records."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec

from penstock._words import counted
from penstock.errors import CorruptFileError, CorruptIndexError
from penstock.index._names import PROFILE, PROFILE_STATE
from penstock.index.profile._values import WHOLE, ValueStats, shown
from penstock.storage import join, read_metadata, readable_metadata

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.index.profile._profile import FieldNode, Profile
    from penstock.index.profile._sketches import Histogram

FORMAT = "penstock-profile"
VERSION = 1
SHARES = {"p1": 0.01, "p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99}
_NUMBERS = {"int", "float"}
_BEYOND = {
    **dict.fromkeys(("float", "decimal"), "infinite"),
    "int": "beyond_int64",
    "string": "beyond_utf8",
}
_FEW_RECORDS = 1000
_SMALL_SHARE = 0.01
_BY_CHANCE = math.log(1e-3)
"""A rare field may begin late by chance."""
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Scalar: TypeAlias = int | float | str | bool | None


def document_of(root: FieldNode, records: int, *, is_text: bool) -> dict[str, Any]:
    """Return the profile of records as plain JSON."""
    drift = list(_drift("", root.types, (0, records - 1), is_text=False))
    fields = []
    for path, node, parent in _fields(root, ""):
        fields.append(_field(path, node, parent))
        drift += _drift(path, node.types, _around(parent), is_text=is_text)
    return {
        "format": FORMAT,
        "version": VERSION,
        "records": records,
        "record_types": {kind: _ranged(stats) for kind, stats in _by_count(root.types)},
        "fields": fields,
        "drift": sorted(drift, key=lambda found: found["level"] != "warning"),
    }


def _fields(node: FieldNode, path: str) -> Iterator[tuple[str, FieldNode, FieldNode]]:
    """Yield the fields inside of one, with their paths and the fields around them."""
    inside: list[tuple[str, FieldNode]] = []
    if node.items is not None:
        inside.append((f"{path}[]", node.items))
    if node.any_name is not None:
        inside.append((f"{path}.*" if path else "*", node.any_name))
    named = sorted(node.names.items(), key=lambda item: (item[1].birth, item[0]))
    for name, one in named:
        step = name.encode("utf-8", "backslashreplace").decode()
        inside.append((f"{path}.{step}" if path else step, one))
    for path_inside, one in inside:
        yield path_inside, one, node
        yield from _fields(one, path_inside)


def _around(parent: FieldNode) -> tuple[int, int]:
    """Return the first and the last record that could have a field: with the values around it."""
    holders = [parent.types[kind] for kind in ("object", "list") if kind in parent.types]
    return min(stats.first for stats in holders), max(stats.last for stats in holders)


def _field(path: str, node: FieldNode, parent: FieldNode) -> dict[str, Any]:
    types = node.types
    held = {kind: stats for kind, stats in types.items() if kind != "null"}
    count = sum(stats.count for stats in types.values())
    field: dict[str, Any] = {
        "path": path,
        "type": " | ".join(kind for kind, _ in _by_count(held)) or "null",
        "count": count,
        "nulls": types["null"].count if "null" in types else 0,
        # Items of lists and values of objects with too many names have no name to miss.
        "missing": 0 if node in (parent.items, parent.any_name) else parent.objects - count,
        "first": min(stats.first for stats in types.values()),
        "last": max(stats.last for stats in types.values()),
    }
    field |= _distinct(held)
    field |= _borders(held)
    examples = [
        shown(kind, example)
        for kind, stats in _by_count(held)
        if stats.distinct is not None
        for example in stats.distinct.examples
    ]
    if examples:
        field["examples"] = examples
    if counts := _values(held):
        field["values"] = counts
    field["types"] = {kind: _details(kind, stats) for kind, stats in _by_count(types)}
    return field


def _by_count(types: dict[str, ValueStats]) -> list[tuple[str, ValueStats]]:
    return sorted(types.items(), key=lambda item: (-item[1].count, item[0]))


def _ranged(stats: ValueStats) -> dict[str, Any]:
    return {"count": stats.count, "first": stats.first, "last": stats.last}


def _distinct(held: dict[str, ValueStats]) -> dict[str, Any]:
    """Return the number of different values; values of different types differ."""
    if not held or held.keys() & {"list", "object"}:
        return {}
    counts = [stats.distinct for stats in held.values() if stats.distinct is not None]
    count = sum(distinct.estimate for distinct in counts)
    if "bool" in held:
        trues = held["bool"].trues
        count += (trues > 0) + (trues < held["bool"].count)
    return {"distinct": count, "distinct_is_exact": all(one.is_exact for one in counts)}


def _values(held: dict[str, ValueStats]) -> list[list[object]]:
    """Return each value with its count, the most frequent first, where values come again."""
    ((kind, stats),) = held.items() if len(held) == 1 else [("", None)]
    if stats is None:
        return []
    counts: Mapping[Any, int] = stats.classes or {}
    if kind == "bool":
        counts = {True: stats.trues, False: stats.count - stats.trues}
    if 2 * len(counts) > stats.count:
        return []
    common = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [[shown(kind, value), count] for value, count in common if count]


def _borders(held: dict[str, ValueStats]) -> dict[str, Any]:
    """Return the least and the greatest value, if all can be compared."""
    bounded = [(kind, stats) for kind, stats in _by_count(held) if stats.low is not None]
    if not bounded or not (len(held) == 1 or held.keys() <= _NUMBERS):
        return {}
    low = min(bounded, key=lambda item: (item[1].low, item[0] != "int"))
    high = max(bounded, key=lambda item: (item[1].high, item[0] == "int"))
    return {"min": shown(low[0], low[1].low), "max": shown(high[0], high[1].high)}


def _details(kind: str, stats: ValueStats) -> dict[str, Any]:
    details = _ranged(stats)
    if stats.low is not None:
        details |= {"min": shown(kind, stats.low), "max": shown(kind, stats.high)}
    if stats.numbers is not None:
        details |= _quantiles(stats.numbers, kind, stats.low, stats.high)
    if stats.lengths is not None:
        low, high = round(stats.lengths.low), round(stats.lengths.high)
        details["lengths"] = {"min": low, "max": high} | _quantiles(stats.lengths, "int", low, high)
    if kind == "bool":
        details["true"] = stats.trues
    odd = {"nan": stats.nans, _BEYOND.get(kind, ""): stats.beyond}
    return details | {name: count for name, count in odd.items() if name and count}


def _quantiles(histogram: Histogram, kind: str, low: Any, high: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return quantiles, and bars from the first to the last hundredth."""
    is_whole = kind in WHOLE
    numbers = histogram.quantiles(list(SHARES.values()))
    rounded: list[Any] = numbers
    if is_whole:
        numbers = [float(round(number)) for number in numbers]
        # A float holds only the first digits of a large one, and may exceed the bounds.
        rounded = [shown(kind, max(low, min(high, round(number)))) for number in numbers]
    counts = histogram.bars(numbers[0], numbers[-1], whole=is_whole)
    return {
        "quantiles": dict(zip(SHARES, rounded, strict=True)),
        "bars": {"from": rounded[0], "to": rounded[-1], "counts": counts},
    }


def _drift(
    path: str, types: Mapping[str, ValueStats], around: tuple[int, int], *, is_text: bool
) -> Iterator[dict[str, object]]:
    """Yield the drift of a field; `is_text` if its types were read from plain text.

    A finding has a `kind` (`late`, `gone`, `types`), a `level` (`warning`, or `note` for one that
    is often harmless), its records, and a sentence.
    """
    held = {kind: stats for kind, stats in types.items() if kind != "null"}
    if not held:
        return
    yield from _moved(path, [*held.values()], around)
    if len(held) > 1 and not (is_text and held.keys() <= _NUMBERS):
        yield _several_types(path, held, is_text=is_text)


def _moved(
    path: str, held: list[ValueStats], around: tuple[int, int]
) -> Iterator[dict[str, object]]:
    first, last = min(stats.first for stats in held), max(stats.last for stats in held)
    count = sum(stats.count for stats in held)
    before, after = first - around[0], around[1] - last
    span = around[1] + 1 - around[0]
    patience = max(_FEW_RECORDS, _SMALL_SHARE * span)
    is_late, is_gone = before >= patience, after >= patience
    if not (is_late or is_gone):
        return
    # The logarithm of the chance that values which lie anywhere lie like this.
    if is_late and is_gone:
        chance = math.log(count) + (count - 1) * math.log((last + 1 - first) / span)
    else:
        chance = count * math.log1p(-(before if is_late else after) / span)
    name = path or "the record"
    values = f"{count:,} {'value' if count == 1 else 'values'}"
    if is_late and is_gone:
        text = f"{name} is only in {_span(first, last)} ({values})"
    elif is_late:
        text = f"{name} is missing or null before record {first:,} ({values} since)"
    else:
        text = f"{name} is missing or null after record {last:,} ({values} before)"
    yield {
        "kind": "late" if is_late else "gone",
        "level": "warning" if chance < _BY_CHANCE else "note",
        "path": path,
        "first": first,
        "last": last,
        "text": text,
    }


def _several_types(
    path: str, held: Mapping[str, ValueStats], *, is_text: bool
) -> dict[str, object]:
    by_first = sorted(held.items(), key=lambda item: (item[1].first, item[0]))
    spans = [stats for _, stats in by_first]
    is_change = all(a.last < b.first for a, b in pairwise(spans))
    name = path or "the record"
    is_weak = held.keys() <= _NUMBERS or (is_text and not is_change)
    parts = [f"{kind} in {_span(stats.first, stats.last)}" for kind, stats in by_first]
    if is_change:
        parts[-1] = f", and {by_first[-1][0]} from record {spans[-1].first:,} on"
    else:
        parts = [
            f"{part} ({counted(s.count, 'value')})" for part, s in zip(parts, spans, strict=True)
        ]
        parts[-1] = f" and {parts[-1]}"
    text = f"{name} is {', '.join(parts[:-1])}{parts[-1]}"
    return {
        "kind": "types",
        "level": "note" if is_weak else "warning",
        "path": path,
        "first": spans[0].first,
        "last": max(stats.last for stats in spans),
        "ranges": {kind: _ranged(stats) for kind, stats in by_first},
        "text": text,
    }


def _span(first: int, last: int) -> str:
    return f"record {first:,}" if first == last else f"records {first:,} to {last:,}"


def write_profile(folder: Path, profile: Profile) -> None:
    written = {
        PROFILE: profile_text(profile.document()).encode(),
        PROFILE_STATE: profile.to_bytes(),
    }
    remedy = "Profile records with fewer columns, or index without a profile."
    for name, data in written.items():
        (folder / name).write_bytes(readable_metadata(data, name, remedy))


def profile_text(document: dict[str, Any]) -> str:
    """Return a profile as the text of `profile.json`: each field on a line of its own."""
    lines = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            inner = ",\n  ".join(_json(item) for item in value)
            lines.append(f" {_json(name)}: [\n  {inner}\n ]")
        else:
            lines.append(f" {_json(name)}: {_json(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def read_profile(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the content of `profile.json` in a local folder; None if there is none.

    >>> read_profile("no/such/index") is None
    True
    """
    path = join(os.path.expanduser(folder), PROFILE)
    try:
        return decode_profile(read_metadata(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (CorruptFileError, ValueError, RecursionError) as why:
        raise damaged(path, why) from None


def decode_profile(text: bytes) -> dict[str, Any]:
    """Return the document of a profile; raise `ValueError` for another text."""
    document: dict[str, Any] = json.loads(text)
    msgspec.convert(document, _Document)
    return document


# The fields that readers of a profile rely on; see docs/formats.md.
class _Quantiles(msgspec.Struct):
    p50: Scalar


class _LengthQuantiles(msgspec.Struct):
    p50: int | float


class _Bars(msgspec.Struct):
    counts: list[Count]


class _Lengths(msgspec.Struct):
    min: int | float
    max: int | float
    quantiles: _LengthQuantiles
    bars: _Bars


class _TypeFacts(msgspec.Struct):
    count: Count
    min: Scalar = None
    max: Scalar = None
    true: Count = 0
    quantiles: _Quantiles | msgspec.UnsetType = msgspec.UNSET
    bars: _Bars | msgspec.UnsetType = msgspec.UNSET
    lengths: _Lengths | msgspec.UnsetType = msgspec.UNSET


class _FieldFacts(msgspec.Struct):
    path: str
    count: Count
    nulls: Count
    missing: Count
    types: dict[str, _TypeFacts]
    distinct: Count = 0
    distinct_is_exact: bool = False
    min: Scalar = None
    max: Scalar = None
    examples: list[Any] = []
    values: list[tuple[Scalar, Count]] = []


class _Drift(msgspec.Struct):
    level: Literal["warning", "note"]
    path: str
    text: str


class _Document(msgspec.Struct):
    format: Literal["penstock-profile"]
    records: Count
    record_types: dict[str, _TypeFacts]
    fields: list[_FieldFacts]
    drift: list[_Drift]


def damaged(path: str, why: object) -> CorruptIndexError:
    return CorruptIndexError(
        f"{path} is damaged ({why}). Build the index again: penstock index PATH --overwrite "
        "--profile",
        path=path,
    )
