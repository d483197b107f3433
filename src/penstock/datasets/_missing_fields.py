"""Fields that are asked for and no record has: nearly always misspelt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.datasets._memory import ListSource, RecordsAt
from penstock.datasets._profile_source import known_profile
from penstock.datasets.fields._paths import LIST, Steps, closest, is_listlike, paths_in, steps_of
from penstock.datasets.views._views import bare_origins
from penstock.errors import CorruptIndexError, MalformedLineError

if TYPE_CHECKING:
    from penstock.datasets._source import Source

_HEAD = 100
"""Records that are read first: they lie together, those of a schema are spread."""
_HINTS = 20
"""Fields for which similar names are looked for."""


class Missing(NamedTuple):
    """A field that is not there, as far as is known."""

    path: str
    text: str
    is_certain: bool
    """Whether no record can have it; else some were looked at, and none of them had it."""


def missing_fields(source: Source, paths: Iterable[str]) -> list[Missing]:
    """Return the fields that a source does not have; a view has those of its origins."""
    origins, paths = bare_origins(source), [*paths]
    head_of = cache(_head)
    near: set[object] = set()  # Nearly always all of them.
    for origin in origins if paths else ():
        if origin.sample_index is not None and not origin.schema_is_complete:
            near.update(*[one for one in head_of(origin) if isinstance(one, Mapping)])
    paths = [path for path in paths if path not in near]
    found = {path: {_has(origin, path, head_of) for origin in origins} for path in paths}
    missing = [path for path, answers in found.items() if True not in answers]
    if not missing:
        return []
    there = [path for origin in origins for path in paths_in(origin.schema)]
    # The search for similar names takes time for each field.
    hints = {path: f": {closest(path, there)}" for path in missing[:_HINTS]}
    answers = []
    for path in missing:
        is_certain = None not in found[path]
        fact = f"no record that was looked at has a field {path!r}"
        fact = f"there is no field {path!r} in these records" if is_certain else fact
        answers.append(Missing(path, fact + hints.get(path, "."), is_certain))
    return answers


def _has(source: Source, path: str, head_of: Callable[[Source], list[Any]]) -> bool | None:
    """Whether a source has a field; None where only reading all records can decide."""
    if isinstance(source, ListSource):
        is_part = isinstance(source, RecordsAt)  # Others may have it.
        found = _any_holds(source, path) or _is_in(source.schema, path)
        return found or (None if is_part or not len(source) else False)
    if source.schema_is_complete:
        return _is_in(source.schema, path)
    is_near = source.sample_index is not None and _any_holds(head_of(source), path)
    return is_near or _is_in(source.schema, path) or _is_profiled(source, path) or None


def _is_profiled(source: Source, path: str) -> bool:
    """Whether the profile, which all records are in, has a field."""
    with suppress(CorruptIndexError):
        profile = known_profile(source)
        return profile is not None and any(
            field["path"] == path for field in profile.document["fields"]
        )
    return False


def _head(source: Source) -> list[Any]:
    """Return the first records that can be read, as they are."""
    count = min(_HEAD, len(source))
    with suppress(MalformedLineError):
        return source[:count]
    records: list[Any] = []
    for number in range(count):
        with suppress(MalformedLineError):
            records.append(source[number])
    return records


def _is_in(schema: pa.Schema, path: str) -> bool:
    name, *steps = steps_of(path)
    at = schema.get_field_index(name)
    is_path = at >= 0 and _may_lead(schema.field(at).type, tuple(steps))
    return is_path or schema.get_field_index(path) >= 0


def _may_lead(type_: pa.DataType, steps: Steps) -> bool:
    if not steps or pa.types.is_null(type_):
        return True  # The inside of a field that is always null is unknown.
    step, *rest = steps
    if step is LIST:
        return is_listlike(type_) and _may_lead(type_.value_type, tuple(rest))
    if not pa.types.is_struct(type_) or type_.get_field_index(step) < 0:
        return False
    return _may_lead(type_.field(step).type, tuple(rest))


def _any_holds(records: Iterable[Any], path: str) -> bool:
    steps = steps_of(path)
    return any(isinstance(one, Mapping) and (path in one or _holds(one, steps)) for one in records)


def _holds(value: object, steps: Steps) -> bool:
    if not steps:
        return True
    step, *rest = steps
    if step is LIST:
        is_list = isinstance(value, list | tuple | np.ndarray)
        return is_list and any(_holds(item, tuple(rest)) for item in value)  # type: ignore[attr-defined]
    return isinstance(value, Mapping) and step in value and _holds(value[step], tuple(rest))
