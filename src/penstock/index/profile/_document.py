"""What `profile.json` says: every field, and what changes on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.index.profile._drift import Around, drift_of
from penstock.index.profile._seen_kinds import WHOLE, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.index.profile._seen import Seen
    from penstock.index.profile._spread import Spread
    from penstock.index.profile._tree import Place

FORMAT = "penstock-profile"
VERSION = 1
SHARES = {"p1": 0.01, "p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99}
_NUMBERS = {"int", "float"}


def document_of(root: Place, records: int, *, is_text: bool) -> dict[str, Any]:
    """Return everything that is known of records, as plain JSON."""
    around = Around(0, records - 1)
    drift = list(drift_of("", root.types, around, is_text=False))
    fields = []
    for path, place, parent in _places(root, ""):
        fields.append(_field(path, place, parent))
        drift += drift_of(path, place.types, _around(parent), is_text=is_text)
    return {
        "format": FORMAT,
        "version": VERSION,
        "records": records,
        "record_types": {kind: _ranged(seen) for kind, seen in _by_count(root.types)},
        "fields": fields,
        "drift": sorted(drift, key=lambda found: found["level"] != "warning"),
    }


def _places(place: Place, path: str) -> Iterator[tuple[str, Place, Place]]:
    """Yield all places inside of one, with their paths and the places that they are in."""
    inside: list[tuple[str, Place]] = []
    if place.items is not None:
        inside.append((f"{path}[]", place.items))
    if place.any_name is not None:
        inside.append((f"{path}.*" if path else "*", place.any_name))
    named = sorted(place.names.items(), key=lambda item: (item[1].birth, item[0]))
    for name, one in named:
        step = name.encode("utf-8", "backslashreplace").decode()
        inside.append((f"{path}.{step}" if path else step, one))
    for path_inside, one in inside:
        yield path_inside, one, place
        yield from _places(one, path_inside)


def _around(parent: Place) -> Around:
    """Return where a field could be: where the values are that it is a part of."""
    holders = [parent.types[kind] for kind in ("object", "list") if kind in parent.types]
    return Around(min(seen.first for seen in holders), max(seen.last for seen in holders))


def _field(path: str, place: Place, parent: Place) -> dict[str, Any]:
    types = place.types
    held = {kind: seen for kind, seen in types.items() if kind != "null"}
    count = sum(seen.count for seen in types.values())
    field: dict[str, Any] = {
        "path": path,
        "type": " | ".join(kind for kind, _ in _by_count(held)) or "null",
        "count": count,
        "nulls": types["null"].count if "null" in types else 0,
        "missing": parent.objects - count if place.is_named else 0,
        "first": min(seen.first for seen in types.values()),
        "last": max(seen.last for seen in types.values()),
    }
    field |= _distinct(held)
    field |= _borders(held)
    examples = [
        shown(kind, example)
        for kind, seen in _by_count(held)
        if seen.distinct is not None
        for example in seen.distinct.examples
    ]
    if examples:
        field["examples"] = examples
    field["types"] = {kind: _details(kind, seen) for kind, seen in _by_count(types)}
    return field


def _by_count(types: dict[str, Seen]) -> list[tuple[str, Seen]]:
    return sorted(types.items(), key=lambda item: (-item[1].count, item[0]))


def _ranged(seen: Seen) -> dict[str, Any]:
    return {"count": seen.count, "first": seen.first, "last": seen.last}


def _distinct(held: dict[str, Seen]) -> dict[str, Any]:
    """Return how many different values there are: those of different types are different."""
    if not held or held.keys() & {"list", "object"}:
        return {}
    told = [seen.distinct for seen in held.values() if seen.distinct is not None]
    count = sum(distinct.estimate for distinct in told)
    if "bool" in held:
        trues = held["bool"].trues
        count += (trues > 0) + (trues < held["bool"].count)
    return {"distinct": count, "distinct_is_exact": all(one.is_exact for one in told)}


def _borders(held: dict[str, Seen]) -> dict[str, Any]:
    """Return the least and the greatest value, where all can be compared."""
    told = [(kind, seen) for kind, seen in _by_count(held) if seen.low is not None]
    if not told or not (len(held) == 1 or held.keys() <= _NUMBERS):
        return {}
    low = min(told, key=lambda item: (item[1].low, item[0] != "int"))
    high = max(told, key=lambda item: (item[1].high, item[0] == "int"))
    return {"min": shown(low[0], low[1].low), "max": shown(high[0], high[1].high)}


def _details(kind: str, seen: Seen) -> dict[str, Any]:
    details = _ranged(seen)
    if seen.low is not None:
        details |= {"min": shown(kind, seen.low), "max": shown(kind, seen.high)}
    if seen.spread is not None:
        details |= _spread(seen.spread, kind, seen.low, seen.high)
    if seen.lengths is not None:
        low, high = round(seen.lengths.low), round(seen.lengths.high)
        details["lengths"] = {"min": low, "max": high} | _spread(seen.lengths, "int", low, high)
    if kind == "bool":
        details["true"] = seen.trues
    if seen.nans:
        details["nan"] = seen.nans
    if seen.infinite:
        details["infinite"] = seen.infinite
    return details


def _spread(spread: Spread, kind: str, low: Any, high: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return quantiles, and bars between the first and the last hundredth."""
    is_whole = kind in WHOLE
    numbers = spread.quantiles(list(SHARES.values()))
    told: list[Any] = numbers
    if is_whole:
        numbers = [float(round(number)) for number in numbers]
        # Of large ones a float knows only the beginning, and might go past the end.
        told = [shown(kind, max(low, min(high, round(number)))) for number in numbers]
    counts = spread.bars(numbers[0], numbers[-1], whole=is_whole)
    return {
        "quantiles": dict(zip(SHARES, told, strict=True)),
        "bars": {"from": told[0], "to": told[-1], "counts": counts},
    }
