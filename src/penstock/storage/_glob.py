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
        matches = glob.iglob(name, recursive=True)
        found = [store.entry(path) for path in matches if os.path.isfile(path)]
    if not found:
        message = f"no file matches {pattern}."
        raise ObjectNotFoundError(message, path=pattern)
    return store, found


def _compiled(pattern: str) -> re.Pattern[str]:
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^/]+?\])", pattern)
    return re.compile(
        "".join(
            meaning.get(part) or (part if part.startswith("[") else re.escape(part))
            for part in parts
        ),
        re.DOTALL,
    )
