"""Which files a PATH names: one file, a directory's shards, or what a pattern matches."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from natsort import natsorted

from penstock.errors import ObjectNotFoundError, OptionError
from penstock.jsonl import OTHER_FORMATS, JsonlDir, JsonlFile, in_reading_order, is_jsonl
from penstock.storage import Entry, is_pattern, is_remote, list_drafts, locate, match

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.storage import StorageOptions

_log = logging.getLogger("penstock.cli")


class Leftover(NamedTuple):
    """A draft or a claim: a file on its way, or what is left of one."""

    entry: Entry
    writer: Literal["gone", "at work", "unknown"]


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
            return leftovers_in(locate(self.path)[1])
        paths = [Path(locate(file.path)[1]) for file in self.files]
        found = [
            leftover
            for directory in sorted({str(path.parent) for path in paths})
            for leftover in leftovers_in(directory)
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
            "penstock show, info and index read CSV and Parquet, too."
        )
        raise OptionError(message)
    if is_pattern(path):
        found = _matching(path, options)
    else:
        found = _find_remote(path, options) if is_remote(path) else _find_local(path)
    if not found.files:
        below = "" if is_remote(path) else f"; '{path.rstrip('/')}/**/*.jsonl' reads those below it"
        _log.warning("%s itself holds no JSON Lines files%s", path, below)
    return found


def as_typed(path: str, name: str) -> str:
    """Return the path of a file that PATH led to, relative if PATH was.

    >>> as_typed("logs/*.jsonl", os.path.abspath("logs/a.jsonl"))
    'logs/a.jsonl'
    """
    is_relative = "://" not in path and not Path(path).is_absolute()
    return os.path.relpath(name) if is_relative else name


def leftovers_in(directory: str) -> list[Leftover]:
    """Return the drafts and claims in a local directory."""
    return [
        Leftover(entry, "unknown" if gone is None else "gone" if gone else "at work")
        for entry, gone in sorted(list_drafts(directory), key=lambda found: found[0].name)
    ]


def entry_of(file: JsonlFile) -> Entry:
    """Return size and time of a file; asks storage only if no listing has told."""
    store, name, known = file.source()
    return known or store.entry(name)


def _matching(path: str, options: StorageOptions) -> Found:
    store, matches = match(path, options)
    entries = {
        as_typed(path, store.path(entry.name)): entry
        for entry in matches
        if _is_data(entry.name, is_remote(path))
    }
    if not entries:
        message = f"no file matches {path}. A directory is read by its own name, without a pattern."
        raise ObjectNotFoundError(message, path=path)
    files = [JsonlFile(name, options) for name in _in_order(entries)]
    return Found(path, "pattern", files, entries)


def _in_order(paths: Iterable[str]) -> list[str]:
    ordered: list[str] = []
    waiting: dict[str, set[str]] = {}
    for path in paths:
        waiting.setdefault(path.rpartition("/")[0], set()).add(path)
    for parent in natsorted(waiting):
        read = in_reading_order(waiting[parent], str)
        ordered += [*read, *natsorted(waiting[parent].difference(read))]
    return ordered


def _is_data(name: str, is_object: bool) -> bool:  # noqa: FBT001 (where it lies)
    """Whether a file that a pattern matches is read, as in a directory."""
    folders, _, base_name = name.rpartition("/")
    if is_jsonl(name):
        # A file system's own patterns leave hidden names out, unless they are named.
        return base_name[0] not in ("._" if is_object else "_")
    # In object storage `*` may well mean everything. Here it must not mean an index.
    return not is_object and base_name[0] != "_" and folders.rpartition("/")[2] != "index"


def _find_local(path: str) -> Found:
    name = locate(path)[1]
    if Path(name).is_dir():
        return Found(path, "directory", JsonlDir(path).shards_sync())
    if Path(name).exists() or Path(name).is_symlink():
        return Found(path, "file", [JsonlFile(path)])
    message = f"cannot read {path}: there is no such file or directory."
    raise ObjectNotFoundError(message, path=path)


def _find_remote(path: str, options: StorageOptions) -> Found:
    directory = JsonlDir(path, options)
    if not locate(path, options)[1]:
        return Found(path, "directory", directory.shards_sync())  # A bucket is no file.
    file = JsonlFile(path, options)
    try:
        if is_jsonl(path):
            entry_of(file)
            return Found(path, "file", [file])
        return Found(path, "directory", directory.shards_sync())
    except ObjectNotFoundError as missing:
        try:
            if is_jsonl(path):
                return Found(path, "directory", directory.shards_sync())
            entry_of(file)
        except (ObjectNotFoundError, OptionError):
            raise missing from None
        return Found(path, "file", [file])
