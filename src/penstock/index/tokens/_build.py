"""Text files into token files and their index: units in any process, put together in order."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from penstock.errors import OptionError, PenstockError, StorageError
from penstock.index._fingerprint import digest
from penstock.index._folder import bring_back, only_builder
from penstock.index._load import read_meta
from penstock.index._names import BAD_LINES
from penstock.index._open_index import local_folder
from penstock.index.checked._unit_folder import UnitFolder
from penstock.index.tokens._estimate import estimated, no_room, refuse_full_disk
from penstock.index.tokens._job import TokenReport
from penstock.index.tokens._journal import is_finished, take_back
from penstock.index.tokens._key import work_key
from penstock.index.tokens._send import sent
from penstock.index.tokens._stream import TokenStream
from penstock.index.tokens._taken import refuse_existing
from penstock.index.tokens._units import SharedWork, token_units
from penstock.index.tokens._view import Teller
from penstock.index.tokens._write import write_tokens
from penstock.storage import NO_ROOM, join
from penstock.work import run_units, viewed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.index.tokens._estimate import Estimate
    from penstock.index.tokens._job import TokenJob
    from penstock.index.tokens._send import Sent
    from penstock.index.tokens._units import TokenUnit

_FORMAT = 1
"""Of the units' output."""
_BUILD_SECONDS = 3600.0
_IN_CALLER_SECONDS = 2.0
"""Work that is done before other processes are of use."""
_UNITS = 256
"""So many there are at least, if that does not make them too small."""
_LEAST_UNIT_BYTES = 2 << 20
"""Each one is brought to disk by itself, which takes some milliseconds."""


def build(job: TokenJob) -> TokenReport:
    """Tokenise, pack and publish; of many processes one does."""
    began = time.monotonic()
    with only_builder(job.place.folder, _BUILD_SECONDS):
        send = sent(job.work)
        if job.workers and send.obstacle:
            raise OptionError(
                f"num_workers={job.workers}: the tokenizer, or what takes the text of a line, "
                f"cannot be sent to worker processes: {send.obstacle}. Or give num_workers=0."
            )
        expected = estimated(job.listing, job.work)
        with UnitFolder(job.place, _key(job, expected)) as folder:
            was_finished = is_finished(folder.path, job.reach)
            if kept := take_back(folder.path, job.reach):
                raise StorageError(" ".join(kept), path=str(folder.path))
            if was_finished:
                report = _as_published(job)  # Killed between the last step and this line.
            else:
                bring_back(job.place)
                refuse_existing(job)
                report = _built(job, folder.path, send, expected)
    return replace(report, seconds=time.monotonic() - began)


def _built(job: TokenJob, folder: Path, send: Sent, expected: Estimate) -> TokenReport:
    units = token_units(job.listing, str(folder), SharedWork(job.work), _unit_bytes(job))
    left = sum(unit.size for unit in units if not unit.is_done())
    # Once in units, and once, or for the sake of packing twice, put together.
    copies = 2 if job.pack.packing == "best_fit" else 1
    share = left / max(1, job.listing.bytes)
    refuse_full_disk(int(expected.token_bytes * (share + copies)), folder)
    with _writing(job, folder, expected.token_bytes * (1 + copies)):
        _tokenise(job, units, send, expected)
        stream = TokenStream(units, job.listing, job.work.dtype)
    needed = stream.tokens * job.work.dtype.itemsize * copies
    refuse_full_disk(needed, folder)
    with _writing(job, folder, needed):
        samples = write_tokens(job, stream, folder)
    if samples.dropped:
        job.log.info("%d tokens behind the last full sample are dropped", samples.dropped)
    if stream.aside:
        bad = stream.aside[0]
        job.log.warning(
            "lines set aside, which are no documents: %d, first line %d of %s (%s); "
            "%s tells of them",
            len(stream.aside),
            bad.line,
            bad.file,
            bad.reason,
            join(job.folder if job.store is not None else job.place.folder, BAD_LINES),
        )
    count = int(samples.counts.sum())
    numbers = samples.dropped, samples.padding, len(stream.aside), len(job.names)
    return TokenReport(stream.documents, samples.tokens, count, *numbers, 0.0)


@contextmanager
def _writing(job: TokenJob, folder: Path, needed: int) -> Iterator[None]:
    """Tell what a disk that takes no more would have to take, and where else tokens may go."""
    try:
        yield
    except OSError as why:
        if why.errno in NO_ROOM:
            raise no_room(needed, folder, str(why), why.errno) from why
        if isinstance(why, PenstockError):
            raise
        raise StorageError(
            f"tokens cannot be written in {job.folder}: {why}. Give another folder: "
            "output_base_path=",
            path=job.folder,
            errno=why.errno,
        ) from why


def _tokenise(job: TokenJob, units: Sequence[TokenUnit], send: Sent, expected: Estimate) -> None:
    workers = job.workers
    if workers is None and expected.seconds < _IN_CALLER_SECONDS:
        workers = 0
        job.log.info("tokenising in this process: there is little to do")
    elif workers is None and send.obstacle:
        workers = 0
        job.log.warning(
            "tokenising in this process alone: the tokenizer, or what takes the text of a line, "
            "cannot be sent to worker processes: %s",
            send.obstacle,
        )
    with viewed(job.progress, job.listing.bytes, "tokenising") as view:
        teller = Teller(view, units)
        run_units(units, workers=workers, advance=teller.advance)
        teller.finish()


def _unit_bytes(job: TokenJob) -> int:
    """Return the text that a process takes at a time: little, so that all end together.

    The input alone says how much: whoever goes on with what another began has the same units.
    """
    return min(job.unit_bytes, max(_LEAST_UNIT_BYTES, job.listing.bytes // _UNITS))


def _key(job: TokenJob, expected: Estimate) -> str | None:
    """Return a name for what is done: another one where anything of it would differ.

    None where nobody knows whether a tokenizer is the same one the next time.
    """
    work = work_key(job.work)
    if work is None:
        return None
    files = [
        [found.path, found.entry.size, found.entry.modified, found.entry.version]
        for found in job.listing.files
    ]
    where = [job.place.folder, job.paths, job.store is None]
    size = _unit_bytes(job)
    return digest([_FORMAT, size, work, expected.probe, astuple(job.pack), where, files])


def _as_published(job: TokenJob) -> TokenReport:
    """Return what the index tells of a job that is finished."""
    meta = read_meta(local_folder(job.place))
    if meta is None or meta.tokens is None:
        raise StorageError(f"the index in {job.place.folder} vanished.", path=job.place.folder)
    told = meta.tokens
    numbers = told.dropped, told.padding, meta.bad_lines, len(job.names)
    return TokenReport(told.documents, told.tokens, meta.records, *numbers, 0.0)
