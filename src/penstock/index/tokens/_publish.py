"""Token files and their index, written in a work folder and published together, or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.errors import (
    CorruptIndexError,
    ObjectExistsError,
    ObjectNotFoundError,
    StaleIndexError,
    StorageError,
)
from penstock.index._fingerprint import file_fingerprint
from penstock.index._folder import NewFolder
from penstock.index._load import load_index
from penstock.index._meta import FileMeta, Meta, RecordRun, TokensMeta, TrainedMeta, write_meta
from penstock.index._names import (
    BAD_LINES,
    DOCUMENT_ENDS,
    DOCUMENT_GOES_ON,
    DOCUMENT_OFFSETS,
    PUT_ASIDE,
    ROWS,
    TRAINED,
)
from penstock.index.checked._checks import write_bad_lines
from penstock.index.tokens._job import TokenJob, taken
from penstock.index.tokens._journal import (
    JOURNAL,
    IndexIn,
    MadeFolder,
    PutAside,
    Uploaded,
    meta_digest,
    note,
    put_in,
    take_back,
)
from penstock.index.tokens._pack import Samples, samples_of
from penstock.storage import (
    LocalStore,
    entry_at,
    is_remote,
    join,
    leads_through_link,
    locate,
    path_below,
    publish_by_link,
    sync,
    take,
    upload_file,
)

if TYPE_CHECKING:
    from penstock.index._indexer import IndexStoreInterface
    from penstock.index.tokens._units import TokenStream
    from penstock.storage import Store

_LARGEST_EXCLUSIVE = 5 << 30


def write_tokens(job: TokenJob, stream: TokenStream, folder: Path) -> Samples:
    """Write the samples of a stream in a work folder, and publish them."""
    scratch = folder / "stream.bin"
    samples = samples_of(stream, job.pack, scratch)
    bins = _staged(job, stream, samples, folder / "bins")
    job.texts.refuse_changed()
    if job.store is not None:
        if stream.aside:
            aside = _write_aside(folder, stream)
            bins.append(TokenBin(aside, join(job.folder, BAD_LINES), 0, 0))
        with Publication(folder, job, bins).files():
            _add_samples(job.store, job, samples)
        return samples
    # Only the text and its tokenizer could make it again.
    with NewFolder(job.place, is_kept=True) as new:
        _write_rows(new.path / ROWS, samples)
        if job.pack.size is not None:
            _write_ends(new.path, samples)
        mask = _write_trained(new.path, samples) if job.work.text.is_masked else None
        samples.trained_tokens = None if mask is None else mask.tokens
        if job.work.skips:
            _write_aside(new.path, stream)
        publication = Publication(folder, job, bins)
        counts = {name: getattr(samples, name) for name in ("tokens", "dropped", "padding")}
        counts |= {"documents": stream.documents, "trained": mask}
        described = job.pack.described(job.work.dtype, job.work.eos, **counts)
        with publication.files():
            publication.index(new, described)
    return samples


def _write_aside(folder: Path, stream: TokenStream) -> Path:
    with (folder / BAD_LINES).open("wb") as file:
        write_bad_lines(file, stream.aside)
    return folder / BAD_LINES


def _staged(job: TokenJob, stream: TokenStream, samples: Samples, folder: Path) -> list[TokenBin]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    bad = Counter(line.file for line in stream.aside)
    bins = []
    for number, (path, name) in enumerate(zip(job.paths, job.texts.names, strict=True)):
        staged = folder / f"{number:06}.bin"
        with staged.open("wb") as out:
            samples.write(number, out)
            out.flush()
            os.fsync(out.fileno())
        bins.append(TokenBin(staged, path, int(samples.counts[number]), bad[name]))
    return bins


def _write_rows(path: Path, samples: Samples) -> None:
    with path.open("wb") as out:
        # Files without samples have no number.
        for number, file in enumerate(np.flatnonzero(samples.counts).tolist()):
            for places in samples.rows(file):
                rows = np.empty((len(places), 3), "<u8")
                rows[:, 0] = number
                rows[:, 1:] = places
                out.write(rows.data)


def _write_ends(folder: Path, samples: Samples) -> None:
    with (
        (folder / DOCUMENT_ENDS).open("wb") as ends,
        (folder / DOCUMENT_OFFSETS).open("wb") as offsets,
        (folder / DOCUMENT_GOES_ON).open("wb") as goes_on,
    ):
        offsets.write(np.zeros(1, "<u8").data)
        for some in samples.ends():
            ends.write(some.ends.astype("<u4").data)
            offsets.write(some.offsets.astype("<u8").data)
            goes_on.write(some.goes_on.astype("u1").data)


def _write_trained(folder: Path, samples: Samples) -> TrainedMeta:
    """Write a bit for each token, the lowest of a byte first, and return what the file holds."""
    count, rest = 0, np.empty(0, np.bool_)
    hashed = hashlib.blake2b(digest_size=16)
    with (folder / TRAINED).open("wb") as out:
        for some in samples.trained():
            count += int(some.sum())
            flags = np.concatenate([rest, some])
            whole = len(flags) // 8 * 8
            bits = np.packbits(flags[:whole], bitorder="little")
            hashed.update(bits.data)
            out.write(bits.data)
            rest = flags[whole:]
        last = np.packbits(rest, bitorder="little")
        hashed.update(last.data)
        out.write(last.data)
    return TrainedMeta(count, hashed.hexdigest())


def _add_samples(store: IndexStoreInterface, job: TokenJob, samples: Samples) -> None:
    """Add every sample to a user's own index store."""
    if job.overwrite and store.exists():
        store.clear()
    store.init_store()
    for file, path in enumerate(job.paths):
        for places in samples.rows(file):
            for offset, size in places.tolist():
                store.add_sample(path, offset, size)
    store.close()


