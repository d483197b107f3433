"""One number for each record: a field's value, the length of a field, or of the record itself."""

from __future__ import annotations

import os
import pickle
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasets._arrow import id_ranges, lies_in_files, read_fields
from penstock.datasets._missing_fields import missing_fields
from penstock.datasets._once import kept_arrays
from penstock.datasets.columns._bad import decoded, most_bad
from penstock.datasets.columns._place import state_of
from penstock.datasets.columns._units import RecordsUnit, cut, stretches
from penstock.datasets.fields._paths import is_listlike, type_at
from penstock.datasets.views._views import fingerprint_of, origins_of
from penstock.datasets.where._where import ONLY_LENGTHS, lengths_in, plain
from penstock.decode import keep_pandas_out, read_around_bad
from penstock.errors import BadRecordsError, MalformedLineError, OptionError
from penstock.storage import HiddenFolder, cache_directory, hidden_beside, remove_dead
from penstock.work import Shared, UnitResults, run_units, viewed

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import DTypeLike, NDArray

    from penstock.datasets._source import Source
    from penstock.storage import Draft

_VERSION = 1
"""Raised whenever the same records would give other numbers."""
_LENGTH = re.compile(r"len\(\s*(.*?)\s*\)", re.DOTALL)
_IN_CALLER_SECONDS = 1.0
"""Reading takes longer before processes help."""
_TYPES = {"i": pa.int64(), "f": pa.float64()}
is_ = pa.types


def values_of(source: Source, what: str, dtype: DTypeLike = np.int64) -> NDArray[Any]:
    """Return a number for each record, found once and mapped from the cache by all processes.

    `what` is a numeric field, `len(field)` (characters of a text, items of a list), or `len()`, the
    length that the index knows: bytes of a record, tokens of a sample. `dtype` is int64, which
    becomes the narrowest signed type, or float64. A record without a value, and one that cannot be
    read, has -1 or NaN.

    >>> from penstock.datasets._memory import ListSource
    >>> source = ListSource([{"tags": ["a"], "n": 7}, {"tags": ["b", "c"], "n": 300}, {}])
    >>> values_of(source, "n"), values_of(source, "len(tags)", np.float64).tolist()
    (array([  7, 300,  -1], dtype=int16), [1.0, 2.0, nan])
    """
    type_ = np.dtype(dtype)
    _refuse_without(source, what)
    try:
        if not lies_in_files(source):
            return _found(source, what, type_, "")
        facts = (source.fingerprint, state_of(source), what, type_.str)
        key = fingerprint_of("values", str(_VERSION), *facts)
        mapped = partial(_mapped, kind=type_.kind, length=len(source))
        return kept_arrays([key], lambda: [_found(source, what, type_, key)], mapped)[0]
    except BadRecordsError as why:
        numbers = "whole numbers" if type_.kind == "i" else "numbers"
        why.advise(f"Name a field of {numbers}, or give an array of them in place of {what!r}.")
        raise


def _mapped(path: Path, kind: str, length: int) -> NDArray[Any]:
    values: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    if values.dtype.kind != kind or values.shape != (length,):
        raise ValueError(f"it does not hold {length:,} numbers")
    return values


def _refuse_without(source: Source, what: str) -> None:
    """Raise for a field that no record has, or that has no such number."""
    found = _LENGTH.fullmatch(what)
    if found and not found[1]:
        lacks = ""
        if not source.is_tokens and not source.files:
            lacks = "records in memory have no length that an index knows"
        elif not source.is_tokens and len(source) and not source.location(0).bytes:
            lacks = f"rows of {source.files[0]} have no bytes of their own"
        if lacks:
            raise OptionError(f"{what!r}: {lacks}. Name a field: 'len(text)'.")
        return
    name = found[1] if found else what
    for missing in missing_fields(source, [name]) if len(source) else ():
        raise OptionError(missing.text, remedy="Name one that is there.")
    type_ = type_at(source.schema, name)
    is_text = type_ is not None and (is_.is_string(type_) or is_.is_large_string(type_))
    if not found and type_ is not None and (is_text or is_listlike(type_)):
        raise OptionError(
            f"the field {name!r} is {type_}, not a number; its length is 'len({name})'."
        )


