"""Of what type the tokens of an index are, and whether the index is whole and fits that."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError, PenstockError
from penstock.index import DOCUMENT_FILES, rebuilding
from penstock.storage import is_remote

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from penstock.index import Meta, SampleIndex

_META = "meta.json"
_LARGEST = 2**63 - 1
_OFFSETS = DOCUMENT_FILES[0]
_KINDS = ("tokens", "samples")
"""Of indexes that may be of tokens; the second is what a custom indexer writes."""


def refuse_extra_arrays(index: SampleIndex) -> None:
    """Raise for samples of which tokens are only one array."""
    if index.sample_schema is not None:
        raise CorruptIndexError(
            "these samples have extra arrays beside the tokens (sample_schema.json). Open them "
            "by penstock.open() or TokensWithAuxDataset."
        )


def dtype_of(meta: Meta | None, asked: DTypeLike | None) -> np.dtype[Any]:
    """Return the dtype of an index, or else the one that was asked for."""
    if meta is not None and meta.kind not in _KINDS:
        raise CorruptIndexError(
            f"this is an index of {meta.kind}, not of tokens. Open it with penstock.open(), or "
            "tokenise first: penstock tokenize SRC DST"
        )
    if meta is not None and meta.kind == "tokens" and meta.tokens is None:
        raise CorruptIndexError(
            "meta.json is one of tokens, and does not name their type: it is damaged. "
            "Tokenise again: penstock tokenize SRC DST --overwrite"
        )
    wanted = np.dtype(np.uint16 if asked is None else asked).newbyteorder("<")
    if not np.issubdtype(wanted, np.integer):
        raise OptionError(
            f"token_dtype={wanted.name}: tokens are integers, as of uint16 or uint32."
        )
    if meta is None or meta.tokens is None:
        return wanted
    known = _named(meta.tokens.dtype)
    if asked is not None and wanted != known:
        raise OptionError(
            f"token_dtype={wanted.name}, but meta.json says that these tokens are {known.name}. "
            "Leave the argument out."
        )
    return known


def _named(name: str) -> np.dtype[Any]:
    """Return the dtype that `meta.json` names."""
    # NumPy parses what has commas and braces, and raises as parsers do.
    with suppress(TypeError, ValueError, SyntaxError):
        known = np.dtype(name).newbyteorder("<")
        if known.kind in "iu":
            return known
    raise CorruptIndexError(
        f"meta.json says that these tokens are {name!r}, which is no type of integers: it is "
        "damaged. Copy it again, or tokenise again: penstock tokenize SRC DST --overwrite"
    )


def check_complete(index: SampleIndex) -> None:
    """Raise where an index came without a file that what is there of it belongs to.

    An index of data-forager has neither `meta.json` nor files of documents, and one of a
    `TokenizedSampleGenerator`, which notes no documents, has only the first.
    """
    names: set[str] = set()
    if index.origin is not None:
        with suppress(OSError):  # Gone by now, and what was loaded is mapped.
            names = set(os.listdir(index.origin.folder))
    there = [name for name in DOCUMENT_FILES if name in names]
    if index.meta is None and there and _META not in names:
        raise _damaged(index, f"{_META} is missing, though {there[0]} is there: an incomplete copy")
    known = None if index.meta is None else index.meta.tokens
    if known is None or known.sample_size is None or index.documents is not None or not len(index):
        return
    if known.borders or (there and _OFFSETS not in names):
        raise _damaged(index, f"{_OFFSETS} is missing: an incomplete copy", ObjectNotFoundError)


def check_fits(index: SampleIndex, dtype: np.dtype[Any]) -> None:
    """Raise where `meta.json` and the index disagree, as far as a check is cheap."""
    meta = index.meta
    if meta is None or meta.tokens is None or not len(index):
        return
    size, item = meta.tokens.sample_size, dtype.itemsize
    tokens = meta.tokens.tokens if size is None else meta.records * size
    if tokens * item != meta.bytes:
        raise _damaged(
            index,
            f"{_META} speaks of {tokens:,} tokens of {dtype.name}, which are {tokens * item:,} "
            f"bytes, and the samples have {meta.bytes:,}",
        )
    for number in (0, len(index) - 1):
        found = check_inside(index, number)
        if found % item if size is None else found != size * item:
            wanted = "whole tokens" if size is None else f"{size:,} tokens"
            raise _damaged(
                index,
                f"{_META} says that samples are {wanted} of {dtype.name}, and sample {number:,} "
                f"has {found:,} bytes",
            )


def check_inside(index: SampleIndex, number: int) -> int:
    """Return the bytes of a sample; raise where its file ends before it does."""
    place = index[number]
    with suppress(FileNotFoundError):  # Reading it raises.
        there = _LARGEST if is_remote(place.file_path) else os.stat(place.file_path).st_size
        if place.byte_offset + place.num_bytes > there:
            raise _damaged(
                index,
                f"sample {number:,} ends at byte {place.byte_offset + place.num_bytes:,}, and "
                f"{place.file_path} has {there:,}",
            )
    return place.num_bytes


def _damaged(
    index: SampleIndex,
    why: str,
    kind: type[CorruptIndexError | ObjectNotFoundError] = CorruptIndexError,
) -> PenstockError:
    folder, base = "", "DST"
    if index.origin is not None:
        folder, base = index.origin.folder, index.origin.base
    return kind(
        f"the index{folder and f' in {folder}'} is damaged: {why}. Copy the folder again, or "
        f"tokenise again: {rebuilding(base, tokens=True)}",
        path=folder or None,
    )
