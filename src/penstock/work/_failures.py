"""Exceptions between processes: type, text and traceback arrive on the other side."""

from __future__ import annotations

import pickle
import traceback
from typing import NamedTuple

from penstock.errors import WorkerError


class Failure(NamedTuple):
    """An exception on its way."""

    error: bytes
    """Pickled: its type, its text, and itself if it can be; empty where not even its type can."""
    text: str
    notes: list[str]
    trace: str


class WorkerTraceback(Exception):  # noqa: N818 (the cause of an error, not an error)
    """Where in a worker process an error arose."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def failure_of(error: BaseException) -> Failure:
    kind, text = type(error), _text(error)
    pickled = _pickled(kind, text, error) or _pickled(kind, text, None)
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    trace = "".join(traceback.format_exception(error))
    return Failure(pickled, f"{kind.__qualname__}: {text}", notes, trace)


def error_of(failure: Failure) -> BaseException:
    """Return the exception that was sent, of the same type, with the worker's traceback."""
    try:
        error = _unpickled(failure.error)
    except Exception:  # noqa: BLE001 (the class may exist only in the worker)
        error = WorkerError(failure.text)
    known = getattr(error, "__notes__", ())
    for note in failure.notes:
        if note not in known:
            error.add_note(note)
    error.__cause__ = WorkerTraceback(failure.trace)
    return error


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (of any class)
        return "(it cannot say what went wrong)"


def _pickled(*parts: object) -> bytes:
    try:
        data = pickle.dumps(parts)
        _unpickled(data)  # Only what can be loaded is sent.
    except Exception:  # noqa: BLE001 (any class may refuse in any way)
        return b""
    return data


def _unpickled(data: bytes) -> BaseException:
    kind, text, error = pickle.loads(data)  # noqa: S301 (our own worker's)
    if error is None:
        # Its constructor takes other arguments than those it keeps: type and text are kept.
        error = kind.__new__(kind)
        error.args = (text,)
        if text not in str(error):
            raise ValueError(text)  # The text needs attributes that only its constructor sets.
    return error  # type: ignore[no-any-return]
