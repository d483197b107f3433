"""What names the work on tokens the next time: another name wherever its tokens may be others."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.index.tokens._documents import TokenWork

_LARGEST = 256 << 20


def work_key(work: TokenWork) -> str | None:
    """Return a name for what becomes of lines; None where nobody can tell it from other work.

    It is made of what is pickled, of the code of functions and classes that are pickled by their
    names alone, and of files that are pickled by theirs.
    """
    out = io.BytesIO()
    try:
        _KeyPickler(out).dump(work)
    except Exception:  # noqa: BLE001 (a tokenizer may refuse in any way)
        return None
    return hashlib.blake2b(out.getvalue(), digest_size=16).hexdigest()


class _KeyPickler(pickle.Pickler):
    """Writes what things are where a pickle would only name them, or have no order."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out)
        self._seen: set[int] = set()

    def persistent_id(self, obj: Any) -> object:  # noqa: ANN401 (what pickle expects)
        """Return what stands for an object; None: the object itself."""
        if isinstance(obj, str):
            return ("file", os.fsencode(obj), _content(obj)) if os.path.isfile(obj) else None
        if isinstance(obj, set | frozenset):
            return "set", sorted(map(repr, obj))
        if not isinstance(obj, FunctionType | type):
            return None
        name = obj.__module__, obj.__qualname__
        if id(obj) in self._seen:
            return name
        self._seen.add(id(obj))
        if isinstance(obj, type):
            methods = [value for value in vars(obj).values() if isinstance(value, FunctionType)]
            return (*name, [_code(method.__code__) for method in methods])
        if obj.__closure__:
            raise pickle.PicklingError(f"{obj.__qualname__} is made anew each time.")
        return (*name, _code(obj.__code__), obj.__defaults__, obj.__kwdefaults__, _beside(obj))


def _beside(function: FunctionType) -> list[object]:
    """Return what a function uses of its module; of others only the code that it calls there."""
    known = function.__globals__
    found = [known[name] for name in sorted(_names(function.__code__)) if name in known]
    return [
        _code(one.__code__)
        if isinstance(one, FunctionType) and one.__module__ != function.__module__
        else one
        for one in found
        if not isinstance(one, ModuleType)
    ]


def _names(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _content(path: str) -> str | tuple[int, int]:
    """Return what tells whether a file is another one: every byte, of a tokenizer's size."""
    status = os.stat(path)
    if status.st_size > _LARGEST:
        return status.st_size, status.st_mtime_ns
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _code(code: CodeType) -> str:
    """Return what a function does, wherever it is written."""
    names = code.co_names, code.co_varnames, code.co_freevars
    constants = [
        _code(one)
        if isinstance(one, CodeType)
        else sorted(map(repr, one))
        if isinstance(one, frozenset)
        else repr(one)
        for one in code.co_consts
    ]
    return repr((code.co_code, names, constants))
