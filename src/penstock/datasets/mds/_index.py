"""The `index.json` of an MDS folder, and the files that are there.

The format is that of MosaicML Streaming 0.13, version 2 of it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from penstock.errors import (
    CorruptFileError,
    ObjectNotFoundError,
    OptionError,
    PenstockError,
    StorageError,
    TruncatedFileError,
)
from penstock.index import Found, Listing, digest, file_fingerprint, format_by_name
from penstock.storage import LocalStore, fetch_metadata, join, locate, path_below

if TYPE_CHECKING:
    import os

    from penstock.storage import Entry, StorageOptions, Store

_SHARD = re.compile(r"\.mds(\.(br|bz2|gz|snappy|zstd))?$")
INDEX = "index.json"
_VERSION = 2
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _ShardFile(msgspec.Struct, frozen=True):
    basename: str
    bytes: _Count
    hashes: dict[str, str] = {}


class _Shard(msgspec.Struct, frozen=True):
    column_names: list[str]
    column_encodings: list[str]
    column_sizes: list[int | None]
    raw_data: _ShardFile
    samples: _Count
    compression: str | None = None
    zip_data: _ShardFile | None = None


class _ShardHead(msgspec.Struct, frozen=True):
    """By what a shard is known, whatever may be wrong with it."""

    raw_data: msgspec.Raw
    samples: msgspec.Raw
    format: str = "mds"
    version: int = _VERSION


class _Index(msgspec.Struct, frozen=True):
    version: int
    shards: list[msgspec.Raw]


class Shard(NamedTuple):
    """One file of samples."""

    file: Found
    """As it is stored."""
    text_bytes: int
    """How large it is uncompressed."""
    samples: int
    compression: str | None
    """How it is compressed, without the level; None: not at all."""

    @property
    def path(self) -> str:
        """The path or URL under which a user knows it."""
        return self.file.path

    @property
    def is_mappable(self) -> bool:
        """Whether it lies on this machine, uncompressed."""
        return isinstance(self.file.store, LocalStore) and self.compression is None


class MdsIndex(NamedTuple):
    """The columns of a folder and its shards, those without samples left out."""

    folder: str
    columns: tuple[tuple[str, str, int | None], ...]
    """Name, encoding and, where all values have one, size in bytes."""
    shards: list[Shard]
    marks: list[list[object]]
    """For each shard the facts that change with it."""

    def fingerprint_of(self, shards: int) -> str:
        """Return the fingerprint of the first shards."""
        return digest(["mds", self.columns, self.marks[:shards]])


def is_mds(path: str | os.PathLike[str], options: StorageOptions | None = None) -> bool:
    """Whether a path is a folder with the `index.json` of MDS shards, if only of none.

    It costs one small read.

    >>> is_mds("no/such/folder")
    False
    """
    store, name = locate(path, options)
    try:
        found = msgspec.json.decode(fetch_metadata(store, join(name, INDEX)), type=_Index)
        for first in found.shards[:1]:
            msgspec.json.decode(first, type=_ShardHead)
    except (StorageError, CorruptFileError, msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


class MdsFolder:
    """A folder of MDS shards, named by its `index.json`."""

    @staticmethod
    def found(
        path: str, listing: Listing | None, options: StorageOptions, index: str | None
    ) -> str | None:
        """Return the folder, where it has an `index.json` of shards, if only a damaged one."""
        del index
        if listing is None or listing.folder is None or INDEX not in listing.top:
            return None
        return path if _shards(listing) or is_mds(listing.folder, options) else None

    @staticmethod
    def problem(listing: Listing, options: StorageOptions) -> PenstockError | None:
        """Return what to do about shards that no `index.json` names."""
        shards = [] if listing.folder is None else _shards(listing)
        if not shards or (INDEX in listing.top and is_mds(str(listing.folder), options)):
            return None
        lacks = f"no {INDEX} that names them"
        if INDEX in listing.top:
            lacks = f"the {INDEX} that names them is damaged"
        return ObjectNotFoundError(
            f"shards of MDS lie here, and {lacks}, first {shards[0]}. Copy the folder again",
            path=join(str(listing.folder), INDEX),
        )


def _shards(listing: Listing) -> list[str]:
    """Return the shards in a folder itself; none where records lie beside them."""
    names = [found.path for found in listing.files]
    if any(map(format_by_name, names)):
        return []
    here = f"{str(listing.folder).rstrip('/')}/"
    return [name for name in names if _SHARD.search(name) and "/" not in name.removeprefix(here)]


def read_mds_index(path: str | os.PathLike[str], options: StorageOptions) -> MdsIndex:
    """Read what a folder holds; each shard must be there and as large as `index.json` says."""
    store, folder = locate(path, options)
    shown = store.path(folder)
    listed = _decoded(fetch_metadata(store, join(folder, INDEX)), join(shown, INDEX))
    columns = _columns_of(listed, join(shown, INDEX))
    # Merged folders have shards in folders of their own.
    is_deep = any(
        "/" in file.basename for one in listed for file in (one.raw_data, one.zip_data) if file
    )
    there = {entry.name: entry for entry in store.list(folder, recursive=is_deep)}
    shards, marks = [], []
    for one in listed:
        if not one.samples:
            continue
        raw = one.raw_data
        shard = _found(store, folder, one, there)
        shards.append(shard)
        marks.append([raw.basename, raw.bytes, one.samples, raw.hashes or _content(shard.file)])
    return MdsIndex(shown, columns, shards, marks)


def _content(found: Found) -> str:
    """Return what changes with a shard without hashes: its ends, or its version in the store."""
    if not isinstance(found.store, LocalStore):  # Of many shards, without a request for each.
        return found.entry.version or str(found.entry.modified)
    with found.open() as file:
        return file_fingerprint(file)


def _decoded(text: bytes, shown: str) -> list[_Shard]:
    try:
        index = msgspec.json.decode(text, type=_Index)
        if index.version != _VERSION:
            raise OptionError(
                f"{shown} is of version {index.version}: only MDS version {_VERSION} is known. "
                "Write the data again with a present mosaicml-streaming."
            )
        shards = []
        for raw in index.shards:
            head = msgspec.json.decode(raw, type=_ShardHead)
            if (head.format, head.version) != ("mds", _VERSION):
                raise OptionError(
                    f"{shown} lists shards of format {head.format!r}, version {head.version}; only "
                    f"'mds' of version {_VERSION} is read. Open files of JSON Lines or CSV "
                    "themselves: penstock.open('FOLDER/*.jsonl')."
                )
            shards.append(msgspec.json.decode(raw, type=_Shard))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        raise CorruptFileError(
            f"{shown} is damaged, or no index of MDS shards: {why}. Copy the folder again, or "
            "write it anew.",
            path=shown,
        ) from None
    return shards


def _columns_of(shards: Sequence[_Shard], shown: str) -> tuple[tuple[str, str, int | None], ...]:
    found: tuple[tuple[str, str, int | None], ...] = ()
    for one in shards:
        names, kinds, sizes = one.column_names, one.column_encodings, one.column_sizes
        if not len({*names}) == len(names) == len(kinds) == len(sizes):
            raise CorruptFileError(
                f"{shown}: the columns of {one.raw_data.basename} do not fit each other. Write the "
                "folder anew.",
                path=shown,
            )
        own = tuple(zip(names, kinds, sizes, strict=True))
        if found and own != found:
            these, those = (
                ", ".join(f"{name}: {kind}" for name, kind, _ in columns) or "none"
                for columns in (own, found)
            )
            raise OptionError(
                f"{shown}: {one.raw_data.basename} has other columns than the shards before it "
                f"({these}; before: {those}). Write shards of one kind to a folder."
            )
        found = own
    return found


def _found(store: Store, folder: str, shard: _Shard, there: dict[str, Entry]) -> Shard:
    """Return a shard as it is stored: plain where that is there, else compressed."""
    raw, packed = shard.raw_data, shard.zip_data
    kinds: list[tuple[_ShardFile, str | None]] = [(raw, None)]
    if packed is not None and shard.compression is not None:
        kinds.append((packed, shard.compression.partition(":")[0]))
    for file, compression in kinds:
        entry = there.get(_inside(store, folder, file.basename))
        if entry is None:
            continue
        if entry.size != file.bytes:
            path = store.path(entry.name)
            kind = TruncatedFileError if entry.size < file.bytes else CorruptFileError
            raise kind(
                f"{path} has {entry.size:,} bytes, and {INDEX} says {file.bytes:,}. Copy it again.",
                path=path,
            )
        return Shard(Found(store, entry), raw.bytes, shard.samples, compression)
    missing = kinds[-1][0].basename
    path = store.path(_inside(store, folder, missing))
    raise ObjectNotFoundError(
        f"{INDEX} lists {missing}, which is not in {store.path(folder)}. Copy the whole folder "
        "again; the cache of a StreamingDataset holds only what it has read.",
        path=path,
    )


def _inside(store: Store, folder: str, basename: str) -> str:
    """Return the name of a shard; one that leaves the folder is refused."""
    if path_below(folder, basename) is None:
        raise OptionError(
            f"{INDEX} of {store.path(folder)} names {basename!r}, which is not in that folder. "
            "This index is not followed."
        )
    return join(folder, posixpath.normpath(basename))
