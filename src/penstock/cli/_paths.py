"""Which files a PATH names: the same, in the same order, as for `penstock.open`."""

from __future__ import annotations

import logging
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.errors import OptionError
from penstock.index import LINES, format_by_name, look_at
from penstock.jsonl import JsonlFile
from penstock.storage import Entry, drafts_in, is_remote, locate

if TYPE_CHECKING:
    from penstock.index import Detected, Format
    from penstock.index import Found as Listed
    from penstock.storage import Leftover, StorageOptions

_log = logging.getLogger("penstock.cli")


def refuse_tokens(path: str, found: Detected, why: str) -> None:
    """Say that a verb is not for tokens."""
    if found.format.is_tokens:
        shown = shlex.quote(path)
        raise OptionError(
            f"{path} holds tokens, of which this makes nothing: {why}. penstock info {shown} and "
            f"penstock show {shown} --decode TOKENIZER show them; records beside them have a "
            f"pattern: '{path.rstrip('/')}/*{LINES.suffixes[0]}'"
        )


@dataclass(frozen=True, slots=True)
class PathFiles:
    """The files that a PATH names, in reading order."""

    path: str
    kind: Literal["file", "directory", "pattern"]
    files: list[JsonlFile]
    entries: dict[str, Entry] = field(default_factory=dict)
    """Size and time of files that a listing found, by their paths."""

    def entry(self, file: JsonlFile) -> Entry:
        """Return size and time of a file; asks storage only where no listing found it."""
        return self.entries.get(file.path) or entry_of(file)

    def label(self, file: JsonlFile) -> str:
        """Return how a file is called in a table about this PATH."""
        if self.kind == "directory":
            return file.path.removeprefix(self.path).lstrip("/")
        return file.path

    def leftovers(self) -> list[Leftover]:
        """Return the drafts and claims beside these files; of a single file only its own."""
        if is_remote(self.path):
            return []  # In object storage drafts have no name.
        if self.kind == "directory":
            return drafts_in(locate(self.path)[1])
        paths = [Path(locate(file.path)[1]) for file in self.files]
        found = [
            leftover
            for directory in sorted({str(path.parent) for path in paths})
            for leftover in drafts_in(directory)
        ]
        if self.kind == "file":
            own = f".{paths[0].name}."
            found = [one for one in found if Path(one.entry.name).name.startswith(own)]
        return found


def find(path: str, options: StorageOptions, found: Detected | None = None) -> PathFiles:
    """Return the files of lines that a PATH names, or raise where it holds something else."""
    named = format_by_name(path)
    if named is not None and not named.is_lines:
        raise _no_lines(path, named)
    found = look_at(path, options) if found is None else found
    listing = found.listing
    if listing.folder is None or not found.format.is_lines or found.problem is not None:
        found.checked()
    lines = [one for one in listing.files if found.format.is_lines or LINES.names(one.entry.name)]
    if not found.format.is_lines and not lines:
        raise _no_lines(path, found.format)
    if listing.folder is not None:
        if not lines:
            _log.warning("%s holds no %s files", path, LINES.title)
        return _found(path, "directory", lines, options)
    if listing.is_pattern:
        return _found(path, "pattern", lines, options)
    (only,) = lines
    file = JsonlFile(path, options)
    return PathFiles(path, "file", [file], {file.path: only.entry})


def _no_lines(path: str, row: Format) -> OptionError:
    if row.folder is not None:
        what = "tokens" if row.is_tokens else f"samples of {row.title}"
        return OptionError(f"{path} holds {what}, not lines. Copy the files as they are.")
    ends = ", ".join(LINES.endings)
    return OptionError(
        f"{path}: this verb reads {LINES.title} ({ends}) only; all others read {row.title}, too."
    )


def _found(
    path: str, kind: Literal["directory", "pattern"], files: list[Listed], options: StorageOptions
) -> PathFiles:
    entries = {as_typed(path, found.path): found.entry for found in files}
    return PathFiles(path, kind, [JsonlFile(name, options) for name in entries], entries)


def as_typed(path: str, name: str) -> str:
    """Return the path of a file that PATH led to, relative if PATH was.

    >>> as_typed("logs/*.jsonl", os.path.abspath("logs/a.jsonl"))
    'logs/a.jsonl'
    """
    is_relative = "://" not in path and not Path(path).is_absolute()
    return os.path.relpath(name) if is_relative else name


def entry_of(file: JsonlFile) -> Entry:
    """Return size and time of a file; asks storage only where no listing found it."""
    store, name, known = file.source()
    return known or store.entry(name)
