"""Which store a path belongs to, its name there, and which files a pattern names."""

from __future__ import annotations

import glob
import heapq
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from penstock.errors import ObjectNotFoundError, OptionError
from penstock.storage._local import LocalStore, listed, local_path, tell_of_loop
from penstock.storage._options import StorageOptions
from penstock.storage._schemes import (
    HTTP_SCHEMES,
    OBJECT_SCHEMES,
    is_remote,
    refuse_chain,
    without_query,
)

if TYPE_CHECKING:
    from penstock.storage._store import Entry, Store

_BUCKET = re.compile(r"[\w.$-]+", re.ASCII)
_FOLDERS = r"(?:(?!\.)[^/]+/)*"
"""Any number of folders, none of them hidden."""


def locate(
    path: str | os.PathLike[str], options: StorageOptions | None = None
) -> tuple[Store, str]:
    """Return the store that holds `path`, and its name there.

    >>> locate("file:///data/a%20b.jsonl")
    (LocalStore(), '/data/a b.jsonl')
    """
    text = os.fspath(path)
    if not text or isinstance(text, bytes):
        message = f"{text!r} is no path: give the path or URL of a file or directory as a string."
        raise OptionError(message)
    if options:
        options.check()
    scheme, separator, rest = text.partition("://")
    if not separator:
        return LocalStore(), local_path(text)
    if "::" in scheme:
        refuse_chain(text, options or StorageOptions())
    scheme = scheme.lower()
    if scheme == "file":
        host, slash, local = rest.partition("/")
        if host not in ("", "localhost"):
            message = f"{text}: a file:// URL names a path on this machine, not on {host!r}."
            raise OptionError(message)
        return LocalStore(), os.path.abspath(unquote(slash + local))
    options = options or StorageOptions()
    if scheme in HTTP_SCHEMES:
        from penstock.storage._http import HttpStore  # noqa: PLC0415 (obstore only when needed)

        return HttpStore.at(scheme, rest, options)
    if scheme not in OBJECT_SCHEMES:
        from penstock.storage._fsspec import FsspecStore  # noqa: PLC0415 (fsspec only when needed)

        return FsspecStore.at(scheme, rest, options)
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        # A "?" or "#" would send requests to another bucket. Credentials in a URL would end up in
        # logs and errors, so nothing of it is shown.
        raise OptionError(
            f"{scheme}:// needs a bucket and no credentials (pass storage_options=); buckets are "
            "named by letters, digits, '.', '-' and '_'."
        )
    from penstock.storage._object import ObjectStore  # noqa: PLC0415 (obstore only when needed)

    return ObjectStore(f"{scheme}://{bucket}", options), key.strip("/")


def join(directory: str, name: str) -> str:
    """Return the path or URL of `name` in `directory`.

    >>> join("file:///data", "50%.jsonl")
    'file:///data/50%25.jsonl'
    """
    if directory[:7].lower() == "file://":
        name = quote(name)  # As `locate` reads it.
    if not directory or directory.endswith("://"):
        return f"{directory}{name}"
    return f"{directory.rstrip('/')}/{name}"


class _Step(NamedTuple):
    links: int
    """How many are on the way here: ways with fewer go first, and then by name."""
    folder: str
    parts: list[str]
    """Of the pattern, for what is in the folder."""
    above: frozenset[tuple[int, int]]
    """The directories on the way here; a link that leads back to one of them is not followed."""


def is_pattern(path: str) -> bool:
    """Whether a path has wildcards; a file that is really named so is no pattern."""
    if is_remote(path):
        return glob.has_magic(without_query(path))
    return glob.has_magic(path) and not os.path.lexists(locate(path)[1])


def match(pattern: str, options: StorageOptions | None = None) -> tuple[Store, list[Entry]]:
    """Return the files that a pattern names, or raise `ObjectNotFoundError`.

    `*` stays within one directory and `**` does not; hidden names are only matched by name.
    Links to directories are followed, but not back to where they came from, and below `**` not to
    what a name with fewer links, or an earlier one, leads to.
    """
    store, name = locate(pattern, options)
    root = re.split(r"[*?[]", name, maxsplit=1)[0].rpartition("/")[0]
    if is_remote(pattern):
        wanted = compiled(name)
        listing = store.list(root, recursive=True)
        found = [entry for entry in listing if wanted.fullmatch(entry.name)]
    else:
        parts = name.removeprefix(f"{root}/").split("/")
        found = [entry for path in _matches(root, parts) if (entry := listed(path)) is not None]
    if not found:
        raise ObjectNotFoundError(f"no file matches {pattern}.", path=pattern)
    return store, found


def _matches(root: str, parts: list[str]) -> Iterator[str]:
    """Yield what lies below a folder under names that match, as `glob` does.

    A directory is known by device and inode, whatever leads to it.
    """
    below = len(parts) - parts.index("**") if "**" in parts else 0
    entered: set[tuple[int | str, ...]] = set()
    steps = [_Step(0, root, parts, frozenset())]
    while steps:
        step = heapq.heappop(steps)
        try:
            status = os.stat(step.folder or "/")
        except OSError:
            continue  # It leads nowhere, or is closed to us.
        here = (status.st_dev, status.st_ino)
        if here in step.above and glob.has_magic(step.parts[0]):
            tell_of_loop(step.folder)
            continue
        if len(step.parts) <= below:
            if (*here, *step.parts) in entered:
                continue
            entered.add((*here, *step.parts))
        for found in _found(step, here):
            if isinstance(found, str):
                yield found
            else:
                heapq.heappush(steps, found)


def _found(step: _Step, here: tuple[int, int]) -> Iterator[str | _Step]:
    """Yield the files in a folder that match, and the folders to look into."""
    links, folder, parts, above = step
    part, *rest = parts
    if not glob.has_magic(part):
        path = f"{folder}/{part}"
        if rest:
            yield _Step(links + os.path.islink(path), path, rest, above)
        elif os.path.lexists(path):
            yield path
        return
    if part == "**":
        yield _Step(links, folder, rest or ["*"], above)
        rest = parts
    wanted = re.compile(_segment(part), re.DOTALL)
    try:
        with os.scandir(folder or "/") as found:
            items = list(found)
    except OSError:
        return  # No directory, or one that is closed to us.
    for item in items:
        if wanted.fullmatch(item.name) is None:
            continue
        if not rest:
            yield item.path
        elif os.path.isdir(item.path) if item.is_symlink() else item.is_dir():
            yield _Step(links + item.is_symlink(), item.path, rest, above | {here})


def compiled(pattern: str) -> re.Pattern[str]:
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
