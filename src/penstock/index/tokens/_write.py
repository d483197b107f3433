"""Units put together: token files and what tells of them, written aside and then published."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from penstock.index._bad_lines import write_bad_lines
from penstock.index._folder import NewFolder
from penstock.index._meta import TokensMeta
from penstock.index._names import (
    BAD_LINES,
    DOCUMENT_ENDS,
    DOCUMENT_GOES_ON,
    DOCUMENT_OFFSETS,
    ROWS,
)
from penstock.index.tokens._inputs import refuse_changed
from penstock.index.tokens._pack import samples_of
from penstock.index.tokens._publish import Publication, TokenBin
from penstock.storage import join

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.index._index_store import IndexStoreInterface
    from penstock.index.tokens._job import TokenJob
    from penstock.index.tokens._pack import Samples
    from penstock.index.tokens._stream import TokenStream


def write_tokens(job: TokenJob, stream: TokenStream, folder: Path) -> Samples:
    """Write all that becomes of a stream, in a folder of ours, and publish it."""
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
            _tell(job.store, job, samples)
        return samples
    # Nobody could make it again without the text and its tokenizer.
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


def _tell(store: IndexStoreInterface, job: TokenJob, samples: Samples) -> None:
    """Tell a user's own index of every sample."""
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
