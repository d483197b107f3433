"""Every error a user can meet; each is also the built-in that Python people would catch.

Each can be built from one string, and keeps type, text and details through a pickle, so an error
of a worker process arrives as itself.
"""

from __future__ import annotations

from typing import ClassVar

import orjson

from penstock._redact import without_secrets

__all__ = [
    "BadRecordsError",
    "ChangedSourceError",
    "CorruptFileError",
    "CorruptIndexError",
    "IndexExistsError",
    "IndexTimeoutError",
    "MalformedLineError",
    "MissingExtraError",
    "ObjectChangedError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "OptionError",
    "PenstockError",
    "RankMismatchError",
    "RecordIndexError",
    "SchemaMismatchError",
    "StaleIndexError",
    "StallError",
    "StorageError",
    "StoragePermissionError",
    "StorageTimeoutError",
    "TruncatedFileError",
    "UnsafeForkError",
    "UnserializableRecordError",
    "UnsupportedFileError",
    "WorkerError",
]


class PenstockError(Exception):
    """Anything that Penstock itself reports: a fact, and what to do about it.

    The text is "fact remedy"; an error built from one string has no remedy of its own. Details
    (`path`, `line_number` …) are keyword arguments and become attributes.

    >>> failure = PenstockError("a.jsonl is damaged.", remedy="Copy it again.", path="a.jsonl")
    >>> str(failure), failure.path
    ('a.jsonl is damaged. Copy it again.', 'a.jsonl')
    """

    fact: str
    remedy: str
    _built_in: ClassVar[tuple[object, ...]] = ()
    """What the built-in takes behind its text."""

    def __init__(self, fact: str = "", *, remedy: str = "", **details: object) -> None:
        fact, remedy = without_secrets(fact), without_secrets(remedy)
        text = f"{fact} {remedy}" if remedy else fact
        super().__init__(text, *self._built_in)
        self.args = (text,)  # JSONDecodeError adds a line and a column.
        self.fact, self.remedy = fact, remedy
        for name, value in details.items():
            if name == "path" and isinstance(value, str):
                value = without_secrets(value)  # noqa: PLW2901
            setattr(self, name, value)

    def advise(self, remedy: str) -> None:
        """Replace the remedy, for a caller that knows a better one.

        >>> failure = PenstockError("There is an index.", remedy="Give overwrite=True.")
        >>> failure.advise("Give --overwrite.")
        >>> str(failure)
        'There is an index. Give --overwrite.'
        """
        self.remedy = without_secrets(remedy)
        self.args = (f"{self.fact} {self.remedy}" if remedy else self.fact,)

    def __reduce__(self) -> tuple[object, ...]:
        details = dict(vars(self))
        # OSError keeps errno, and ImportError the other two, outside of __dict__.
        for name in ("errno", "name", "path"):
            if (value := getattr(self, name, None)) is not None:
                details[name] = value
        return _rebuild, (type(self), str(self), details)


def _rebuild(kind: type[PenstockError], text: str, details: dict[str, object]) -> PenstockError:
    failure = kind(text)
    for name, value in details.items():
        setattr(failure, name, value)
    return failure


class OptionError(PenstockError, ValueError):
    """An argument or option has a value that cannot work."""


class MissingExtraError(PenstockError, ModuleNotFoundError):
    """An optional dependency is not installed."""


class UnsafeForkError(PenstockError, RuntimeError):
    """A forked child uses a store, a writer or a stream that only its parent can use."""


class MalformedLineError(PenstockError, orjson.JSONDecodeError):
    """A line is not the JSON that was expected; also the error of `json` and of `orjson`."""

    _built_in = ("", 0)  # `doc` and `pos`, which details replace.
    path: str
    line_number: int


class UnserializableRecordError(PenstockError, TypeError):
    """A record holds a value that JSON cannot express."""


class SchemaMismatchError(PenstockError, ValueError):
    """Records, or what a state holds, do not fit a schema."""


class CorruptFileError(PenstockError, OSError):
    """The bytes of a file are damaged."""


class TruncatedFileError(CorruptFileError, EOFError):
    """A file ends before its contents do."""


class UnsupportedFileError(PenstockError, OSError):
    """A file uses a feature of its format that is not read here; it need not be damaged."""


class RecordIndexError(PenstockError, IndexError):
    """There is no record of that number."""


class StaleIndexError(PenstockError, RuntimeError):
    """The files no longer match the index that describes them."""


class CorruptIndexError(PenstockError, ValueError):
    """An index is damaged, unfinished, or of another kind than expected."""


class IndexExistsError(PenstockError, ValueError):
    """There is an index already, and neither an update nor an overwrite was asked for."""


class IndexTimeoutError(PenstockError, TimeoutError):
    """Another process has been building an index for too long."""


class StorageError(PenstockError, OSError):
    """Reading from or writing to storage failed for good."""

    path: str


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """The file, object, directory or bucket does not exist."""


class ObjectExistsError(StorageError, FileExistsError):
    """The name is taken and may not be replaced."""


class ObjectChangedError(StorageError):
    """A file or object was replaced while it was being read."""


class StoragePermissionError(StorageError, PermissionError):
    """Storage refuses these credentials, or the file system this user."""


class StorageTimeoutError(StorageError, TimeoutError):
    """Storage did not answer before the deadline."""


class BadRecordsError(PenstockError, ValueError):
    """More records than allowed were found bad while a run went on."""


class ChangedSourceError(PenstockError, RuntimeError):
    """A run is resumed over other records than those it began with."""


class RankMismatchError(PenstockError, RuntimeError):
    """Ranks of one run see different data, or stand at different places of it."""


class StallError(PenstockError, TimeoutError):
    """A batch did not come in time."""


class WorkerError(PenstockError, RuntimeError):
    """A worker process died, or could not be started."""
