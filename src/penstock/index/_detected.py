"""What lies at a path: a format, its files, and how an index of them is made."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Protocol

from penstock._words import counted, few, warn_once
from penstock.index._formats import load
from penstock.index._listing import Found, Listing, What, places_of
from penstock.index._open_index import exists
from penstock.index._splits import doubts_about

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.index._formats import Format
    from penstock.index._listing import IndexPlace
    from penstock.index._meta import Meta
    from penstock.index._scan import Scanner
    from penstock.storage import StorageOptions

_log = logging.getLogger("penstock.datasets")
_SHOWN = 5


class FolderFormat(Protocol):
    """What a row names as its `folder`: a format of several files."""

    @staticmethod
    def found(
        path: str, listing: Listing | None, options: StorageOptions, index: str | None
    ) -> str | None:
        """Return the path that opens what lies at `path`; None where that is another format.

        Without a listing there is nothing of that name. `index` is the folder of an index.
        """

    @staticmethod
    def problem(listing: Listing, options: StorageOptions) -> PenstockError | None:
        """Return what is missing where only parts of this format lie; None where none do."""


@dataclass(frozen=True)
class Detected:
    """A format, and the files that a path names."""

    what: What | Sequence[What]
    """The path, or paths, that open it."""
    format: Format
    listing: Listing
    """The files of this format; all files where they are one only together."""
    options: StorageOptions
    index: str | None = None
    """The folder of the index, where one was named."""
    trouble: PenstockError | None = None
    """Why `penstock.open` does not open it."""
    problem: PenstockError | None = None
    """The same, where parts of a format lie there and others are missing."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Options of the scanner that the caller chose; the others are found, or those of an index."""
    others: Sequence[Found] = ()
    """The files that a folder holds, or a pattern matches, and the source leaves out."""
    split: str | None = None
    """What chooses among the files of `what` by their names."""

    def scanner(
        self, made_with: Mapping[str, object] | None = None, *, anew: bool = False
    ) -> Scanner:
        """Return what finds the records; `made_with` are the options of an existing index.

        What only a new index guesses is that of the index that is there, except `anew`.
        """
        if made_with is not None:
            return self.format.scanner_for({**made_with, **self.given})
        there = None if anew or not self._may_guess else self._indexed_scanner
        return there or self._new_scanner

    def places(self, scanner: Scanner) -> list[IndexPlace]:
        """Return where the index may lie, the place of a new one first."""
        return places_of(self.listing, scanner, self.options, self.index)

    @cached_property
    def _found_options(self) -> dict[str, object]:
        row = self.format.dialect
        found: dict[str, object] = load(row)(self.listing.files, self.given) if row else {}
        return found | dict(self.given)

    @cached_property
    def _new_scanner(self) -> Scanner:
        scanner, guess = self.format.scanner_for(self._found_options), self.format.guess
        if guess is None or not self._may_guess:
            return scanner
        guessed = load(guess)(self.listing.files, scanner, self.given)
        return self.format.scanner_for({**self._found_options, **guessed})

    @property
    def _may_guess(self) -> bool:
        """Whether a new index may have something that no one gave, and that is no dialect."""
        guessed = self.format.guessed
        return bool(guessed) and guessed[0].keys().isdisjoint(self.given)

    @cached_property
    def _indexed_scanner(self) -> Scanner | None:
        """The scanner whose index is there; None where those of several guesses are, or none."""
        there: dict[str, Scanner] = {}
        is_there = cache(exists)  # Which may be a request.
        for guessed in self.format.guessed:
            scanner = self.format.scanner_for({**guessed, **self._found_options})
            place = next(filter(is_there, self.places(scanner)), None)
            if place is not None:
                there.setdefault(place.folder, scanner)
        return next(iter(there.values())) if len(there) == 1 else None

    def left_out(self) -> str:
        """Return the files that are left out, for people; "" where there are none."""
        if not self.others:
            return ""
        below = f"{self.listing.base.rstrip('/')}/"
        names = few([one.path.removeprefix(below) for one in self.others], _SHOWN)
        return f"{counted(len(self.others), 'file')} not read as {self.format.title}: {names}"

    def warn_of_unguessed(self, meta: Meta | None) -> None:
        """Log what a guess would not have made of an index that was there."""
        if self.format.doubt is not None and self._may_guess:
            load(self.format.doubt)(meta)

    def warn_of_left_out(self) -> None:
        """Log the files that are left out, in one line."""
        if self.others:
            warn_once(_log, f"{self.listing.named[0]}: {self.left_out()}")

    def warn_of_splits_and_copies(self) -> None:
        """Log what may not be meant, a line each: several splits, files that hold the same."""
        for doubt in () if self.format.folder else doubts_about(self.listing):
            warn_once(_log, f"{self.listing.named[0]}: {doubt}")

    def by_files(self) -> Detected:
        """Return the same files, named one by one: a folder would be listed by endings."""
        return replace(self, what=[one.path for one in self.listing.files], split=None)

    def checked(self) -> Detected:
        """Return this, or raise where it does not open."""
        if self.trouble is not None:
            raise self.trouble
        return self
