"""Which files a pattern names, on a file system or in a bucket."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING

from penstock.errors import ObjectNotFoundError
from penstock.storage._local import listed
from penstock.storage._locate import is_remote, locate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.storage._options import StorageOptions
    from penstock.storage._store import Entry, Store

_FOLDERS = r"(?:(?!\.)[^/]+/)*"
"""Any number of folders, none of them hidden."""


def is_pattern(path: str) -> bool:
    """Whether a path has wildcards; a file that is really named so is no pattern."""
    return glob.has_magic(path) and (is_remote(path) or not os.path.lexists(locate(path)[1]))


def match(pattern: str, options: StorageOptions | None = None) -> tuple[Store, list[Entry]]:
    """Return the files that a pattern names, or raise `ObjectNotFoundError`.

    `*` stays within one directory and `**` does not; hidden names are only matched by name.
    Links to directories are followed, but not back to where they came from.
    """
    store, name = locate(pattern, options)
    root = re.split(r"[*?[]", name, maxsplit=1)[0].rpartition("/")[0]
    if is_remote(pattern):
        wanted = _compiled(name)
        found = [e for e in store.list(root, recursive=True) if wanted.fullmatch(e.name)]
    else:
        parts = name.removeprefix(f"{root}/").split("/")
        matches = dict.fromkeys(_matches(root, parts, frozenset()))  # Two ** find a file twice.
        found = [entry for path in matches if (entry := listed(path)) is not None]
    if not found:
        message = f"no file matches {pattern}."
        raise ObjectNotFoundError(message, path=pattern)
    return store, found


def _matches(folder: str, parts: list[str], above: frozenset[tuple[int, int]]) -> Iterator[str]:
    """Yield what lies below a folder under names that match, as `glob` does.

    `above` are the directories on the way here, by device and inode: a link that leads back to
    one of them is not followed.
    """
    part, *rest = parts
    if not glob.has_magic(part):
        path = f"{folder}/{part}"
        if rest:
            yield from _matches(path, rest, above)
        elif os.path.lexists(path):
            yield path
        return
    if part == "**":
        yield from _matches(folder, rest or ["*"], above)
        rest = parts
    wanted = re.compile(_segment(part), re.DOTALL)
    items, above = _entered(folder or "/", above)
    for item in items:
        if wanted.fullmatch(item.name) is None:
            continue
        if not rest:
            yield item.path
        elif os.path.isdir(item.path) if item.is_symlink() else item.is_dir():
            yield from _matches(item.path, rest, above)


def _entered(
    folder: str, above: frozenset[tuple[int, int]]
) -> tuple[list[os.DirEntry[str]], frozenset[tuple[int, int]]]:
    """Return what is in a folder, and what is above that; nothing if the folder is above itself."""
    try:
        status = os.stat(folder)
        here = (status.st_dev, status.st_ino)
        with os.scandir(folder) as items:
            return ([] if here in above else list(items)), above | {here}
    except OSError:
        return [], above  # No directory, or one that is closed to us.


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return what a pattern means, as `glob` has it for files."""
    *folders, last = pattern.split("/")
    text = "".join(_FOLDERS if part == "**" else f"{_segment(part)}/" for part in folders)
    text += rf"{_FOLDERS}(?!\.)[^/]+" if last == "**" else _segment(last)
    return re.compile(text, re.DOTALL)


def _segment(part: str) -> str:
    pieces = re.split(r"(\*+|\?|\[[^/]+?\])", part)
    text = "".join(map(_piece, filter(None, pieces)))
    return rf"(?!\.){text}" if part[:1] in ("*", "?", "[") else text


def _piece(text: str) -> str:
    if text[0] == "*":
        return "[^/]*"
    if text == "?":
        return "[^/]"
    if text[0] == "[" and text[-1] == "]":
        negated = text[1] == "!"
        inside = re.sub(r"([\\\[&~|^])", r"\\\1", text[1 + negated : -1])
        return f"[^/{inside}]" if negated else f"[{inside}]"
    return re.escape(text)
