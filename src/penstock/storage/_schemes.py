"""What the scheme of a URL says of a place: remote or not, read-only or not."""

from __future__ import annotations

import errno
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from penstock.errors import OptionError, StoragePermissionError

if TYPE_CHECKING:
    from penstock.storage._options import StorageOptions
    from penstock.storage._store import Entry

OBJECT_SCHEMES = ("s3", "gs", "az")
HTTP_SCHEMES = ("http", "https")
KNOWN_SCHEMES = ("file", *OBJECT_SCHEMES, *HTTP_SCHEMES)
"""Without fsspec, which knows others."""
CACHES = frozenset({"simplecache", "filecache", "blockcache", "cached"})
"""Protocols of fsspec that keep files of another place."""
_SCHEME = re.compile(r"([A-Za-z][\w+.-]*)://", re.ASCII)


def scheme_of(path: str | os.PathLike[str]) -> str:
    """Return the scheme of a URL, in lower case; that of a local path is "file"."""
    found = _SCHEME.match(os.fspath(path))
    return found[1].lower() if found else "file"


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path lies elsewhere than in the local file systems."""
    return scheme_of(path) != "file"


def is_read_only(path: str | os.PathLike[str]) -> bool:
    """Whether Penstock only reads from the place of a path."""
    return scheme_of(path) not in {"file", *OBJECT_SCHEMES}


def refuse_read_only(path: str | os.PathLike[str]) -> None:
    """Raise `StoragePermissionError` for a path to write to, where Penstock only reads."""
    if is_read_only(path):
        raise _only_read(os.fspath(path))


def _only_read(path: str) -> StoragePermissionError:
    return StoragePermissionError(
        f"cannot write {path}: {scheme_of(path)}:// is a read-only place.",
        remedy="Write to a local path, or to s3://, gs:// or az://.",
        path=path,
        errno=errno.EROFS,
    )


def without_query(path: str) -> str:
    """Return a path without the query of an HTTP URL, which is no part of the file's name.

    >>> without_query("https://host/a.jsonl.gz?download=1"), without_query("/data/what?.jsonl")
    ('https://host/a.jsonl.gz', '/data/what?.jsonl')
    """
    if "?" not in path or scheme_of(path) not in HTTP_SCHEMES:
        return path
    return path.partition("?")[0]


def refuse_chain(url: str, options: StorageOptions) -> None:
    """Raise for a chain of fsspec, `ONE::TWO://…`."""
    *chain, inner = url.split("::")
    if not chain:
        return
    remedy = "Name the file around by options of fsspec: storage_options={'fo': …}."
    if all(one.partition("://")[0] in CACHES for one in chain):
        remedy = f"Leave the cache out, blocks of remote files are kept anyway: {inner}"
    text = f"{chain[0].partition('://')[0]}::…: chained URLs are not read."
    raise OptionError(text, remedy=options.redact(remedy))


def refuse_password(scheme: str, host: str, remedy: str) -> None:
    """Raise for a password in a URL: it would end up in logs and errors, so none of it is shown."""
    if ":" in host.rpartition("@")[0]:
        text = f"{scheme}:// takes no password in the URL, which logs and errors show."
        raise OptionError(text, remedy=remedy)


class ReadOnly(ABC):
    """The half of a `Store` that writes, for places that are only read."""

    __slots__ = ()

    @abstractmethod
    def path(self, name: str) -> str: ...

    def draft(self, directory: str, label: str) -> NoReturn:
        """Refuse to write."""
        del label
        raise _only_read(self.path(directory))

    def clear_dead_drafts(self, directory: str) -> Sequence[Entry]:
        """Do nothing: there are no drafts."""
        del directory
        return []

    def delete(self, name: str) -> NoReturn:
        """Refuse to remove."""
        raise _only_read(self.path(name))
