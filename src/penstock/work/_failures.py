"""Exceptions between processes: type, text and traceback arrive on the other side."""

from __future__ import annotations

import pickle
import traceback
from typing import NamedTuple

from penstock.errors import WorkerError


class Failure(NamedTuple):
    """An exception on its way: itself if it pickles, else its type and text."""

    error: bytes | None
    kind: bytes | None
    text: str
    notes: list[str]
    trace: str


class WorkerTraceback(Exception):  # noqa: N818 (the cause of an error, not an error)
    """Where in a worker process an error arose."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def failure_of(error: BaseException) -> Failure:
    trace = "".join(traceback.format_exception(error))
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    text = f"{type(error).__qualname__}: {_text(error)}"
    return Failure(_pickled(error), _pickled(type(error)), text, notes, trace)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (of any class)
        return "(it cannot say what went wrong)"


def _pickled(value: object) -> bytes | None:
    try:
        data = pickle.dumps(value)
        pickle.loads(data)  # noqa: S301 (only what can be loaded is sent)
    except Exception:  # noqa: BLE001 (any class may refuse in any way)
        return None
    return data


def error_of(failure: Failure) -> BaseException:
    """Return the exception that was sent, of the same type, with the worker's traceback."""
    error = _unpickled(failure)
    if error is None:
        error = WorkerError(failure.text)
    known = getattr(error, "__notes__", ())
    for note in failure.notes:
        if note not in known:
            error.add_note(note)
    error.__cause__ = WorkerTraceback(failure.trace)
    return error


def _unpickled(failure: Failure) -> BaseException | None:
    try:
        if failure.error is not None:
            return pickle.loads(failure.error)  # type: ignore[no-any-return]  # noqa: S301 (our own worker's)
        if failure.kind is not None:
            # Its constructor takes other arguments than those it keeps: type and text are kept.
            kind = pickle.loads(failure.kind)  # noqa: S301
            error: BaseException = kind.__new__(kind)
            text = failure.text.partition(": ")[2]
            error.args = (text,)
            # Unless its text needs attributes that only its constructor sets.
            return error if text in str(error) else None
    except Exception:  # noqa: BLE001 (the class may exist only in the worker)
        return None
    return None
