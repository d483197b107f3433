"""Which store a path belongs to, and its name there."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from penstock.errors import OptionError
from penstock.storage._local import LocalStore
from penstock.storage._options import StorageOptions

if TYPE_CHECKING:
    from penstock.storage._store import Store

REMOTE_SCHEMES = ("s3", "gs", "az")
_BUCKET = re.compile(r"[\w.$-]+", re.ASCII)


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
        return LocalStore(), os.path.abspath(text)
    if scheme == "file":
        host, slash, local = rest.partition("/")
        if host not in ("", "localhost"):
            message = f"{text}: a file:// URL names a path on this machine, not on {host!r}."
            raise OptionError(message)
        return LocalStore(), os.path.abspath(unquote(slash + local))
    if scheme not in REMOTE_SCHEMES:
        known = ", ".join(f"{name}://" for name in ("file", *REMOTE_SCHEMES))
        raise OptionError(f"{scheme}:// is not known; use a local path or one of {known}.")
    bucket, _, key = rest.partition("/")
    if not bucket or "@" in bucket:
        # Credentials in a URL would end up in logs and errors, so nothing of it is shown.
        message = f"{scheme}:// needs a bucket name and no credentials; pass storage_options=."
        raise OptionError(message)
    if not _BUCKET.fullmatch(bucket):
        # A "?" or "#" would send requests to another bucket.
        message = f"{scheme}://{bucket}: buckets are named by letters, digits, '.', '-' and '_'."
        raise OptionError(message)
    from penstock.storage._object import ObjectStore  # noqa: PLC0415 (obstore only when needed)

    return ObjectStore(f"{scheme}://{bucket}", options or StorageOptions()), key.strip("/")


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path lies in an object store."""
    scheme, separator, _ = os.fspath(path).partition("://")
    return bool(separator) and scheme in REMOTE_SCHEMES


def join(directory: str, name: str) -> str:
    """Return the path or URL of `name` in `directory`.

    >>> join("file:///data", "50%.jsonl")
    'file:///data/50%25.jsonl'
    """
    if directory.startswith("file://"):
        name = quote(name)  # As `locate` reads it.
    return f"{directory.rstrip('/')}/{name}" if directory else name
