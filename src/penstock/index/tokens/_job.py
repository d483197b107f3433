"""What is to be tokenised, how and where to; and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import OptionError
from penstock.index._names import refuse_unnamable
from penstock.index.tokens._files import token_file_names
from penstock.index.tokens._inputs import listed_again
from penstock.index.tokens._journal import Reach
from penstock.storage import is_remote, join

if TYPE_CHECKING:
    import logging

    from penstock.index._index_store import IndexStoreInterface
    from penstock.index._listing import Listing
    from penstock.index._place import Place
    from penstock.index.tokens._documents import TokenWork
    from penstock.index.tokens._pack import PackOptions
    from penstock.storage import StorageOptions
    from penstock.work import View


@dataclass(frozen=True, slots=True)
class TokenReport:
    """What became of text files."""

    documents: int
    tokens: int
    """In all samples: with those that end documents, without those that fill up."""
    samples: int
    dropped: int
    """Tokens behind the last full sample."""
    padding: int
    """Tokens that only fill up."""
    bad_documents: int
    """Lines that were set aside."""
    files: int
    """Token files: as many as text files."""
    seconds: float


@dataclass(frozen=True, slots=True)
class TokenJob:
    """What is to be done."""

    listing: Listing
    options: StorageOptions
    """For these files."""
    work: TokenWork
    pack: PackOptions
    place: Place
    """Of the index; where a user has one of his own, the place beside which we work."""
    folder: str
    """Of the token files."""
    names: list[str]
    """Of the token files in it, one for each text file."""
    postfix: str
    """What stands behind the name of a text file there."""
    store: IndexStoreInterface | None
    """A user's own index."""
    workers: int | None
    overwrite: bool
    progress: bool | View | None
    unit_bytes: int
    """Text that a process takes at a time."""
    log: logging.Logger

    @property
    def paths(self) -> list[str]:
        """Of the token files."""
        return [join(self.folder, name) for name in self.names]

    @property
    def reach(self) -> Reach:
        """What it changes."""
        return Reach(self.place.folder, (self.place.base, self.folder), self.place.options)

    def of_now(self) -> TokenJob:
        """Return the same job for the text files that there are now."""
        return replace(self, listing=listed_again(self.listing, self.options)).checked()

    def checked(self) -> TokenJob:
        """Return the job with the names of its token files, or say what cannot work."""
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
