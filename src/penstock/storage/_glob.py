"""Which files a pattern names, on a file system or in a bucket."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING

from penstock.errors import ObjectNotFoundError
from penstock.storage._locate import is_remote, locate

if TYPE_CHECKING:
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
    """
    store, name = locate(pattern, options)
    if is_remote(pattern):
        root = re.split(r"[*?[]", name, maxsplit=1)[0].rpartition("/")[0]
        wanted = _compiled(name)
        found = [e for e in store.list(root, recursive=True) if wanted.fullmatch(e.name)]
    else:
        matches = dict.fromkeys(glob.iglob(name, recursive=True))  # Two ** find a file twice.
        found = [store.entry(path) for path in matches if os.path.isfile(path)]
    if not found:
        message = f"no file matches {pattern}."
        raise ObjectNotFoundError(message, path=pattern)
    return store, found


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
