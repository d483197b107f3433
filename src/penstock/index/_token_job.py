"""What is to be tokenised, how and where to; and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.storage import join

if TYPE_CHECKING:
    import logging

    from penstock.index._index_store import IndexStoreInterface
    from penstock.index._listing import Listing
    from penstock.index._place import Place
    from penstock.index._token_documents import TokenWork
    from penstock.index._token_pack import PackOptions
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
    work: TokenWork
    pack: PackOptions
    place: Place
    """Of the index; where a user has one of his own, the place beside which we work."""
    folder: str
    """Of the token files."""
    names: list[str]
    """Of the token files in it, one for each text file."""
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
