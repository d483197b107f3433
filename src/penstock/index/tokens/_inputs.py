"""The text files that become tokens: found when it begins, and still the same when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ObjectNotFoundError, OptionError, StaleIndexError
from penstock.index._formats import LINES, format_by_name
from penstock.index._listing import list_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.index._listing import Listing, What
    from penstock.storage import StorageOptions


def text_files(what: What | Sequence[What], options: StorageOptions) -> Listing:
    """Return the JSON Lines files of a path, a folder, a pattern, or a list of those."""
    listing = list_files(what, LINES.endings, options)
    if not listing.files:
        raise ObjectNotFoundError(
            f"{listing.named[0]} holds no JSON Lines files ({', '.join(LINES.endings)}).",
            path=listing.named[0],
        )
    for found in listing.files:
        if format_by_name(found.path) not in (None, LINES):
            raise OptionError(
                f"{found.path} is no JSON Lines file ({', '.join(LINES.endings)}), and nothing "
                "else is tokenised. Write its text as JSON Lines first, as penstock.writer does."
            )
    return listing


def listed_again(listing: Listing, options: StorageOptions) -> Listing:
    """Return the same files as they are now, and those that came."""
    named = listing.named
    return text_files(named if len(named) > 1 else named[0], options)


def refuse_changed(listing: Listing, options: StorageOptions) -> None:
    """Raise where a file is not what it was when it was listed."""
    try:
        now = {found.path: found.entry for found in listed_again(listing, options).files}
    except ObjectNotFoundError as gone:
        raise _changed(str(getattr(gone, "path", "a file")), "it is gone") from None
    for found in listing.files:
        was, entry = found.entry, now.get(found.path)
        if entry is None:
            raise _changed(found.path, "it is gone")
        if entry.size != was.size:
            raise _changed(found.path, f"{was.size:,} bytes then, {entry.size:,} now")
        if entry != was:
            raise _changed(found.path, "it was written anew")


def _changed(path: str, what: str) -> StaleIndexError:
    return StaleIndexError(
        f"{path} changed while it was tokenised ({what}), so nothing is published. Tokenise again "
        "when nobody writes to it.",
        path=path,
    )
