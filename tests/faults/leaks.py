"""Everything that an error, a log or an object shows, searched for what must not be shown."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import penstock

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = str(Path(penstock.__file__).parent)


def shown_by_error(failure: BaseException) -> Iterator[tuple[str, str]]:
    """Yield, with where it was found, each text by which an error reaches anybody."""
    for each in _chain(failure):
        kind = type(each).__name__
        yield f"str of {kind}", str(each)
        yield f"repr of {kind}", repr(each)
        yield f"args of {kind}", repr(each.args)
        yield f"attributes of {kind}", repr(vars(each))
        yield from _locals_of_ours(each)
    yield "traceback", "".join(traceback.format_exception(failure))
    yield "pickle", pickle.dumps(failure).decode("latin-1")


def shown_by_object(value: object) -> Iterator[tuple[str, str]]:
    """Yield the texts that a value gives of itself."""
    yield "repr", repr(value)
    yield "str", str(value)
    yield "format", f"{value}"
    yield "in a list", repr([value])


def check_hidden(shown: Iterator[tuple[str, str]], secrets: list[str]) -> int:
    """Fail where a secret shows; return how many texts were searched."""
    searched = 0
    for where, text in shown:
        searched += 1
        for secret in secrets:
            assert secret not in text, f"a secret shows in the {where}"
    return searched


def _chain(failure: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and all that led to it, those that a traceback leaves out as well."""
    waiting, seen = [failure], set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]


def _locals_of_ours(failure: BaseException) -> Iterator[tuple[str, str]]:
    """Yield what a traceback with locals shows of the frames that belong to Penstock."""
    shown = traceback.TracebackException.from_exception(failure, capture_locals=True)
    for frame in shown.stack:
        if frame.filename.startswith(_PACKAGE):
            for name, text in (frame.locals or {}).items():
                place = f"{Path(frame.filename).name}, {frame.name}"
                yield f"local {name} ({place}) of {type(failure).__name__}", text
