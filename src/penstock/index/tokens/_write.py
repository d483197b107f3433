"""Token files and their index, written in a work folder and then published."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import CorruptIndexError, IndexExistsError, ObjectNotFoundError, StorageError
from penstock.index._bad_lines import write_bad_lines
from penstock.index._folder import NewFolder
from penstock.index._load import kind_in
from penstock.index._meta import TokensMeta
from penstock.index._names import BAD_LINES, DOCUMENT_ENDS, DOCUMENT_GOES_ON, DOCUMENT_OFFSETS, ROWS
from penstock.index._open_index import exists, local_folder, refuse_other_folder
from penstock.index.tokens._job import refuse_changed
from penstock.index.tokens._pack import samples_of
from penstock.index.tokens._publish import Publication, TokenBin, remedy, taken
from penstock.storage import LocalStore, is_below, is_remote, join, leads_through_link, locate

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.index._indexer import IndexStoreInterface
    from penstock.index.tokens._job import TokenJob
    from penstock.index.tokens._pack import Samples
    from penstock.index.tokens._units import TokenStream


def write_tokens(job: TokenJob, stream: TokenStream, folder: Path) -> Samples:
    """Write the samples of a stream in a work folder, and publish them."""
    scratch = folder / "stream.bin"
    samples = samples_of(stream, job.pack, scratch)
    bins = _staged(job, stream, samples, folder / "bins")
    refuse_changed(job.listing, job.options)
    if job.store is not None:
        if stream.aside:
            aside = folder / BAD_LINES
            with aside.open("wb") as file:
                write_bad_lines(file, stream.aside)
            bins.append(TokenBin(aside, join(job.folder, BAD_LINES), 0, 0))
        with Publication(folder, job, bins).files():
            _add_samples(job.store, job, samples)
        return samples
    # Only the text and its tokenizer could make it again.
    with NewFolder(job.place, is_kept=True) as new:
        _write_rows(new.path / ROWS, samples)
        if job.pack.size is not None:
            _write_ends(new.path, samples)
        if job.work.skips:
            with (new.path / BAD_LINES).open("wb") as file:
                write_bad_lines(file, stream.aside)
        publication = Publication(folder, job, bins)
        with publication.files():
            publication.index(new, _described(job, stream, samples))
    return samples


def _staged(job: TokenJob, stream: TokenStream, samples: Samples, folder: Path) -> list[TokenBin]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    bad = Counter(line.file for line in stream.aside)
    bins = []
    for number, (path, found) in enumerate(zip(job.paths, job.listing.files, strict=True)):
        staged = folder / f"{number:06}.bin"
        with staged.open("wb") as out:
            samples.write(number, out)
            out.flush()
            os.fsync(out.fileno())
        of_file = bad[job.listing.relative(found)]
        bins.append(TokenBin(staged, path, int(samples.counts[number]), of_file))
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
            ends.write(some.values.astype("<u4").data)
            offsets.write(some.offsets.astype("<u8").data)
            goes_on.write(some.goes_on.astype("u1").data)


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


def _described(job: TokenJob, stream: TokenStream, samples: Samples) -> TokensMeta:
    pack = job.pack
    fills_up = pack.packing == "best_fit" or pack.remainder == "pad"
    return TokensMeta(
        dtype=job.work.dtype.name,
        sample_size=pack.size,
        eos=job.work.eos,
        packing=None if pack.size is None else pack.packing,
        pad=pack.pad if fills_up else None,
        documents=stream.documents,
        tokens=samples.tokens,
        dropped=samples.dropped,
        padding=samples.padding,
    )


def refuse_existing(job: TokenJob) -> None:
    """Raise if tokens or another index exist where those of a job go."""
    _refuse_links(job)
    has_index = _has_index(job)
    if job.overwrite:
        return
    for path in _existing(job):
        raise taken(path)
    if has_index:
        raise IndexExistsError(
            f"there is an index in {job.place.folder} already.",
            remedy=remedy(job.place.folder, "builds it and its token files anew"),
        )


def _refuse_links(job: TokenJob) -> None:
    """Raise if token files would be written through a link below the folder that the user named."""
    base = job.place.base if is_below(job.place.base, job.folder) else job.folder
    for folder in set() if is_remote(job.folder) else {*map(os.path.dirname, job.paths)}:
        if leads_through_link(base, folder):
            raise StorageError(
                f"{folder} is a link, or lies behind one, and token files are not written through "
                "links.",
                remedy="Remove the link, or give another folder: output_base_path=",
                path=folder,
            )


def _has_index(job: TokenJob) -> bool:
    if job.store is not None:
        return job.store.exists()
    if not exists(job.place):
        refuse_other_folder(job.place)
        return False
    with suppress(CorruptIndexError, ObjectNotFoundError):  # A damaged index may be replaced.
        kind = kind_in(local_folder(job.place))
        if kind != "tokens":
            raise IndexExistsError(
                f"{job.place.folder} holds an index of {kind or 'records'}, and is not overwritten "
                "by one of tokens.",
                remedy="Give another folder: output_base_path=",
            )
    return True


def _existing(job: TokenJob) -> list[str]:
    """Return the token files of a job that exist."""
    store, name = locate(job.folder, job.place.options)
    if isinstance(store, LocalStore):
        return [path for path in job.paths if os.path.lexists(path)]
    found: set[str] = set()
    with suppress(ObjectNotFoundError):
        found = {store.path(entry.name) for entry in store.list(name, recursive=True)}
    return [path for path in job.paths if path in found]
