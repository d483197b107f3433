"""Which format lies at a path: by one listing, by the names in it, or by a file's first bytes."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from penstock._words import counted, few, warn_once
from penstock.errors import (
    MalformedLineError,
    ObjectNotFoundError,
    OptionError,
    PenstockError,
)
from penstock.index._formats import (
    FORMATS,
    LINES,
    folder_formats,
    format_by_name,
    format_named,
    known_endings,
    load,
    record_formats,
)
from penstock.index._heads import format_by_head, head_of, open_by_name
from penstock.index._lakes import refuse_lakes
from penstock.index._listing import Found, Listing, What, joined, list_each, list_files
from penstock.index._splits import doubts_about
from penstock.jsonl import without_compression
from penstock.storage import StorageOptions, is_pattern, without_query

if TYPE_CHECKING:
    from penstock.index._formats import Format
    from penstock.index._scan import Scanner

_log = logging.getLogger("penstock.datasets")
_SHOWN = 5
_LOOKED_AT = 16
"""Files whose first bytes are asked for; those without any, also compressed, say nothing."""


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

    def scanner(self, made_with: Mapping[str, object] | None = None) -> Scanner:
        """Return what finds the records; `made_with` are the options of an existing index."""
        options = self._found_options if made_with is None else made_with
        return self.format.scanner_for({**options, **self.given})

    @cached_property
    def _found_options(self) -> dict[str, object]:
        row = self.format.dialect
        found: dict[str, object] = load(row)(self.listing.files, self.given) if row else {}
        return found

    def left_out(self) -> str:
        """Return the files that are left out, for people; "" where there are none."""
        if not self.others:
            return ""
        below = f"{self.listing.base.rstrip('/')}/"
        names = few([one.path.removeprefix(below) for one in self.others], _SHOWN)
        return f"{counted(len(self.others), 'file')} not read as {self.format.title}: {names}"

    def warn_of_left_out(self) -> None:
        """Log the files that are left out, in one line."""
        if self.others:
            warn_once(_log, f"{self.listing.named[0]}: {self.left_out()}")

    def warn_of_doubts(self) -> None:
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


def look_at(  # noqa: PLR0913 (options, given by name)
    what: What | Sequence[What],
    options: StorageOptions | None = None,
    index: str | os.PathLike[str] | None = None,
    *,
    format_name: str | None = None,
    format_options: Mapping[str, Any] | None = None,
    split: str | None = None,
) -> Detected:
    """Return what lies at a path, a pattern or a list of those, with the options of its format.

    `format_name` is the format of all files there, whatever their names and first bytes say;
    `split` chooses among the files by their names.
    """
    options = StorageOptions() if options is None else options
    folder = None if index is None else os.fspath(index)
    if format_name is None:
        found = _detected(what, options, folder, split)
    else:
        found = _named_format(format_name, what, options, folder, split)
    files = found.listing.files
    is_guess = bool(files) and not found.format.names(files[0].entry.name)
    if found.trouble is not None or (is_guess and found.listing.folder is not None):
        refuse_lakes(found.listing, options, found.others)
    if found.listing.left_out:
        found = replace(found, others=[*found.listing.left_out, *found.others])
    if not format_options:
        return found
    found.format.check_options(format_options)
    given = {name: value for name, value in format_options.items() if value != "auto"}
    return replace(found, given=given)


def _named_format(
    name: str,
    what: What | Sequence[What],
    options: StorageOptions,
    index: str | None,
    split: str | None,
) -> Detected:
    """Return the files at a path as those of one row of the table."""
    row = format_named(name)
    if row is None:
        known = ", ".join(row.name for row in FORMATS)
        raise OptionError(f"format={name!r}: there is no such format; there are: {known}.")
    listing = list_files(what, (), options, split)
    at_path = Detected(what, row, listing, options, index, split=split)
    if row.folder is not None:
        found = _together(replace(at_path, what=listing.named[0]), [row], listing)
        if found is None:
            raise OptionError(f"format={name!r}: {listing.named[0]} holds no {row.title}.")
        return found
    files = [one for one in listing.files if row.names(one.entry.name)]
    others = [one for one in listing.files if not row.names(one.entry.name)]
    if listing.folder is None or not files:
        files, others = listing.files, []
    if not files:
        text = f"{listing.named[0]} holds no files with records."
        return replace(at_path, trouble=ObjectNotFoundError(text, path=listing.named[0]))
    at_path = replace(at_path, listing=replace(listing, files=files), others=others)
    return at_path if all(row.names(one.entry.name) for one in files) else at_path.by_files()


def _detected(
    what: What | Sequence[What], options: StorageOptions, index: str | None, split: str | None
) -> Detected:
    """Return which format lies at a path.

    Of several formats the first in the table is taken, and a folder without records has lines, of
    which there are none: `checked` raises for both.
    """
    if isinstance(what, list | tuple) and len(what) == 1:
        (what,) = what
    if not isinstance(what, str | os.PathLike):
        several = _several([*what], options, split)
        return _of_records(Detected(what, LINES, several, options, index, split=split))
    path = os.fspath(what)
    try:
        listing = list_files(path, (), options, split)
    except ObjectNotFoundError:
        unlisted = Listing((path,), None, os.path.dirname(path), [])
        at_path = Detected(path, LINES, unlisted, options, index)
        found = None if is_pattern(path) else _together(at_path, folder_formats(), None)
        if found is None:
            raise
        return found
    at_path = Detected(path, LINES, listing, options, index, split=split)
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


def _several(paths: Sequence[What], options: StorageOptions, split: str | None) -> Listing:
    """Return the files of several paths; raise for a folder that only opens alone."""
    parts = list_each(paths, (), options)
    for part in parts:
        at_path = Detected(str(part.folder), LINES, part, options)
        found = _together(at_path, _marked(at_path), part)
        if found is not None:
            raise OptionError(
                f"{part.folder} is a folder of {found.format.title}, which is opened alone. Put "
                f"several together by penstock.open(…) + penstock.open(…).{records_beside(part)}"
            )
    return joined(parts, split)


def pattern_of(listing: Listing, files: Sequence[Found]) -> str:
    """Return a pattern that matches the first of some files, and those with the same ending."""
    name = files[0].entry.name
    ends = (end for row in open_by_name(name) for end in row.endings)
    ending = max((end for end in ends if name.lower().endswith(end)), key=len, default="")
    stars = "**/*" if any("/" in listing.relative(one) for one in files) else "*"
    base = glob.escape(listing.base.rstrip("/"))
    return f"{base}/{stars}{name[len(name) - len(ending) :]}"


def records_beside(listing: Listing) -> str:
    """Return how records that lie beside files of another kind are named; "" without any."""
    files = [one for one in listing.files if format_by_name(one.entry.name)]
    return f" Records beside it have a pattern: {pattern_of(listing, files)!r}" if files else ""


def _of_records(at_path: Detected) -> Detected:
    """Return the format of the files with records."""
    listing = at_path.listing
    is_chosen = listing.folder is None and not listing.is_pattern
    chosen = frozenset(listing.named if is_chosen else ())  # Files, and in a list also folders.
    groups: dict[Format, list[Found]] = {row: [] for row in record_formats()}
    others: list[Found] = []
    for found in listing.files:  # Of which there may be millions.
        name = without_query(found.entry.name).lower()
        is_named = is_chosen and found.path in chosen
        for row, group in groups.items():
            if name.endswith(row.endings if is_named else row.sure_endings):
                group.append(found)
                break
        else:
            others.append(found)
    present = {row: group for row, group in groups.items() if group}
    if not present:
        asked = [row for row in folder_formats() if isinstance(at_path.what, str) or row.has_index]
        together = _together(at_path, asked, listing)
        if together is not None:
            return together
        weak = [one for one in others if open_by_name(one.entry.name)]
        parts = tuple(end for row in folder_formats() for end in row.endings)
        if not weak or any(one.entry.name.lower().endswith(parts) for one in others):
            return _without_records(at_path)
        present = {open_by_name(weak[0].entry.name)[0]: weak}
        others = [one for one in others if not open_by_name(one.entry.name)]
    row, *more = present
    files, trouble = present[row], None
    if more:
        trouble = _several_formats(present, listing)
        others += [one for row in more for one in present[row]]
    for other in others:
        if other.path in chosen and not more:
            text = f"{other.path} is named beside {files[0].path}, but is another format."
            trouble = OptionError(text)
    return replace(
        at_path,
        format=row if more else _told_by_bytes(row, files),
        listing=replace(listing, files=files),
        trouble=trouble,
        others=others,
    )


def _told_by_bytes(row: Format, files: Sequence[Found]) -> Format:
    """Return the format of files, by the first bytes of one where their names leave it open."""
    rows = open_by_name(files[0].entry.name)
    if len(rows) > 1:
        names = [without_query(one.entry.name).lower() for one in files]
        rows = [one for one in rows if all(name.endswith(one.endings) for name in names)]
    if len(rows) > 1:
        found = format_by_head(next((one for one in files if one.entry.size), files[0]))
        row = found if found in rows else row
    return row


def _several_formats(present: Mapping[Format, list[Found]], listing: Listing) -> PenstockError:
    held = " and ".join(f"{len(files):,} of {row.title}" for row, files in present.items())
    if listing.folder is None and not listing.is_pattern:
        return OptionError(f"the files named are {held}; a source has one format.")
    row, files = next(iter(present.items()))
    choice = f"a pattern: {pattern_of(listing, files)!r}"
    if listing.folder is not None:  # All names of the format, which no pattern has.
        choice = f"format={row.name!r} (--format {row.name}), or by a pattern"
    return OptionError(f"{listing.folder or listing.named[0]} holds {held}. Choose by {choice}.")


def _without_records(at_path: Detected) -> Detected:
    """Return the format of files whose names are of no format with records."""
    listing = at_path.listing
    files, others = listing.files, list[Found]()
    if listing.folder is not None:  # There, first bytes speak only for names without an ending.
        files = [one for one in listing.files if not _has_ending(one)]
        others = [one for one in listing.files if _has_ending(one)]
    asked = files or others
    with_text = (one for one in asked[:_LOOKED_AT] if one.entry.size and head_of(one, 1))
    first = next(with_text, asked[0]) if asked else None
    problem = next(iter(problems_of(listing, at_path.options)), None)
    row = None
    with suppress(*() if problem is None else (MalformedLineError, OptionError)):
        row = None if first is None else format_by_head(first)
    if row is not None and files:
        found = replace(at_path, format=row, listing=replace(listing, files=files), others=others)
        return found.by_files()
    if first is None:
        shown = listing.folder or listing.named[0]
        other: PenstockError = ObjectNotFoundError(
            f"{shown} holds no files with records.", path=shown
        )
    else:
        text = f"cannot tell what {first.path} holds: its name ends in none of {known_endings()}."
        other = OptionError(text, remedy="Name it by format= (--format), as in format='csv'.")
    kept = listing if listing.folder is None else replace(listing, files=[])
    return replace(at_path, listing=kept, trouble=problem or other, problem=problem)


def _has_ending(found: Found) -> bool:
    """Whether the name of a file ends in something behind a point, compression aside."""
    return "." in without_compression(found.entry.name).rpartition("/")[2]