class TokenBin(NamedTuple):
    """A token file that is not published yet."""

    staged: Path
    """Where it lies now."""
    path: str
    """Where it will: a path or a URL."""
    samples: int
    bad_lines: int


class Publication:
    """Puts token files in place, and their index behind them; undone as a whole if that fails."""

    def __init__(self, folder: Path, job: TokenJob, bins: list[TokenBin]) -> None:
        self._folder, self._bins, self._place = folder, bins, job.place
        self._replace, self._has_index = job.overwrite, job.store is None
        self._options, self._reach = job.place.options, job.reach

    @contextmanager
    def files(self) -> Iterator[None]:
        """Put the files in place; when the `with` block fails, nothing of them stays."""
        lock = None  # Of the only one who publishes here, on any machine that sees the folder.
        if not self._place.is_remote:
            with suppress(OSError):  # No locks on this file system.
                lock = take(os.path.realpath(os.path.dirname(self._place.folder)), waits=True)
        with lock or nullcontext():
            try:
                if is_remote(self._bins[0].path):
                    self._upload()
                else:
                    self._move()
                yield
            except BaseException as why:
                try:
                    kept = take_back(self._folder, self._reach)
                except (OSError, StorageError, CorruptIndexError) as more:
                    kept = [f"What was published so far is not taken back yet: {more}"]
                for said in kept:
                    why.add_note(said)
                raise
            (self._folder / JOURNAL).unlink(missing_ok=True)

    def index(self, new: NewFolder, tokens: TokensMeta) -> None:
        """Describe the files, which are in place, and let the index appear."""
        files = [self._described(one) for one in self._bins if one.samples]
        runs = [RecordRun(at, file.records, file.fingerprint) for at, file in enumerate(files)]
        meta = Meta(
            "tokens",
            files,
            runs,
            empty=[self._described(one) for one in self._bins if not one.samples],
            base=None if self._place.beside else self._place.base,
            created=time.time(),
            validated=True,
            tokens=tokens,
        )
        text = write_meta(new.path, meta)
        note(self._folder, [IndexIn(self._place.folder, meta_digest(text))])
        new.publish(replace=False)

    def _move(self) -> None:
        aside = self._replaced() if self._replace else []
        note(self._folder, aside)
        for entry in aside:
            os.rename(entry.path, self._folder / entry.name)
        folders = {os.path.dirname(one.path) for one in self._bins}
        for folder in sorted(folders):
            self._make(folder)
        note(self._folder, [put_in(one.staged, one.path) for one in self._bins])
        for one in self._bins:
            try:
                publish_by_link(str(one.staged), one.path)
            except ObjectExistsError:
                raise taken(one.path) from None
        for folder in folders:
            sync(Path(folder))

    def _make(self, folder: str) -> None:
        if os.path.isdir(folder):
            return
        self._make(os.path.dirname(folder))
        with suppress(FileExistsError):
            os.mkdir(folder)
            note(self._folder, [MadeFolder(folder)])

    def _replaced(self) -> list[PutAside]:
        """Return what is there: our index, which goes first, and all token files."""
        files = [one.path for one in self._bins if os.path.lexists(one.path)]
        aside = []
        if self._has_index and os.path.isdir(self._place.folder):
            aside = [PutAside(self._place.folder, PUT_ASIDE)]
            files += self._named()
        names = enumerate(dict.fromkeys(files))
        return [*aside, *(PutAside(path, f"old-{number}") for number, path in names)]

    def _named(self) -> list[str]:
        """Return the token files that the index names."""
        # The files of a damaged index are not known, and stay.
        with suppress(CorruptIndexError, StaleIndexError, ObjectNotFoundError):
            old = load_index(self._place)
            empty = [] if old.meta is None else old.meta.empty
            base = self._place.base
            below = (path_below(base, one.path) for one in empty)
            named = [*old.file_locations, *(path for path in below if path is not None)]
            return [
                path
                for path in named
                if path.endswith(".bin")
                and os.path.isfile(path)
                and not leads_through_link(base, os.path.dirname(path))
            ]
        return []

    def _upload(self) -> None:
        index = self._place.folder if self._has_index else None
        for one in self._bins:
            store, name = locate(one.path, self._options)
            refuse_taken = partial(_refuse_taken, store, name, one.path)
            refuse_taken()  # Before all its bytes travel.
            is_exclusive = one.staged.stat().st_size <= _LARGEST_EXCLUSIVE
            try:
                upload_file(store, one.staged, name, exclusive=is_exclusive, before=refuse_taken)
            except ObjectExistsError:
                raise taken(one.path) from None
            entry = store.entry(name)
            note(self._folder, [Uploaded(one.path, entry.size, entry.version, index)])

    def _described(self, one: TokenBin) -> FileMeta:
        store, name = locate(one.path, self._options)
        entry = store.entry(name)
        here = str(one.staged) if one.staged.exists() else name  # Where there are no links.
        with closing(LocalStore().open(here)) as file:
            fingerprint = file_fingerprint(file)
        root = locate(self._place.base, self._options)[1].rstrip("/") + "/"
        return FileMeta(
            name.removeprefix(root),
            entry.size,
            entry.modified,
            fingerprint,
            one.samples,
            entry.size,
            entry.version,
            bad_lines=one.bad_lines,
        )


def _refuse_taken(store: Store, name: str, path: str) -> None:
    if entry_at(store, name) is not None:
        raise taken(path)