def _found(source: Source, what: str, dtype: np.dtype[Any], key: str) -> NDArray[Any]:
    """Read the numbers; processes help from where that pays."""
    length, parts, began = len(source), [np.empty(0, dtype)], time.perf_counter()
    helped = bool(key) and what != "len()" and _is_for_processes(source)
    done = 0
    with viewed(None, length, f"reading {what}", unit="records") as view:
        for ids in id_ranges(0, length):
            parts.append(_read(source, what, ids, dtype))
            done += len(ids)
            view.add(len(ids))
            seconds = (time.perf_counter() - began) / done * (length - done)
            if helped and seconds > _IN_CALLER_SECONDS:
                break
        if done < length:
            parts += _by_units(source, what, done, dtype, key, view.add)
    if dtype.kind == "f":
        return np.concatenate(parts)
    # The narrowest type that has all of them, and -1.
    least = min(-1, *(int(part.min(initial=0)) for part in parts))
    most = max(int(part.max(initial=0)) for part in parts)
    narrow = np.min_scalar_type(min(least, -1 - most))
    return np.concatenate(parts, dtype=narrow, casting="unsafe")


def _is_for_processes(source: Source) -> bool:
    """Whether processes read it faster, can be sent it, and have a place for what they find."""
    if not any(origin.decodes_in_processes for origin in origins_of(source)):
        return False
    with suppress(Exception):  # A function of a view may not pickle.
        pickle.dumps(source)
        folder = cache_directory() / "views"
        folder.mkdir(parents=True, exist_ok=True)
        return os.access(folder, os.W_OK)
    return False


def _by_units(  # noqa: PLR0913, PLR0917 (what, from where on, and how it shows)
    source: Source,
    what: str,
    start: int,
    dtype: np.dtype[Any],
    key: str,
    advance: Callable[[int], object],
) -> list[NDArray[Any]]:
    """Return the numbers of the records from `start` on, part by part."""
    final = cache_directory() / "views" / key
    for dead in hidden_beside(str(final), "tmp"):
        remove_dead(dead)
    with HiddenFolder(final) as hidden:
        results = UnitResults(str(hidden.path), suffix=".values")
        shared = Shared(source, keep_pandas_out)
        units = [
            ValuesUnit(results, number, shared, low, high, what, dtype.str)
            for number, (low, high) in enumerate(cut(source, start))
        ]
        run_units(units, advance=advance, caller_helps=True)
        return [np.frombuffer(bytes(unit.result()), dtype) for unit in units]


@dataclass(frozen=True)
class ValuesUnit(RecordsUnit):
    """Some records whose numbers are written one after the other."""

    what: str
    dtype: str

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        source = self.shared.value
        for ids in stretches(source, self.start, self.stop):
            draft.write(_read(source, self.what, ids, np.dtype(self.dtype)).tobytes())
            advance(len(ids))


def _read(source: Source, what: str, ids: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    found = _LENGTH.fullmatch(what)
    if found is None:
        # Values that are no such numbers, and lines that are no records, are null, up to a limit.
        schema = pa.schema({what: _TYPES[dtype.kind]})
        most = most_bad(len(source))
        return _numbers(decoded(source, ids, schema, "mask", most).columns.column(0), dtype)
    if not found[1]:
        if source.is_tokens:
            return np.asarray(source.lengths(ids), dtype)  # type: ignore[attr-defined]
        return np.asarray(source.location(ids).bytes, dtype)
    return np.concatenate([*_lengths_of(source, found[1], ids, dtype)])


def _lengths_of(
    source: Source, name: str, ids: NDArray[np.int64], dtype: np.dtype[Any]
) -> Iterator[NDArray[Any]]:
    def read(start: int, stop: int) -> pa.Array:
        view = source.take(ids[start:stop])
        (columns,) = read_fields(view, [name], stop - start)
        lengths = lengths_in(plain(columns.column(0)))
        if lengths is None:
            type_ = columns.column(0).type
            raise OptionError(f"the field {name!r} is {type_}: {ONLY_LENGTHS}.")
        return lengths

    for part in read_around_bad(len(ids), read, (MalformedLineError,)):
        if part.why is not None:
            yield _numbers(pa.nulls(part.stop - part.start), dtype)
        else:
            yield _numbers(part.value, dtype)


def _numbers(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    missing = -1 if dtype.kind == "i" else np.nan
    typed = pc.fill_null(array.cast(_TYPES[dtype.kind]), missing)
    return np.asarray(typed.to_numpy(zero_copy_only=False), dtype)
