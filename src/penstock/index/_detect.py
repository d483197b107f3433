"""Which format lies at a path: by one listing, by the names in it, or by a file's first bytes."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ObjectNotFoundError, OptionError
from penstock.index._formats import (
    LINES,
    folder_formats,
    format_by_bytes,
    known_endings,
    load,
    record_formats,
)
from penstock.index._listing import Listing, joined, list_files
from penstock.storage import StorageOptions, is_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.errors import PenstockError
    from penstock.index._formats import Format
    from penstock.index._listing import Found, What
    from penstock.index._scan import Scanner

_log = logging.getLogger("penstock.datasets")
_HEAD_BYTES = 64


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


@dataclass(frozen=True, slots=True)
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

    def scanner(self, made_with: Mapping[str, object] | None = None) -> Scanner:
        """Return what finds the records; `made_with` are the options of an existing index."""
        files = self.listing.files if self.format.suffix_options else ()
        return self.format.scanner_for([found.entry.name for found in files], made_with)

    def checked(self) -> Detected:
        """Return this, or raise where it does not open."""
        if self.trouble is not None:
            raise self.trouble
        return self


def look_at(
    what: What | Sequence[What],
    options: StorageOptions | None = None,
    index: str | os.PathLike[str] | None = None,
) -> Detected:
    """Return which format lies at a path, a pattern or a list of those.

    Of several formats the first in the table is taken, and a folder without records has lines, of
    which there are none: `checked` raises for both.
    """
    options = StorageOptions() if options is None else options
    if isinstance(what, list | tuple) and len(what) == 1:
        (what,) = what
    folder = None if index is None else os.fspath(index)
    if not isinstance(what, str | os.PathLike):
        return _of_records(Detected(what, LINES, _several([*what], options), options, folder))
    path = os.fspath(what)
    try:
        listing = list_files(path, (), options)
    except ObjectNotFoundError:
        unlisted = Listing((path,), None, os.path.dirname(path), [])
        at_path = Detected(path, LINES, unlisted, options, folder)
        found = None if is_pattern(path) else _together(at_path, folder_formats(), None)
        if found is None:
            raise
        return found
    at_path = Detected(path, LINES, listing, options, folder)
    return _together(at_path, _marked(at_path), listing) or _of_records(at_path)


def problems_of(listing: Listing, options: StorageOptions) -> list[PenstockError]:
    """Return what is missing where only parts of a format lie."""
    problems = (load(str(row.folder)).problem(listing, options) for row in folder_formats())
    return [problem for problem in problems if problem is not None]


def _marked(at_path: Detected) -> list[Format]:
    """Return the formats of several files that may lie in a folder, with records beside them."""
    has_index = at_path.index is not None and at_path.listing.folder is not None
    return [
        row
        for row in folder_formats()
        if not at_path.listing.top.isdisjoint(row.marks) or (row.has_index and has_index)
    ]


def _together(
    at_path: Detected, rows: Sequence[Format], listing: Listing | None
) -> Detected | None:
    """Return the format of files that are one together; None where they are not."""
    path, index = at_path.what if isinstance(at_path.what, str) else "", at_path.index
    for row in rows:
        opens: str | None = load(str(row.folder)).found(path, listing, at_path.options, index)
        if opens is not None:
            if index is not None and not row.has_index:
                text = f"index={index!r}: {row.title} has no index of Penstock. Leave it out."
                raise OptionError(text)
            return replace(at_path, what=opens, format=row)
    return None


def _several(paths: Sequence[What], options: StorageOptions) -> Listing:
    """Return the files of several paths; raise for a folder that only opens alone."""
    parts = [list_files(path, (), options) for path in paths]
    for part in parts:
        at_path = Detected(str(part.folder), LINES, part, options)
        found = _together(at_path, _marked(at_path), part)
        if found is not None:
            raise OptionError(
                f"{part.folder} is a folder of {found.format.title}, which is opened alone. Put "
                "several together by penstock.open(…) + penstock.open(…); records beside it are "
                f"named by a pattern: {found.what}/*{LINES.suffixes[0]}"
            )
    return joined(parts)


def _of_records(at_path: Detected) -> Detected:
    """Return the format of the files with records."""
    listing = at_path.listing
    groups: dict[Format, list[Found]] = {row: [] for row in record_formats()}
    endings = [(row.endings, group) for row, group in groups.items()]
    others: list[Found] = []
    for found in listing.files:  # Of which there may be millions.
        name = found.entry.name.lower()
        for ends, group in endings:
            if name.endswith(ends):
                group.append(found)
                break
        else:
            others.append(found)
    present = {row: group for row, group in groups.items() if group}
    if not present:
        return _without_records(at_path)
    row, *more = present
    files, trouble = present[row], None
    if more:
        trouble = _several_formats(present, listing)
    elif others and listing.is_pattern:
        are = "file is" if len(others) == 1 else "files are"
        text = f"%s: %d {are} no %s, first %s"
        _log.warning(text, listing.named[0], len(others), row.title, others[0].path)
    elif others and listing.folder is None:
        text = f"{others[0].path} is named beside {files[0].path}, but is another format."
        trouble = OptionError(text)
    return replace(at_path, format=row, listing=replace(listing, files=files), trouble=trouble)


def _several_formats(present: Mapping[Format, list[Found]], listing: Listing) -> PenstockError:
    held = " and ".join(f"{len(files):,} of {row.title}" for row, files in present.items())
    if listing.folder is None and not listing.is_pattern:
        return OptionError(f"the files named are {held}; a source has one format.")
    example = f"{listing.base.rstrip('/')}/**/*{next(iter(present)).suffixes[0]}"
    shown = listing.folder or listing.named[0]
    return OptionError(f"{shown} holds {held}. Choose by a pattern: {example!r}")


def _without_records(at_path: Detected) -> Detected:
    """Return the format of files whose names are of no format with records."""
    listing = at_path.listing
    asked = [row for row in folder_formats() if isinstance(at_path.what, str) or row.has_index]
    found = _together(at_path, asked, listing)
    if found is not None:
        return found
    first = listing.files[0] if listing.files else None
    row = None if first is None or listing.folder is not None else _by_first_bytes(first)
    if row is not None:
        # Names that say nothing are given one by one: a pattern would be listed by its endings.
        each = [one.path for one in listing.files] if listing.is_pattern else at_path.what
        return replace(at_path, what=each, format=row)
    problem = next(iter(problems_of(listing, at_path.options)), None)
    if first is None:
        shown = listing.folder or listing.named[0]
        other: PenstockError = ObjectNotFoundError(
            f"{shown} holds no files with records.", path=shown
        )
    else:
        text = f"cannot tell what {first.path} holds: its name ends in none of {known_endings()}."
        other = OptionError(text)
    kept = listing if listing.folder is None else replace(listing, files=[])
    return replace(at_path, listing=kept, trouble=problem or other, problem=problem)


def _by_first_bytes(found: Found) -> Format | None:
    if not found.entry.size:
        return None
    with found.open() as file:
        return format_by_bytes(file.read_at(0, min(_HEAD_BYTES, file.size)))
