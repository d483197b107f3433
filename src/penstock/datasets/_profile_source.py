"""The profile of any source: the one that is there, or one made by going over its records."""

# ruff: noqa: SLF001 (what a source is made from decides where its profile lies)

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from penstock.datasets._once import keep_file
from penstock.datasets.columns._place import Freshness
from penstock.datasets.columns._units import RecordsUnit, cut, stretches
from penstock.datasets.fields._paths import is_listlike, like
from penstock.datasets.views._views import bare_origins
from penstock.decode import as_values, keep_pandas_out, read_around_bad
from penstock.errors import MalformedLineError, SchemaMismatchError
from penstock.index import UNREADABLE, Profile, decode_profile, digest, profile_text, read_profile
from penstock.storage import cache_directory, is_remote, read_metadata
from penstock.work import Shared, UnitResults, run_units, viewed

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from penstock.datasets._source import Source
    from penstock.storage import Draft
    from penstock.work import View

_FEW = 100_000
"""Records that are read before worker processes would have started."""


class KnownProfile(NamedTuple):
    """A profile of the records that a source has now."""

    document: dict[str, Any]
    """The content of `profile.json`."""
    created: float
    """When it was made: seconds since the epoch."""


def known_profile(source: Source) -> KnownProfile | None:
    """Return the profile of the source that records lie in; None where there is none of them.

    It is the one of the index (`penstock index --profile`), or one that `keep_profile` has kept.
    Raises `CorruptIndexError` where it is damaged.
    """
    origins = bare_origins(source)
    if len({origin.fingerprint for origin in origins}) != 1:
        return None
    origin = origins[0]
    found = _in_index(origin) or _kept(origin)
    if found is None or found.document["records"] != len(origin):
        return None
    return found if found.created >= _last_touched(origin) else None


def _last_touched(origin: Source) -> float:
    """Return when a file was last overwritten since it was indexed; long ago where none was.

    A file that grew was appended to.
    """
    touched = 0.0
    meta = origin.index_meta
    if meta is not None and not any(map(is_remote, origin.files[:1])):
        for path, file in zip(origin.files, meta.files, strict=True):
            with suppress(OSError):
                now = os.stat(path)
                if now.st_size == file.size and now.st_mtime != file.modified:
                    touched = max(touched, now.st_mtime)
    return touched


def keep_profile(source: Source, document: dict[str, Any]) -> str:
    """Keep a profile in the cache directory, where `known_profile` finds it; return the path."""
    path = _path(source._bare)
    keep_file(path, lambda draft: draft.write(profile_text(document).encode()))
    return str(path)


def _in_index(origin: Source) -> KnownProfile | None:
    place = None if origin.sample_index is None else origin.sample_index.origin
    meta = origin.index_meta
    if place is None or meta is None or not meta.profiled or origin.folder_fields:
        return None  # A scan of files sees no names of folders.
    document = read_profile(place.folder)
    return None if document is None else KnownProfile(document, meta.created)


def _kept(origin: Source) -> KnownProfile | None:
    path = _path(origin)
    with suppress(OSError, ValueError, RecursionError):
        created = os.stat(path).st_mtime
        return KnownProfile(decode_profile(read_metadata(path)), created)
    return None


def _path(origin: Source) -> Path:
    key = digest([origin._cache_name(), origin.files, Freshness(origin).fingerprint])
    return cache_directory() / "profiles" / f"{key}.json"


def profile_of(
    source: Source, *, workers: int | None = None, progress: bool | View | None = None
) -> Profile:
    """Return the profile of all records, made by going over them in processes."""
    if workers is None and len(source) < _FEW:
        workers = 0
    whole = Profile()
    with TemporaryDirectory(prefix="penstock-profile-") as folder:
        results, shared = UnitResults(folder), Shared(source, keep_pandas_out)
        ranges = cut(source, 0) if len(source) else []
        units = [ProfileUnit(results, at, shared, *ends) for at, ends in enumerate(ranges)]
        with viewed(progress, len(source), "profiling", unit="records") as view:
            run_units(units, workers=workers, advance=view.add)
        for unit in units:
            whole.merge(Profile.from_bytes(bytes(unit.result())))
    return whole


@dataclass(frozen=True)
class ProfileUnit(RecordsUnit):
    """Some records that a profile is made of."""

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        source, profile = self.shared.value, Profile()
        for ids in stretches(source, self.start, self.stop):
            _add(profile, source, ids)
            advance(len(ids))
        draft.write(profile.to_bytes())


def _add(profile: Profile, source: Source, ids: NDArray[np.int64]) -> None:
    # Each record for itself: columns would have one type for all of them.
    is_of_records = not (source.files and source.schema_is_complete)

    def read(start: int, stop: int) -> Any:
        some = ids[start:stop]
        return source._records(some) if is_of_records else dict(_columns(source, some))

    for found in read_around_bad(len(ids), read, (MalformedLineError, SchemaMismatchError)):
        some = ids[found.start : found.stop]
        if found.why is not None:
            profile.add([UNREADABLE], int(some[0]))
        elif is_of_records:
            profile.add(found.value, int(some[0]))
        else:
            profile.add_columns(found.value, some)


def _columns(source: Source, ids: NDArray[np.int64]) -> Iterator[tuple[str, list[object]]]:
    batch = source._columns(ids, source.schema)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        type_ = _as_python_has(column.type)
        values = column if type_ == column.type else column.cast(type_, safe=False)
        yield name, as_values(values, name, ids)


def _as_python_has(type_: pa.DataType) -> pa.DataType:
    """Return a type whose values Python has: it knows no nanoseconds."""
    is_ = pa.types
    if is_.is_timestamp(type_) and type_.unit == "ns":
        return pa.timestamp("us", type_.tz)
    if is_.is_duration(type_) and type_.unit == "ns":
        return pa.duration("us")
    if type_ == pa.time64("ns"):
        return pa.time64("us")
    if is_.is_struct(type_):
        return pa.struct([field.with_type(_as_python_has(field.type)) for field in type_])
    if is_listlike(type_):
        return like(type_, type_.value_field.with_type(_as_python_has(type_.value_type)))
    return type_
