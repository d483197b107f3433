"""The two files of a Megatron-LM dataset, and whether a path names them."""

from __future__ import annotations

import itertools
import os
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.datasets.megatron._index import MAGIC, map_index
from penstock.errors import (
    ObjectNotFoundError,
    OptionError,
    PenstockError,
    StorageError,
    TruncatedFileError,
)
from penstock.index import Found, digest, file_fingerprint, format_by_name
from penstock.storage import is_pattern, is_remote, locate

if TYPE_CHECKING:
    from penstock.index import Listing
    from penstock.storage import StorageOptions

BIN, IDX = ".bin", ".idx"
_openings = itertools.count()


def names_pair(path: str | os.PathLike[str], options: StorageOptions | None = None) -> bool:
    """Whether a path names a dataset, also one of which a file is missing or damaged.

    A `.bin` that is named may be anything, so that there must be an `.idx` with it; a prefix,
    which is no file itself, can be nothing else.
    """
    prefix, is_named = prefix_of(path)
    if is_remote(prefix) and not is_named:
        return False
    if _begins_like_idx(prefix, options):
        return True
    is_pair = not is_named or _is_there(f"{prefix}{IDX}", options)
    return is_pair and _is_there(f"{prefix}{BIN}", options)


def _is_there(path: str, options: StorageOptions | None) -> bool:
    store, name = locate(path, options)
    try:
        return bool(store.entry(name))
    except StorageError:
        return False


def _begins_like_idx(prefix: str, options: StorageOptions | None) -> bool:
    store, name = locate(f"{prefix}{IDX}", options)
    try:
        with closing(store.open(name)) as file:
            return bool(file.size) and file.read_at(0, min(len(MAGIC), file.size)) == MAGIC
    except StorageError:
        return False


class MegatronPair:
    """A `.bin` and an `.idx` of one name, named by one of them, by their prefix or by a folder."""

    @staticmethod
    def found(
        path: str, listing: Listing | None, options: StorageOptions, index: str | None
    ) -> str | None:
        """Return one of the two files, or their prefix; raise where the `.bin` is missing."""
        del index
        if is_pattern(path) or (listing is not None and listing.is_pattern):
            return None
        if listing is None or listing.folder is None:
            if not names_pair(path, options):
                return None
            prefix = prefix_of(path)[0]
            _found(f"{prefix}{BIN}", prefix, options)
            return path
        names = {found.path for found in listing.files}
        ends = [name.removesuffix(IDX) for name in sorted(names) if name.endswith(IDX)]
        pairs = [prefix for prefix in ends if f"{prefix}{BIN}" in names] or ends[:1]
        if not pairs or any(map(format_by_name, names)):
            return None
        if not names_pair(f"{pairs[0]}{IDX}", options):
            return None
        if len(pairs) > 1:
            raise OptionError(
                f"{listing.folder} holds {len(pairs):,} pairs of Megatron files. Name one of them, "
                f"as penstock.open({pairs[0] + BIN!r}), or put several together by open(…) + "
                "open(…)."
            )
        return f"{pairs[0]}{BIN}"

    @staticmethod
    def problem(listing: Listing, options: StorageOptions) -> PenstockError | None:
        """Return what to do about a `.bin` without its `.idx`, which may be anything else."""
        names = [found.path for found in listing.files]
        first = next((name for name in names if name.endswith(BIN)), None)
        if first is None or any(map(format_by_name, names)):
            return None
        other = f"{first.removesuffix(BIN)}{IDX}"
        if _is_there(other, options):
            return None
        return OptionError(
            f"cannot tell what {first} holds. If it is of Megatron-LM its {IDX} is missing: there "
            f"is no {other}. Copy both."
        )


class MegatronFiles:
    """The two files, as they are now."""

    def __init__(self, prefix: str, options: StorageOptions) -> None:
        self.opening = next(_openings)
        self.bin, idx = (_found(f"{prefix}{end}", prefix, options) for end in (BIN, IDX))
        self.index = map_index(idx, options)
        size = self.bin.entry.size
        if self.index.is_cut_at(size):
            raise TruncatedFileError(
                f"{self.bin.path} is cut off: it has {size:,} bytes, and the sequences of "
                f"{idx.path} end at byte {self.index.end:,}. Copy it again.",
                path=self.bin.path,
            )
        self.index.check_ends(size)
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
