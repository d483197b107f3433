"""Token folders, Megatron files and MDS folders among what `penstock.open` is given."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import CorruptIndexError, ObjectNotFoundError
from penstock.index import (
    JSONL,
    IndexStore,
    LineScanner,
    decode_meta,
    exists,
    kind_in,
    load_beside,
    place_of,
)
from penstock.storage import is_pattern, is_remote, join, locate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.datasets._source import Source
    from penstock.index import Listing
    from penstock.storage import StorageOptions

_INDEX, _KIND = "index", "tokens"
_PAIR = (".idx", ".bin")


def local_tokens(what: Any, index: str | os.PathLike[str] | None = None) -> Source | None:
    """Return the samples of a folder on this machine whose index is one of tokens; else None.

    The index decides: there may be records beside it, which the tokens were made from.
    """
    if not isinstance(what, str | os.PathLike) or is_remote(what) or is_pattern(os.fspath(what)):
        return None
    base = locate(what)[1]
    if not os.path.isdir(base) or (index is not None and is_remote(index)):
        return None
    folder = join(base, _INDEX) if index is None else os.path.abspath(locate(index)[1])
    try:
        kind = kind_in(folder)
    except (ObjectNotFoundError, CorruptIndexError):
        return None  # Whoever needs that index will tell of it.
    if kind != _KIND:
        return None
    return _dataset(IndexStore(base, os.path.relpath(folder, base)).load())


def remote_tokens(listing: Listing, options: StorageOptions) -> Source | None:
    """Return the samples of a remote folder with an index of tokens beside its files; else None.

    Where the folder holds records that were indexed before, nothing is asked: they are meant.
    """
    if not listing.is_remote or listing.folder is None:
        return None
    if listing.files:
        has_lines = any(found.entry.name.lower().endswith(JSONL) for found in listing.files)
        if not has_lines or exists(place_of(listing, LineScanner(), options)):
            return None
    path = join(join(listing.folder, _INDEX), "meta.json")
    store, name = locate(path, options)
    with suppress(ObjectNotFoundError), closing(store.open(name)) as file:
        if decode_meta(file.read_at(0, file.size), path).kind == _KIND:
            return _dataset(load_beside(listing.folder, _INDEX, options))
    return None


def _dataset(index: Any) -> Source:
    from penstock.datasets._tokens import TokensDataset  # noqa: PLC0415 (only when used)

    return TokensDataset(index)


def megatron_tokens(
    what: Any, options: StorageOptions, given: Mapping[str, Any] | None
) -> Source | None:
    """Return the documents of a pair of Megatron files, named by one of them or their prefix."""
    if not isinstance(what, str | os.PathLike) or is_pattern(os.fspath(what)):
        return None
    from penstock.datasets._megatron import MegatronTokens, is_megatron  # noqa: PLC0415 (rare)

    return MegatronTokens(what, storage_options=given) if is_megatron(what, options) else None


def is_of_pair(what: Any) -> bool:
    """Whether a path ends like one of a pair of Megatron files."""
    return isinstance(what, str | os.PathLike) and os.fspath(what).endswith(_PAIR)


def mds_rows(
    listing: Listing, options: StorageOptions, given: Mapping[str, Any] | None
) -> Source | None:
    """Return the samples of a folder of MDS shards; None where it is none."""
    if listing.folder is None:
        return None
    marker = join(listing.folder, "index.json")
    if all(found.path != marker for found in listing.files):
        return None
    from penstock.datasets._mds import MdsRows, is_mds  # noqa: PLC0415 (rare)

    folder = listing.folder
    return MdsRows(folder, storage_options=given) if is_mds(folder, options) else None
