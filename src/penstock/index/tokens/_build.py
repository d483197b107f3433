"""Tokenises text files by units of work, and puts their results together in order."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._words import counted
from penstock.errors import OptionError, StorageError
from penstock.index._fingerprint import digest
from penstock.index._folder import UnitFolder, bring_back, only_builder
from penstock.index._load import meta_of
from penstock.index._names import BAD_LINES
from penstock.index.tokens._job import TokenJob, TokenReport, refuse_existing
from penstock.index.tokens._journal import is_finished, take_back
from penstock.index.tokens._publish import write_tokens
from penstock.index.tokens._units import TextInput, TokenStream, TokenUnit
from penstock.storage import (
    NO_ROOM,
    join,
    no_room,
    refuse_full_disk,
    translated,
)
from penstock.work import run_units, viewed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index.tokens._documents import TokenWork

_ROOM = (
    "writing these tokens",
    "output_base_path= (for tokens of a bucket: the variable PENSTOCK_CACHE)",
)
_FORMAT = 2
"""Of the results of units."""
_IN_CALLER_SECONDS = 2.0
"""Work that takes less time than the start of processes."""
_UNITS = 256
"""Units, at least, unless they become too small."""
_LEAST_UNIT_BYTES = 2 << 20
"""Each unit syncs its file to disk, which takes some milliseconds."""
_LARGEST = 256 << 20
_SCRIPTS = {"__main__", "__mp_main__"}


def build(job: TokenJob) -> TokenReport:
    """Tokenise, pack and publish; only one process at a time."""
    began = time.monotonic()
    with only_builder(job.place.folder):
        shared = job.texts.shared(job.work)
        is_sent = bool(job.workers) or not job.texts.in_memory
        obstacle = sending_obstacle(shared) if is_sent else ""
        if job.workers and obstacle:
            raise OptionError(
                f"num_workers={job.workers}: the tokenizer, or what takes the text of a line, "
                f"cannot be sent to worker processes: {obstacle}. Or give num_workers=0."
            )
        expected = estimated(job.texts, job.work)
        with UnitFolder(job.place, _key(job, expected)) as folder:
            was_finished = is_finished(folder.path, job.reach)
            if kept := take_back(folder.path, job.reach):
                raise StorageError(" ".join(kept), path=str(folder.path))
            if was_finished:
                report = _as_published(job)  # A builder was killed after its last step.
            else:
                bring_back(job.place)
                refuse_existing(job)
                report = _built(job, folder.path, obstacle, expected)
    return replace(report, seconds=time.monotonic() - began)


def _built(job: TokenJob, folder: Path, obstacle: str, expected: TokenEstimate) -> TokenReport:
    units = job.texts.units(str(folder), job.work, _unit_bytes(job))
    left = sum(unit.size for unit in units if not unit.is_done())
    # Once in units, and put together once, or twice for best_fit.
    copies = 2 if job.pack.packing == "best_fit" else 1
    share = left / max(1, job.texts.bytes)
    with _writing(job, folder, int(expected.token_bytes * (share + copies))):
        _tokenise(job, units, obstacle, expected)
        stream = TokenStream(units, job.texts, job.work.dtype)
    needed = stream.tokens * (job.work.dtype.itemsize + job.work.text.is_masked) * copies
    with _writing(job, folder, needed):
        samples = write_tokens(job, stream, folder)
    if samples.dropped:
        dropped = counted(samples.dropped, "token", ("is", "are"))
        job.log.info("%s dropped, behind the last full sample", dropped)
    if stream.aside:
        bad = stream.aside[0]
        job.log.warning(
            "lines set aside, which are no documents: %d, first line %d of %s (%s); see %s",
            len(stream.aside),
            bad.line,
            bad.file,
            bad.reason,
            join(job.folder if job.store is not None else job.place.folder, BAD_LINES),
        )
    count = int(samples.counts.sum())
    numbers = samples.dropped, samples.padding, len(stream.aside), len(job.paths)
    if stream.trained == 0 and stream.tokens:
        job.log.warning("no token is trained: no document has an answer. See answers=")
    return TokenReport(
        stream.documents, samples.tokens, count, *numbers, 0.0, samples.trained_tokens
    )


@contextmanager
def _writing(job: TokenJob, folder: Path, needed: int) -> Iterator[None]:
    """Raise errors that say how much room tokens need, at once if the disk has less."""
    refuse_full_disk(needed, folder.parent, *_ROOM)
    try:
        with translated(job.folder, "write tokens in"):
            yield
    except StorageError as why:
        if why.errno not in NO_ROOM:
            raise
        raise no_room(needed, folder.parent, *_ROOM, why=str(why), number=why.errno) from why


def _tokenise(
    job: TokenJob, units: Sequence[TokenUnit], obstacle: str, expected: TokenEstimate
) -> None:
    workers = job.workers
    if workers is None and job.texts.in_memory:
        workers = 0
        job.log.info("tokenising in this process: the records are in its memory")
    elif workers is None and expected.seconds < _IN_CALLER_SECONDS:
        workers = 0
        job.log.info("tokenising in this process: there is little to do")
    elif workers is None and obstacle:
        workers = 0
        job.log.warning(
            "tokenising in this process alone: the tokenizer, or what takes the text of a line, "
            "cannot be sent to worker processes: %s",
            obstacle,
        )
    with viewed(job.progress, job.texts.bytes, "tokenising") as view:
        count: Callable[[int, int], object] | None = getattr(view, "count", None)

        def done(unit: TokenUnit) -> None:
            if count is not None:
                found = unit.found()
                count(sum(part.documents for part in found), sum(part.tokens for part in found))

        run_units(units, workers=workers, advance=view.add, done=done)


def _unit_bytes(job: TokenJob) -> int:
    """Return the bytes of a unit: few, so that all processes end together.

    They depend on the input alone: a build that continues another one has the same units.
    """
    return min(job.unit_bytes, max(_LEAST_UNIT_BYTES, job.texts.bytes // _UNITS))


def _key(job: TokenJob, expected: TokenEstimate) -> str | None:
    """Return a key of the work, another one wherever its results would differ.

    None if a later build cannot know whether its tokenizer is the same.
    """
    work, files = work_key(job.work), job.texts.key()
    if work is None or files is None:
        return None
    where = [job.place.folder, job.paths, job.store is None]
    size = _unit_bytes(job)
    return digest([_FORMAT, size, work, expected.probe, astuple(job.pack), where, files])


def _as_published(job: TokenJob) -> TokenReport:
    """Return the report of a finished job, from its index."""
    meta = meta_of(job.place)
    if meta is None or meta.tokens is None:
        raise StorageError(f"the index in {job.place.folder} vanished.", path=job.place.folder)
    made = meta.tokens
    numbers = made.dropped, made.padding, meta.bad_lines, len(job.paths)
    trained = None if made.trained is None else made.trained.tokens
    return TokenReport(made.documents, made.tokens, meta.records, *numbers, 0.0, trained)


class TokenEstimate(NamedTuple):
    """The expected cost of a job."""

    probe: str
    """Hash of the first tokens, which differ for another tokenizer."""
    seconds: float
    """Of one processor."""
    token_bytes: int
    """Of all tokens, and of the flags of those that are trained."""


def estimated(texts: TextInput, work: TokenWork) -> TokenEstimate:
    """Tokenise the first documents, and estimate the cost of all."""
    work = replace(work, skips=True)  # Errors are raised when their turn comes.
    made: list[bytes] = []

    def keep(*arrays: NDArray[Any] | None) -> None:
        made[:] = [b"" if one is None else one.tobytes() for one in arrays]

    for probe in texts.probes():
        took = 0.0
        for _ in range(2):  # The first call loads much.
            began = time.perf_counter()
            probe.tokenise(work, keep)
            took = time.perf_counter() - began
        if made:
            hashed = hashlib.blake2b(b"".join(made), digest_size=8).hexdigest()
            stored = len(made[0]) + len(made[2])
            return TokenEstimate(hashed, took * probe.share, int(stored * probe.share))
    return TokenEstimate("", 0.0, 0)


def sending_obstacle(work: object) -> str:
    """Return why worker processes cannot load the work; an empty text if they can."""
    try:
        _ScriptPickler(io.BytesIO()).dump(work)
    except Exception as why:  # noqa: BLE001 (a tokenizer may refuse in any way)
        return f"it does not pickle ({type(why).__name__}: {why})"
    return ""


class _ScriptPickler(pickle.Pickler):
    """Refuses what is pickled by a name that other processes do not know."""

    def reducer_override(self, obj: object) -> Any:  # noqa: ANN401 (what pickle expects)
        if isinstance(obj, type | FunctionType):
            module = sys.modules.get(obj.__module__)
            if obj.__module__ in _SCRIPTS or getattr(module, "__spec__", None) is None:
                raise pickle.PicklingError(
                    f"{obj.__qualname__} is defined in the script itself, which worker processes "
                    "do not run; define it in a module that it imports"
                )
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
