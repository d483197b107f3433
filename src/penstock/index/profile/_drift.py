"""What changes on the way through records: fields that come late, that end, that change type."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.index.profile._seen import Seen

_FEW_RECORDS = 1000
_SMALL_SHARE = 0.01
_BY_CHANCE = math.log(1e-3)
"""A field that is rare may begin late without meaning anything."""
_NUMBERS = {"int", "float"}


class Around(NamedTuple):
    """The records in which a field could be."""

    first: int
    last: int


def drift_of(
    path: str, types: Mapping[str, Seen], around: Around, *, is_text: bool
) -> Iterator[dict[str, object]]:
    """Yield what is odd about one field; `is_text` where types were read from plain text.

    Each finding has a `kind` (`late`, `gone`, `types`), a `level` (`warning`, or `note` for what
    often means nothing), the records that it is about, and a sentence.
    """
    held = {kind: seen for kind, seen in types.items() if kind != "null"}
    if not held:
        return
    first, last = min(s.first for s in held.values()), max(s.last for s in held.values())
    count = sum(seen.count for seen in held.values())
    yield from _moved(path, first, last, count, around)
    if len(held) > 1 and not (is_text and held.keys() <= _NUMBERS):
        yield _several_types(path, held, is_text=is_text)


def _moved(
    path: str, first: int, last: int, count: int, around: Around
) -> Iterator[dict[str, object]]:
    patience = max(_FEW_RECORDS, _SMALL_SHARE * (around.last + 1 - around.first))
    is_late, is_gone = first - around.first >= patience, around.last - last >= patience
    if not (is_late or is_gone):
        return
    span = around.last + 1 - around.first
    # The logarithm of how likely it is that values anywhere lie as they do.
    if is_late and is_gone:
        chance = math.log(count) + (count - 1) * math.log((last + 1 - first) / span)
    else:
        apart = first - around.first if is_late else around.last - last
        chance = count * math.log1p(-apart / span)
    name = path or "the record"
    values = f"{count:,} {'value' if count == 1 else 'values'}"
    if is_late and is_gone:
        where = f"record {first:,}" if first == last else f"records {first:,} to {last:,}"
        text = f"{name} is only in {where} ({values})"
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


def _several_types(path: str, held: Mapping[str, Seen], *, is_text: bool) -> dict[str, object]:
    by_first = sorted(held.items(), key=lambda item: (item[1].first, item[0]))
    spans = [seen for _, seen in by_first]
    is_change = all(a.last < b.first for a, b in pairwise(spans))
    name = path or "the record"
    is_weak = held.keys() <= _NUMBERS or (is_text and not is_change)
    if is_change:
        parts = [_during(kind, seen) for kind, seen in by_first[:-1]]
        kind, seen = by_first[-1]
        text = f"{name} is {', '.join(parts)}, and {kind} from record {seen.first:,} on"
    else:
        parts = [f"{_during(kind, seen)} ({seen.count:,} values)" for kind, seen in by_first]
        text = f"{name} is {', '.join(parts[:-1])} and {parts[-1]}"
    return {
        "kind": "types",
        "level": "note" if is_weak else "warning",
        "path": path,
        "first": spans[0].first,
        "last": max(seen.last for seen in spans),
        "ranges": {
            kind: {"count": seen.count, "first": seen.first, "last": seen.last}
            for kind, seen in by_first
        },
        "text": text,
    }


def _during(kind: str, seen: Seen) -> str:
    if seen.first == seen.last:
        return f"{kind} in record {seen.first:,}"
    return f"{kind} in records {seen.first:,} to {seen.last:,}"
