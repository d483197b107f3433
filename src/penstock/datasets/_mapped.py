"""Views made by a user's function: records that it changes, and records that it chooses."""

# ruff: noqa: SLF001 (a view asks its sources through the methods of the contract)

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from penstock.datasets._memory import ObjectSource
from penstock.datasets._source import Source
from penstock.datasets.views._views import Chosen, OverSource, bare_origins, fingerprint_of
from penstock.errors import OptionError

_AT_A_TIME = 1000
"""Records that a condition is asked for together."""


def function_name(function: Any) -> str:
    """Return what names a function in every process: where it is defined."""
    if isinstance(function, partial):
        inner = function_name(function.func)
        return f"partial({inner}, {function.args!r}, {sorted(function.keywords.items())!r})"
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _called(function: Callable[[Any], Any], record: Any, number: int) -> Any:
    try:
        return function(record)
    except Exception as why:
        why.add_note(f"{function_name(function)} was called with record {number:,}.")
        raise


class Mapped(ObjectSource, OverSource):
    """What a function makes of each record, under the same number, when it is asked for."""

    _sample = 10
    no_columns = "a function makes the records"
    _projected = Source._projected

    def __init__(self, source: Source, function: Callable[[Any], Any]) -> None:
        if not callable(function):
            raise OptionError(f"map takes a function of one record, not {function!r}.")
        OverSource.__init__(self, source)
        self._function = function

    @property
    def fingerprint(self) -> str:
        """Changes with the records and with the function's name, not with what it does."""
        return self._over_known(self.source.fingerprint)

    def _over_known(self, known: str) -> str:
        return fingerprint_of("mapped", known, function_name(self._function))

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        for length, known in self.source._past(least, most):
            yield length, self._over_known(known)

    def _records(self, ids: np.ndarray) -> list[Any]:
        records = zip(self.source._records(ids), ids.tolist(), strict=True)
        return [_called(self._function, record, number) for record, number in records]

    def by_blocks(self) -> Source:
        source = self.source.by_blocks()
        return self if source is self.source else Mapped(source, self._function)

    # How the records are read is asked of the sources that they lie in.

    schema_is_complete = False

    @property
    def _origins(self) -> list[Source]:
        return bare_origins(self.source)

    @property
    def reads_blocks(self) -> str:  # type: ignore[override]
        return next((one.reads_blocks for one in self._origins if one.reads_blocks), "")

    @property
    def stream_files(self) -> dict[int, str]:
        numbers = {path: number for number, path in enumerate(self.files)}
        return {
            numbers[one.files[number]]: how
            for one in self._origins
            for number, how in one.stream_files.items()
        }


class Called(Chosen):
    """The records for which a function returns something true; it is asked once for each."""

    _is_sorted = True

    def __init__(self, source: Source, function: Callable[[Any], Any]) -> None:
        super().__init__(source)
        found = [np.empty(0, np.int64)]
        for start in range(0, len(source), _AT_A_TIME):
            numbers = np.arange(start, min(start + _AT_A_TIME, len(source)))
            records = zip(source._records(numbers), numbers.tolist(), strict=True)
            holds = [bool(_called(function, record, number)) for record, number in records]
            found.append(numbers[holds])
        self._ids = np.concatenate(found)

    @property
    def ids(self) -> np.ndarray:
        return self._ids

    def _fingerprint_over(self, fingerprint: str) -> str:
        return self._known(fingerprint, len(self._ids))

    def _known(self, fingerprint: str, count: int) -> str:
        """Return the fingerprint of the first so many records over that of a source."""
        ids = self._ids[:count].astype("<i8", copy=False)
        return fingerprint_of("called", fingerprint, hashlib.blake2b(ids.data).digest())

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        for length, known in self.source._past(0, len(self.source)):
            count = int(np.searchsorted(self._ids, length))
            if least <= count <= most:
                yield count, self._known(known, count)
