"""The two files of a Megatron-LM dataset, and whether a path names them."""

from __future__ import annotations

import itertools
import os
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.datasets._megatron_index import MAGIC, map_index
from penstock.errors import ObjectNotFoundError, StorageError, TruncatedFileError
from penstock.index import Found, digest, file_fingerprint
from penstock.storage import is_remote, locate

if TYPE_CHECKING:
    from penstock.storage import StorageOptions

BIN, IDX = ".bin", ".idx"
_openings = itertools.count()


def is_megatron(path: str | os.PathLike[str], options: StorageOptions | None = None) -> bool:
    """Whether a path is the `.bin`, the `.idx` or the prefix of a Megatron-LM dataset.

    A remote prefix must have one of the endings: nobody is asked about others.

    >>> is_megatron("no/such/corpus.bin")
    False
    """
    prefix, is_named = prefix_of(path)
    if is_remote(prefix) and not is_named:
        return False
    store, name = locate(f"{prefix}{IDX}", options)
    try:
        with closing(store.open(name)) as file:
            begin = file.read_at(0, min(len(MAGIC), file.size)) if file.size else b""
        return begin == MAGIC and bool(store.entry(locate(f"{prefix}{BIN}", options)[1]))
    except StorageError:
        return False


class MegatronFiles:
    """The two files, as they are now."""

    def __init__(self, prefix: str, options: StorageOptions) -> None:
        self.opening = next(_openings)
        self.bin, idx = (_found(f"{prefix}{end}", prefix, options) for end in (BIN, IDX))
        self.index = map_index(idx, options)
        if self.index.end > self.bin.entry.size:
            raise TruncatedFileError(
                f"{self.bin.path} is cut off: it has {self.bin.entry.size:,} bytes, and the "
                f"sequences of {idx.path} end at byte {self.index.end:,}. Copy it again.",
                path=self.bin.path,
            )
        self.fingerprint = digest(["megatron", *map(_print, (idx, self.bin))])


def _found(path: str, prefix: str, options: StorageOptions) -> Found:
    store, name = locate(path, options)
    try:
        return Found(store, store.entry(name))
    except ObjectNotFoundError:
        raise ObjectNotFoundError(
            f"there is no {path}: a Megatron-LM dataset is {prefix}{BIN} and {prefix}{IDX}. "
            "Copy both.",
            path=path,
        ) from None


def _print(found: Found) -> str:
    if not found.entry.size:
        return ""
    with closing(found.store.open(found.entry.name, found.entry)) as file:
        return file_fingerprint(file)


def prefix_of(path: str | os.PathLike[str]) -> tuple[str, bool]:
    """Return the prefix of both files, and whether one of them was named."""
    text = os.fspath(path)
    for end in (BIN, IDX):
        if text.endswith(end):
            return text.removesuffix(end), True
    return text, False
