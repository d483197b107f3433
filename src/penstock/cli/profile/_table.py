"""A profile for people: a table of fields, small bars, and sentences about what drifts."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from penstock.cli._terminal import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HEADER = ["", "field", "type", "null", "missing", "distinct", "min", "median", "max"]
_MORE = ["spread".ljust(16), "length", "example"]
_LEVELS = "▁▂▃▄▅▆▇█"
_SIGNS = {"warning": "!", "note": "?"}
_FEW_DIGITS = 6
_EXAMPLE = 28
_BOUND = 20
_BARS = 16
_NONE = "–"


def profile_table(document: Mapping[str, Any]) -> str:
    """Return the fields of a profile, one a row, those that drift with a sign before them."""
    signs: dict[str, str] = {}
    for found in document["drift"]:
        signs.setdefault(found["path"], _SIGNS[found["level"]])
    rows = [[signs.get(field["path"], ""), *_cells(field)] for field in document["fields"]]
    return table([*_HEADER, *_MORE], rows, left=3) if rows else "(no fields)"


def drift_lines(document: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each thing that changes on the way."""
    return [f"{_SIGNS[found['level']]} {found['text']}" for found in document["drift"]]


def _cells(field: Mapping[str, Any]) -> list[str]:
    places = field["count"] + field["missing"]
    main = _main_type(field)
    return [
        _printable(field["path"]),
        _types(field),
        _share(field["nulls"], places),
        _share(field["missing"], places),
        _distinct(field),
        *_range(field, main),
        _spread(main).ljust(_BARS),
        _length(main),
        _example(field),
    ]


def _main_type(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is told of the type that most values have."""
    held = [told for kind, told in field["types"].items() if kind != "null"]
    return max(held, key=lambda told: int(told["count"]), default={})


def _types(field: Mapping[str, Any]) -> str:
    held = {kind: told["count"] for kind, told in field["types"].items() if kind != "null"}
    if len(held) <= 1:
        return next(iter(held), "null")
    total = sum(held.values())
    return ", ".join(f"{kind} {_share(count, total)}" for kind, count in held.items())


def _share(part: int, whole: int) -> str:
    """Return a share in percent; neither none nor all where it is not.

    >>> _share(0, 10), _share(1, 3), _share(1, 10_000), _share(9_999, 10_000), _share(5, 5)
    ('–', '33 %', '<1 %', '>99 %', '100 %')
    """
    if not part or not whole:
        return _NONE
    percent = 100 * part / whole
    if percent < 1:
        return "<1 %"
    return ">99 %" if part < whole and percent > 99 else f"{percent:.0f} %"  # noqa: PLR2004


def _distinct(field: Mapping[str, Any]) -> str:
    if "distinct" not in field:
        return _NONE
    sign = "" if field.get("distinct_is_exact") else "~"
    return f"{sign}{field['distinct']:,}"


def _range(field: Mapping[str, Any], main: Mapping[str, Any]) -> list[str]:
    """Return least, middle and greatest; of texts that would say little."""
    if "quantiles" not in main or "min" not in field:
        return [_NONE] * 3
    return [_value(field["min"]), _value(main["quantiles"]["p50"]), _value(field.get("max"))]


def _value(value: object) -> str:
    """Return a number or a moment in few letters.

    >>> _value(1234567), _value(0.1 + 0.2), _value("2024-05-01"), _value(10**30)
    ('1234567', '0.3', '2024-05-01', '1e+30')
    """
    if isinstance(value, int) and len(str(value)) > 2 * _FEW_DIGITS:
        return f"{value:.{_FEW_DIGITS}g}"
    if isinstance(value, float):
        return f"{value:.{_FEW_DIGITS}g}"
    return _cut(str(value), _BOUND)


def _spread(main: Mapping[str, Any]) -> str:
    if "true" in main:
        return f"true {_share(main['true'], main['count'])}"
    bars = main.get("bars") or main.get("lengths", {}).get("bars")
    return bars_text(bars["counts"]) if bars else _NONE


def bars_text(counts: Sequence[int]) -> str:
    """Return counts as small bars; only what is nothing at all has none.

    >>> bars_text([0, 1, 50, 100])
    ' ▁▅█'
    """
    most = max(counts, default=0)
    if not most:
        return ""
    last = len(_LEVELS) - 1
    return "".join(
        _LEVELS[min(last, math.floor(last * count / most + 0.5))] if count else " "
        for count in counts
    )


def _length(main: Mapping[str, Any]) -> str:
    lengths = main.get("lengths")
    if lengths is None:
        return _NONE
    low, middle, high = lengths["min"], lengths["quantiles"]["p50"], lengths["max"]
    return f"{low:,}" if low == high else f"{low:,} … {middle:,} … {high:,}"


def _example(field: Mapping[str, Any]) -> str:
    examples = field.get("examples")
    if not examples:
        return _NONE
    return _cut(_printable(json.dumps(examples[0], ensure_ascii=False)), _EXAMPLE)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _printable(text: str) -> str:
    """Return a text that stays on its line, whatever is in it."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
