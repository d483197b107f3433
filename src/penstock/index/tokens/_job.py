"""A job of tokenising: its text files, how they become tokens, where these go, the report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import ObjectNotFoundError, OptionError, StaleIndexError
from penstock.index._formats import LINES, format_by_name
from penstock.index._listing import list_files
from penstock.index._names import refuse_unnamable
from penstock.index.tokens._files import token_file_names
from penstock.index.tokens._journal import Reach
from penstock.storage import is_remote, join

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence

    from penstock.index._index_store import IndexStoreInterface
    from penstock.index._listing import Listing, What
    from penstock.index._place import IndexPlace
    from penstock.index.tokens._documents import TokenWork
    from penstock.index.tokens._pack import PackOptions
    from penstock.storage import StorageOptions
    from penstock.work import View


@dataclass(frozen=True, slots=True)
class TokenReport:
    """Counts of a finished job."""

    documents: int
    tokens: int
    """In all samples, end-of-document tokens included, padding not."""
    samples: int
    dropped: int
    """Tokens behind the last full sample."""
    padding: int
    """Tokens that fill samples up."""
    bad_documents: int
    """Lines set aside."""
    files: int
    """Token files: as many as text files."""
    seconds: float


@dataclass(frozen=True, slots=True)
class TokenJob:
    """Text files, and how and where to they are tokenised."""

    listing: Listing
    options: StorageOptions
    """For these files."""
    work: TokenWork
    pack: PackOptions
    place: IndexPlace
    """Of the index; with a user's own index store, the place beside which the work folder lies."""
    folder: str
    """Of the token files."""
    names: list[str]
    """Of the token files in it, one for each text file."""
    postfix: str
    """Stands behind the name of the text file."""
    store: IndexStoreInterface | None
    """A user's own index store."""
    workers: int | None
    overwrite: bool
    progress: bool | View | None
    unit_bytes: int
    """Text of a unit, at most."""
    log: logging.Logger

    @property
    def paths(self) -> list[str]:
        """Of the token files."""
        return [join(self.folder, name) for name in self.names]

    @property
    def reach(self) -> Reach:
        """The folders that the job changes."""
        return Reach(self.place.folder, (self.place.base, self.folder), self.place.options)

    def of_now(self) -> TokenJob:
        """Return the job for the text files as they are now."""
        return replace(self, listing=_listed_again(self.listing, self.options)).checked()

    def checked(self) -> TokenJob:
        """Return the job with the names of its token files, or raise what cannot work."""
        relative = [*map(self.listing.relative, self.listing.files)]
        job = replace(self, names=token_file_names(relative, self.postfix))
        if job.store is None:
            for path in job.paths:
                refuse_unnamable(path.removeprefix(job.place.base.rstrip("/") + "/"))
        if job.overwrite and is_remote(job.folder):
            raise OptionError(
                f"overwrite=True: tokens in {job.folder} cannot be replaced as a whole, for there "
                "objects cannot be put aside. Remove them and their index, or give another folder: "
                "output_base_path="
            )
        return job


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


def _listed_again(listing: Listing, options: StorageOptions) -> Listing:
    """List the files again, with new ones."""
    named = listing.named
    return text_files(named if len(named) > 1 else named[0], options)


def refuse_changed(listing: Listing, options: StorageOptions) -> None:
    """Raise if a file changed since it was listed."""
    try:
        now = {found.path: found.entry for found in _listed_again(listing, options).files}
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
        "when it is complete.",
        path=path,
    )
