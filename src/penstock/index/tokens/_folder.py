"""Whether a path is a folder of tokens, or a part of one."""

from __future__ import annotations

import os
from contextlib import suppress

from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError, PenstockError
from penstock.index._folder import refuse_put_aside
from penstock.index._listing import INDEX_FOLDER, Listing, place_beside
from penstock.index._load import kind_in, meta_of
from penstock.index._names import TOKEN_FOLDER, rebuilding
from penstock.storage import StorageOptions, entry_at, hidden_beside, is_remote, join, locate

_KIND = "tokens"
_BIN = ".bin"


class TokenFolder:
    """A folder whose index is one of tokens; the records that they were made of may lie beside."""

    @staticmethod
    def found(
        path: str, listing: Listing | None, options: StorageOptions, index: str | None
    ) -> str | None:
        if listing is None or listing.folder is None:
            if listing is not None:
                _refuse_parts(listing, options)
            return None
        folder = listing.folder
        if listing.is_remote or (index is not None and is_remote(index)):
            # The index beside the data decides, whatever this machine has in its cache.
            if index is None and INDEX_FOLDER in listing.top and _is_of_tokens(folder, options):
                return path
        else:
            place = join(folder, INDEX_FOLDER) if index is None else locate(index)[1]
            if _is_index_of_tokens(place):
                return path
            refuse_put_aside(place)
        _refuse_parts(listing, options)
        return None

    @staticmethod
    def problem(listing: Listing, options: StorageOptions) -> PenstockError | None:
        folder = listing.folder
        if folder is None or TOKEN_FOLDER not in listing.top or _is_of_tokens(folder, options):
            return None
        place = join(folder, INDEX_FOLDER)
        if not listing.is_remote:
            try:
                kind_in(place)
            except CorruptIndexError as damaged:
                return damaged
            except ObjectNotFoundError:
                pass
        remedy = f"Tokenise again: {rebuilding(folder, tokens=True)}"
        if not listing.is_remote and hidden_beside(place, "tmp"):
            remedy = (
                "A run was killed here: the same command goes on with it, and penstock clean "
                f"{folder} brings back what was there before"
            )
        return ObjectNotFoundError(
            f"{folder} holds token files, but no index that names them. {remedy}", path=place
        )


def _refuse_parts(listing: Listing, options: StorageOptions) -> None:
    """Raise where token files were named, and not the folder above, whose index knows them."""
    names = [found.path for found in listing.files]
    if not names or not all(name.endswith(_BIN) for name in names):
        return
    if entry_at(*locate(f"{names[0].removesuffix(_BIN)}.idx", options)) is not None:
        return  # A pair of Megatron-LM.
    above = os.path.dirname(names[0])
    for folder in dict.fromkeys((above, os.path.dirname(above))):
        if _is_of_tokens(folder, options):
            raise OptionError(
                f"{listing.named[0]} is a part of the tokens in {folder}, which its index opens. "
                f"Open that: penstock.open({folder!r})"
            )


def _is_of_tokens(folder: str, options: StorageOptions) -> bool:
    """Whether a folder, local or remote, has an index of tokens beside its files."""
    if not is_remote(folder):
        return _is_index_of_tokens(join(locate(folder)[1], INDEX_FOLDER))
    with suppress(ObjectNotFoundError):
        meta = meta_of(place_beside(folder, options))
        return meta is not None and meta.kind == _KIND
    return False


def _is_index_of_tokens(place: str) -> bool:
    """Whether there is an index of tokens in a folder on this machine."""
    with suppress(ObjectNotFoundError, CorruptIndexError):  # Opening it says what is wrong.
        return kind_in(place) == _KIND
    return False
