"""Which files a PATH names: the same, in the same order, as for `penstock.open`."""

from __future__ import annotations

import logging
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.errors import OptionError
from penstock.index import LINES, format_by_name, look_at
from penstock.jsonl import JsonlFile
from penstock.storage import drafts_in, is_remote, locate

if TYPE_CHECKING:
    from penstock.index import Detected, Format, Listing
    from penstock.storage import Entry, Leftover, StorageOptions

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
    entries: dict[str, Entry]
    """Size and time of each file, by its path."""

    @classmethod
    def of(cls, path: str, listing: Listing, options: StorageOptions) -> PathFiles:
        """Return the files of a listing."""
        kind: Literal["file", "directory", "pattern"] = "file"
        if listing.folder is not None or listing.is_pattern:
            kind = "pattern" if listing.folder is None else "directory"
        entries = {as_typed(path, found.path): found.entry for found in listing.files}
        return cls(path, kind, [JsonlFile(name, options) for name in entries], entries)

    @property
    def bytes(self) -> int:
        """Stored bytes of all files."""
        return sum(entry.size for entry in self.entries.values())

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
        own = f".{paths[0].name}." if self.kind == "file" else ""
        return [
            leftover
            for directory in sorted({str(path.parent) for path in paths})
            for leftover in drafts_in(directory)
            if Path(leftover.entry.name).name.startswith(own)
        ]


def find(path: str, options: StorageOptions, found: Detected | None = None) -> PathFiles:
    """Return the files of lines that a PATH names, or raise where it holds something else."""
    named = format_by_name(path)
    if named is not None and not named.is_lines:
        raise _no_lines(path, named)
    found = look_at(path, options) if found is None else found
    listing = found.listing
    if listing.folder is None or not found.format.is_lines or found.problem is not None:
        found.checked()
    if not found.format.is_lines:
        lines = [one for one in listing.files if LINES.names(one.entry.name)]
        if not lines:
            raise _no_lines(path, found.format)
        listing = replace(listing, files=lines)
    if not listing.files:
        _log.warning("%s holds no %s files", path, LINES.title)
    return PathFiles.of(path, listing, options)


def _no_lines(path: str, row: Format) -> OptionError:
    if row.folder is not None:
        what = "tokens" if row.is_tokens else f"samples of {row.title}"
        return OptionError(f"{path} holds {what}, not lines. Copy the files as they are.")
    ends = ", ".join(LINES.endings)
    return OptionError(
        f"{path}: this verb reads {LINES.title} ({ends}) only; all others read {row.title}, too."
    )


def as_typed(path: str, name: str) -> str:
    """Return the path of a file that PATH led to, relative if PATH was.

    >>> as_typed("logs/*.jsonl", os.path.abspath("logs/a.jsonl"))
    'logs/a.jsonl'
    """
    is_relative = "://" not in path and not Path(path).is_absolute()
    return os.path.relpath(name) if is_relative else name


def leftover_document(leftover: Leftover) -> dict[str, object]:
    """Return a leftover for a program."""
    entry, writer = leftover
    return {"path": entry.name, "bytes": entry.size, "modified": entry.modified, "writer": writer}
