"""Pickles of the work on tokens: whether processes can load one, and a key that names the work."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.index.tokens._documents import TokenWork

_LARGEST = 256 << 20
_SCRIPTS = {"__main__", "__mp_main__"}


def sending_obstacle(work: TokenWork) -> str:
    """Return why worker processes cannot load the work; an empty text if they can."""
    pickler = _ScriptPickler(io.BytesIO())
    try:
        pickler.dump(work)
    except Exception as why:  # noqa: BLE001 (a tokenizer may refuse in any way)
        return f"it does not pickle ({type(why).__name__}: {why})"
    if pickler.stuck:
        return (
            f"{pickler.stuck[0]} is defined in the script itself, which worker processes do not "
            "run; define it in a module that it imports"
        )
    return ""


class _ScriptPickler(pickle.Pickler):
    """Notes what is pickled by a name that other processes do not know."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out)
        self.stuck: list[str] = []

    def reducer_override(self, obj: object) -> Any:  # noqa: ANN401 (what pickle expects)
        if isinstance(obj, type | FunctionType):
            module = sys.modules.get(obj.__module__)
            if obj.__module__ in _SCRIPTS or getattr(module, "__spec__", None) is None:
                self.stuck.append(obj.__qualname__)
        return NotImplemented


def work_key(work: TokenWork) -> str | None:
    """Return a key of the work, another one wherever its tokens may differ; None if unknown.

    It covers the pickle, the code of functions and classes that a pickle only names, and the
    content of files that it names.
    """
    out = io.BytesIO()
    try:
        _KeyPickler(out).dump(work)
    except Exception:  # noqa: BLE001 (a tokenizer may refuse in any way)
        return None
    return hashlib.blake2b(out.getvalue(), digest_size=16).hexdigest()


class _KeyPickler(pickle.Pickler):
    """Writes the content where a pickle has only a name, and sets in order."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out)
        self._seen: set[int] = set()

    def persistent_id(self, obj: Any) -> object:  # noqa: ANN401 (what pickle expects)
        """Return what replaces an object in the pickle; None: the object itself."""
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
    """Return the globals that a function uses; of functions of other modules only their code."""
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
    """Return a hash of a file; of one larger than any tokenizer its size and time."""
    status = os.stat(path)
    if status.st_size > _LARGEST:
        return status.st_size, status.st_mtime_ns
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _code(code: CodeType) -> str:
    """Return the code of a function, without its place in a file."""
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
