"""Token folders, Megatron files and MDS folders among what `penstock.open` is given."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.datasets.mds._index import is_shard
from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError
from penstock.index import (
    CSV,
    JSONL,
    PARQUET,
    IndexStore,
    decode_meta,
    kind_in,
    load_beside,
    refuse_put_aside,
)
from penstock.storage import fetch_metadata, is_pattern, is_remote, join, locate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.datasets._source import Source
    from penstock.index import Listing, SampleIndex
    from penstock.storage import StorageOptions

_log = logging.getLogger("penstock.datasets")
_INDEX, _KIND = "index", "tokens"
_BIN, _IDX = ".bin", ".idx"
_RECORDS = (*JSONL, *CSV, *PARQUET)


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
    if not _is_of_tokens(folder):
        refuse_put_aside(folder)
        return None
    return _dataset(IndexStore(base, os.path.relpath(folder, base)).load(), base)


def _is_of_tokens(folder: str) -> bool:
    """Whether there is an index of tokens in a folder on this machine."""
    try:
        return kind_in(folder) == _KIND
    except (ObjectNotFoundError, CorruptIndexError):
        return False  # Whoever needs that index will tell of it.


def remote_tokens(listing: Listing, options: StorageOptions) -> Source | None:
    """Return the samples of a remote folder with an index of tokens beside its files; else None.

    The index beside the files decides, whatever this machine has in its cache: another one, or
    the same one later, must not open something else.
    """
    if not listing.is_remote or listing.folder is None or not listing.has_index:
        return None
    names = [found.entry.name.lower() for found in listing.files]
    if names and not any(name.endswith(JSONL) for name in names):
        return None  # Tokens are made of lines alone.
    if not _holds_tokens(listing.folder, options):
        return None
    return _dataset(load_beside(listing.folder, _INDEX, options), listing.folder)


def _holds_tokens(folder: str, options: StorageOptions) -> bool:
    """Whether a folder, local or remote, has an index of tokens beside its files."""
    if not is_remote(folder):
        return _is_of_tokens(join(locate(folder)[1], _INDEX))
    path = join(join(folder, _INDEX), "meta.json")
    store, name = locate(path, options)
    with suppress(ObjectNotFoundError):
        return decode_meta(fetch_metadata(store, name), path, folder).kind == _KIND
    return False


def _dataset(index: SampleIndex, folder: str) -> Source:
    from penstock.datasets.tokens._dataset import TokensDataset  # noqa: PLC0415 (only when used)

    dataset = TokensDataset(index)
    if index.meta is None:
        _log.warning(
            "%s does not say of which type its tokens are: uint16 is assumed. If they are not, "
            "open it by TokensDataset.create_from_index_on_filesystem(%r, token_dtype=…)",
            folder,
            folder,
        )
    return dataset


def refuse_several(paths: Sequence[str | os.PathLike[str]], options: StorageOptions) -> None:
    """Raise where one of several paths is a folder of tokens: those are opened one by one."""
    for path in (os.fspath(one) for one in paths):
        is_file = is_pattern(path) or path.lower().endswith((*_RECORDS, _BIN, _IDX))
        if not is_file and _holds_tokens(path, options):
            raise OptionError(
                f"{path} is a folder of tokens, which is opened alone. Put several together by "
                f"penstock.open(…) + penstock.open(…); records beside tokens are named by a "
                f"pattern: {join(path, '*.jsonl')!r}"
            )


def refuse_inside(listing: Listing, options: StorageOptions) -> None:
    """Raise where token files were named themselves, and not the folder above that knows them."""
    names = [found.path for found in listing.files]
    if not names or not all(name.endswith(_BIN) for name in names):
        return
    above = os.path.dirname(names[0])
    for folder in dict.fromkeys((above, os.path.dirname(above))):
        if _holds_tokens(folder, options):
            raise OptionError(
                f"{listing.named[0]} is a part of the tokens in {folder}, whose index tells where "
                f"samples lie. Open that: penstock.open({folder!r})"
            )


def megatron_tokens(
    what: Any, options: StorageOptions, given: Mapping[str, Any] | None
) -> Source | None:
    """Return the documents of a pair of Megatron files, named by one of them or their prefix.

    What is missing or damaged of a pair is told by whoever opens it.
    """
    if not isinstance(what, str | os.PathLike) or is_pattern(os.fspath(what)):
        return None
    from penstock.datasets.megatron._tokens import MegatronTokens, names_pair  # noqa: PLC0415 (rare)

    return MegatronTokens(what, storage_options=given) if names_pair(what, options) else None


def is_of_pair(what: Any) -> bool:
    """Whether a path ends like one of a pair of Megatron files."""
    return isinstance(what, str | os.PathLike) and os.fspath(what).endswith((_BIN, _IDX))


def megatron_pair(
    listing: Listing, options: StorageOptions, given: Mapping[str, Any] | None
) -> Source | None:
    """Return the documents of the only pair of Megatron files in a folder without records."""
    names = {found.path for found in listing.files}
    if listing.folder is None or any(name.lower().endswith(_RECORDS) for name in names):
        return None
    from penstock.datasets.megatron._tokens import MegatronTokens, names_pair  # noqa: PLC0415 (rare)

    ends = [name.removesuffix(_IDX) for name in sorted(names) if name.endswith(_IDX)]
    pairs = [prefix for prefix in ends if f"{prefix}{_BIN}" in names] or ends[:1]
    if not pairs or not names_pair(f"{pairs[0]}{_IDX}", options):
        return None
    if len(pairs) > 1:
        raise OptionError(
            f"{listing.folder} holds {len(pairs):,} pairs of Megatron files. Name one of them, as "
            f"penstock.open({pairs[0] + _BIN!r}), or put several together by open(…) + open(…)."
        )
    return MegatronTokens(f"{pairs[0]}{_BIN}", storage_options=given)


def mds_rows(
    listing: Listing, options: StorageOptions, given: Mapping[str, Any] | None
) -> Source | None:
    """Return the samples of a folder of MDS shards; None where it is none."""
    if listing.folder is None:
        return None
    marker = join(listing.folder, "index.json")
    names = [found.path for found in listing.files]
    has_records = any(name.lower().endswith(_RECORDS) for name in names)
    shards = [] if has_records else [name for name in names if is_shard(name)]
    folder = listing.folder
    if marker not in names:
        if any(os.path.dirname(name) == folder for name in shards):
            raise ObjectNotFoundError(
                f"{marker} is missing, though {shards[0]} is there: an incomplete copy of an MDS "
                "folder. Copy the whole folder again.",
                path=marker,
            )
        return None
    from penstock.datasets.mds._rows import MdsRows, is_mds  # noqa: PLC0415 (rare)

    # One that is damaged is told by whoever opens it.
    is_one = is_mds(folder, options) or shards
    return MdsRows(folder, storage_options=given) if is_one else None
