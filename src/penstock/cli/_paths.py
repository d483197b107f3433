"""Which files a PATH names: the same, in the same order, as for `penstock.open`."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.cli._token_paths import refuse_folder_of_tokens, refuse_tokens_by_name
from penstock.errors import OptionError
from penstock.index import list_files
from penstock.jsonl import OTHER_FORMATS, JsonlFile, is_jsonl
from penstock.storage import Entry, drafts_in, is_remote, locate

if TYPE_CHECKING:
    from penstock.index import Found as Listed
    from penstock.storage import Leftover, StorageOptions

_log = logging.getLogger("penstock.cli")


@dataclass(frozen=True, slots=True)
class Found:
    """The files that a PATH names, in reading order."""

    path: str
    kind: Literal["file", "directory", "pattern"]
    files: list[JsonlFile]
    entries: dict[str, Entry] = field(default_factory=dict)
    """What a listing has told of files, by their paths."""

    def entry(self, file: JsonlFile) -> Entry:
        """Return size and time of a file; asks storage only if no listing has told."""
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


def find(path: str, options: StorageOptions) -> Found:
    """Return the files that a PATH names, or raise `ObjectNotFoundError`."""
    if path.lower().endswith(OTHER_FORMATS):
        message = (
            f"{path}: this verb reads JSON Lines (.jsonl, .jsonl.zst, .jsonl.gz) only; "
            "all others read CSV and Parquet, too."
        )
        raise OptionError(message)
    refuse_tokens_by_name(path, options)
    listing = list_files(path, (), options)
    lines = [found for found in listing.files if is_jsonl(found.entry.name)]
    if listing.folder is not None:
        if not lines:
            refuse_folder_of_tokens(path, options)
            _log.warning("%s holds no JSON Lines files", path)
        return _found(path, "directory", lines, options)
    if listing.is_pattern:
        if 0 < len(lines) < len(listing.files):
            other = next(found for found in listing.files if found not in lines)
            others = len(listing.files) - len(lines)
            _log.warning("%s: %d files are no JSON Lines, first %s", path, others, other.path)
        return _found(path, "pattern", lines or listing.files, options)
    (only,) = listing.files
    file = JsonlFile(path, options)
    return Found(path, "file", [file], {file.path: only.entry})


def _found(
    path: str, kind: Literal["directory", "pattern"], files: list[Listed], options: StorageOptions
) -> Found:
    entries = {as_typed(path, found.path): found.entry for found in files}
    return Found(path, kind, [JsonlFile(name, options) for name in entries], entries)


def as_typed(path: str, name: str) -> str:
    """Return the path of a file that PATH led to, relative if PATH was.

    >>> as_typed("logs/*.jsonl", os.path.abspath("logs/a.jsonl"))
    'logs/a.jsonl'
    """
    is_relative = "://" not in path and not Path(path).is_absolute()
    return os.path.relpath(name) if is_relative else name


def entry_of(file: JsonlFile) -> Entry:
    """Return size and time of a file; asks storage only if no listing has told."""
    store, name, known = file.source()
    return known or store.entry(name)
