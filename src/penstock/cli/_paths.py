"""Which files a PATH names: one file, a directory's shards, or what a pattern matches."""

from __future__ import annotations

import glob
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from natsort import natsorted

from penstock.errors import ObjectNotFoundError, OptionError
from penstock.jsonl import OTHER_FORMATS, JsonlDir, JsonlFile, in_reading_order, is_jsonl
from penstock.storage import Entry, is_remote, list_drafts, locate

if TYPE_CHECKING:
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
        message = f"{path}: this release reads JSON Lines (.jsonl, .jsonl.zst, .jsonl.gz) only."
        raise OptionError(message)
    found = _find_remote(path, options) if is_remote(path) else _find_local(path)
    if not found.files:
        below = "" if is_remote(path) else f"; '{path.rstrip('/')}/**/*.jsonl' reads those below it"
        _log.warning("%s itself holds no JSON Lines files%s", path, below)
    return found


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


def _find_local(path: str) -> Found:
    name = locate(path)[1]
    if Path(name).is_dir():
        return Found(path, "directory", JsonlDir(path).shards_sync())
    if Path(name).exists() or Path(name).is_symlink():
        return Found(path, "file", [JsonlFile(path)])
    if not glob.has_magic(path):
        message = f"cannot read {path}: there is no such file or directory."
        raise ObjectNotFoundError(message, path=path)
    # Not Path.glob: names are told as the user typed them, and a pattern may begin anywhere.
    matches = glob.iglob(name if "://" in path else path, recursive=True)  # noqa: PTH207
    files = _in_order([Path(match) for match in matches])
    if not files:
        message = f"no file matches {path}. A directory is read by its own name, without a pattern."
        raise ObjectNotFoundError(message, path=path)
    return Found(path, "pattern", files)


def _in_order(matches: list[Path]) -> list[JsonlFile]:
    # As in a directory: names with an underscore are not data.
    paths = [path for path in matches if path.is_file() and not path.name.startswith("_")]
    ordered: list[Path] = []
    for parent in natsorted({path.parent for path in paths}, key=str):
        here = {path for path in paths if path.parent == parent}
        read = in_reading_order(here, str)
        ordered += [*read, *natsorted(here.difference(read), key=str)]
    return [JsonlFile(path) for path in ordered]


def _find_remote(path: str, options: StorageOptions) -> Found:
    if glob.has_magic(path):
        return _match_remote(path, options)
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


def _match_remote(path: str, options: StorageOptions) -> Found:
    root = path[: next(at for at, letter in enumerate(path) if letter in "*?[")].rpartition("/")[0]
    pattern = _compiled(path)
    below = JsonlDir(root, options).walk_sync(recursive=True)
    files = [file for file in below if pattern.fullmatch(file.path)]
    if not files:
        message = f"no object matches {path}."
        raise ObjectNotFoundError(message, path=path)
    return Found(path, "pattern", files)


def _compiled(path: str) -> re.Pattern[str]:
    """Return a pattern in which `*` stays in one directory and `**` does not, as for files."""
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^/]+?\])", path)
    return re.compile(
        "".join(
            meaning.get(part) or (part if part.startswith("[") else re.escape(part))
            for part in parts
        )
    )
