"""Files of every place that fsspec knows (`hf://`, `sftp://`, `zip://` …), read by ranges."""

from __future__ import annotations

import errno
import glob
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock._lazy import require
from penstock._redact import MASK
from penstock.errors import (
    MissingExtraError,
    ObjectChangedError,
    ObjectNotFoundError,
    OptionError,
    PenstockError,
    StorageError,
    StoragePermissionError,
    StorageTimeoutError,
)
from penstock.storage._fork import guarded_client
from penstock.storage._meter import count, waiting
from penstock.storage._object import retry
from penstock.storage._schemes import (
    CACHES,
    KNOWN_SCHEMES,
    ReadOnly,
    refuse_chain,
    refuse_password,
)
from penstock.storage._store import Entry, OpenFile, is_same_version
from penstock.storage._untrusted import path_below

if TYPE_CHECKING:
    from penstock.storage._options import StorageOptions

    Listed = list[tuple[str, dict[str, Any]]]

T = TypeVar("T")

_VERSIONS = ("ETag", "etag", "content_hash", "md5Checksum", "blob_id", "sha", "hex", "CRC")
_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "date_time", "created")
"""What file systems call the version of a file, and its time; some have neither."""
_BROKEN = (BrokenPipeError, ConnectionAbortedError, ConnectionRefusedError, ConnectionResetError)
_AROUND_OTHERS = CACHES | {"dir", "generic", "async_wrapper", "asyncwrapper"}
_FILE = "fo"
"""The file around those that are read; "" by default, which leads to the working directory."""
_REST = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_USER = re.compile("://([^/@]+)@")
_TOP = re.compile(r"(/?)\.(?:/|$)")
_KINDS: tuple[tuple[type[Exception], type[StorageError], int], ...] = (
    (FileNotFoundError, ObjectNotFoundError, errno.ENOENT),
    (NotADirectoryError, ObjectNotFoundError, errno.ENOTDIR),
    (PermissionError, StoragePermissionError, errno.EACCES),
    (TimeoutError, StorageTimeoutError, errno.ETIMEDOUT),
    (Exception, StorageError, errno.EIO),
)


@dataclass(frozen=True, slots=True)
class FsspecStore(ReadOnly):
    """The places of one protocol of fsspec; names are what stands behind `://`.

    Each thread has a file system of its own, as fsspec keeps them.
    """

    scheme: str
    options: StorageOptions

    @classmethod
    def at(cls, scheme: str, rest: str, options: StorageOptions) -> tuple[Self, str]:
        """Return the store of a URL and the name there, or raise for an unknown protocol."""
        known = ", ".join(f"{name}://" for name in KNOWN_SCHEMES)
        fsspec = require(
            "fsspec", extra="fsspec", purpose=f"{scheme}://, which is none of {known},"
        )
        protocols = {*fsspec.available_protocols(), *fsspec.registry} - {*KNOWN_SCHEMES}
        if scheme not in protocols:
            others = ", ".join(sorted(protocols - _AROUND_OTHERS))
            raise OptionError(
                f"{scheme}:// is not known; use a local path or one of {known}, or a protocol of "
                f"fsspec: {others}."
            )
        refuse_chain(f"{scheme}://{rest}", options)
        if scheme in _AROUND_OTHERS:
            text = f"{scheme}:// is a layer of fsspec over another place. Name that place itself."
            raise OptionError(text)
        refuse_password(scheme, rest.partition("/")[0], "Pass it by storage_options=.")
        lead, name = rest[: rest.startswith("/")], rest.strip("/")
        if name != "." and ("/" not in name or glob.has_magic(name.partition("/")[0])):
            # So that a folder is above every file: paths in an index are relative to one.
            name = f"./{name}".rstrip("/")
        return cls(scheme, options), lead + name

    def path(self, name: str) -> str:
        return f"{self.scheme}://{name}"

    def list(self, directory: str, *, recursive: bool = False) -> Iterator[Entry]:
        """Yield the files in a directory, by one request for each directory."""
        folders = [directory]
        while folders:
            folder = folders.pop()
            path = self.path(folder)
            for inside, info in self.ask("list", path, partial(self._listed, folder)):
                name = path_below(folder, inside)
                if name is None:
                    raise StorageError(f"cannot list {path}: it has a file {inside!r}.", path=path)
                if info["type"] != "directory":
                    yield self.described(name, info)
                elif recursive:
                    folders.append(name)

    def _listed(self, folder: str) -> Listed:
        files, root = self.inside(folder)
        files.invalidate_cache()  # It may be of another day.
        root = root.rstrip("/")
        found = [(info["name"].rstrip("/"), info) for info in files.ls(root, detail=True)]
        if [(name, info["type"]) for name, info in found] == [(root, "file")]:
            raise NotADirectoryError(f"{root} is a file")
        for name, _ in found:
            if not name.startswith(f"{root}/" if root else ""):
                raise ValueError(f"the listing of {root} has {name}")
        # Some name the folder itself.
        return [(name[len(root) :].lstrip("/"), info) for name, info in found if name != root]

    def entry(self, name: str) -> Entry:
        def look() -> dict[str, Any]:
            files, inside = self.inside(name)
            files.invalidate_cache()
            return dict(files.info(inside))

        return self.described(name, self.ask("read", self.path(name), look))

    def described(self, name: str, info: dict[str, Any]) -> Entry:
        """Return the entry of a file that fsspec describes."""
        path, size = self.path(name), info.get("size")
        if info["type"] == "directory":
            raise ObjectNotFoundError(f"{path} is a directory, not a file.", path=path)
        if not isinstance(size, int):
            raise StorageError(f"cannot read {path}: fsspec does not know its size.", path=path)
        version = next((info[key] for key in _VERSIONS if info.get(key)), None)
        modified = next((_seconds(info[key]) for key in _TIMES if info.get(key)), 0.0)
        return Entry(name, size, modified, None if version is None else str(version))

    def open(self, name: str, known: Entry | None = None) -> FsspecFile:
        return FsspecFile(self, known or self.entry(name))

    def inside(self, name: str) -> tuple[Any, str]:
        """Return this thread's file system, and the path of a name there."""
        fsspec = require("fsspec", extra="fsspec", purpose=f"{self.scheme}://")
        kind = fsspec.get_filesystem_class(self.scheme)
        bare = _TOP.sub(r"\1", name, count=1)
        url = self.path(bare)
        # As `fsspec.core.url_to_fs` does, which makes some file systems anew for each call.
        host, path = kind._get_kwargs_from_urls(url), kind._strip_protocol(url)  # noqa: SLF001
        given = host | self.options.as_given()
        self._refuse_missing(kind, given)
        key = (self.scheme, repr(host), self.options, threading.get_ident())
        files = guarded_client(key, lambda: kind(**given))
        if not path.rstrip("/").endswith(bare.rpartition("/")[2]):
            # Some take "?" for the beginning of a query, and would give another file.
            raise OptionError(f"{self.path(name)}: fsspec takes this for {path}.")
        return files, path

    def _refuse_missing(
        self,
        kind: Any,  # noqa: ANN401 (each file system has its own)
        given: Mapping[str, Any],
    ) -> None:
        """Raise where a file system needs options that were not given."""
        _, *parameters = signature(kind.__init__).parameters.values()
        missing = [
            one.name
            for one in parameters
            if one.name not in given
            and (one.name == _FILE or (one.default is one.empty and one.kind not in _REST))
        ]
        if missing:
            needs = ", ".join(f"{name!r}: …" for name in missing)
            raise OptionError(
                f"{self.scheme}:// needs {' and '.join(missing)}.",
                remedy=f"Give storage_options={{{needs}}} (-o KEY=VALUE).",
            )

    def ask(self, verb: str, what: str, call: Callable[[], T]) -> T:
        """Return `call()`, sent again after a broken connection, with its errors as Penstock's."""
        timeout = self.options.retry_timeout
        try:
            return retry(call, what=what, is_passing=_is_passing, timeout=timeout)
        except PenstockError:
            raise
        except ImportError as missing:
            cause = missing.__cause__
            module = cause.name if isinstance(cause, ImportError) else missing.name
            install = f" Install it with: pip install {module}" if module else ""
            error: PenstockError = MissingExtraError(
                f"{self.scheme}:// needs a package that is not installed: {missing}.{install}"
            )
        except Exception as failure:  # noqa: BLE001 (implementations have classes of their own)
            text = self.options.redact(str(failure)).partition("\n")[0]
            if user := _USER.search(what):
                text = text.replace(user[1], MASK)
            kind, number = next((k, n) for of, k, n in _KINDS if isinstance(failure, of))
            why = f"{type(failure).__name__}: {text.rstrip('.')}"
            path = what.partition(" (bytes ")[0]
            error = kind(f"cannot {verb} {what}: {why}.", path=path, errno=number)
        # Raised here, without a context: the text of others may repeat secrets.
        raise error


class FsspecFile(OpenFile):
    """A file read by ranges.

    fsspec cannot ask for a version: the file is looked at again after each read.
    """

    def __init__(self, store: FsspecStore, entry: Entry) -> None:
        self._store, self._entry = store, entry
        self.path, self.size = store.path(entry.name), entry.size

    def read_at(self, start: int, length: int) -> bytes:
        if not length:
            return b""
        what = f"{self.path} (bytes {start:,} to {start + length:,})"
        with waiting(self.path, start, start + length):
            data = self._store.ask("read", what, lambda: self._fetch(start, start + length))
        if len(data) != length:
            text = f"cannot read {what}: {len(data):,} bytes came; its place ignores ranges."
            raise StorageError(text, path=self.path)
        return data

    def _fetch(self, start: int, stop: int) -> bytes:
        files, path = self._store.inside(self._entry.name)
        # By default 5 MiB are read ahead, and what comes is taken for what was asked for.
        exactly = {} if files.async_impl else {"cache_type": "none"}
        count(requests=1)
        data: bytes = files.cat_file(path, start=start, end=stop, **exactly)
        count(bytes=len(data))
        now = self._store.described(self._entry.name, files.info(path))
        if not is_same_version(now, self._entry):
            text = f"{self.path} was replaced while it was being read; open it again."
            raise ObjectChangedError(text, path=self.path)
        return data


def _is_passing(failure: Exception) -> bool:
    # Others are no failures of a connection, such as that of a hub that is to work offline.
    return isinstance(failure, _BROKEN)


def _seconds(when: Any) -> float:  # noqa: ANN401 (each file system has its own)
    """Return a time that a file system tells; 0 for one that is not understood."""
    try:
        if isinstance(when, str):
            when = datetime.fromisoformat(when)
        elif isinstance(when, tuple):
            when = datetime(*when[:6], tzinfo=UTC)  # type: ignore[misc]
        return when.timestamp() if isinstance(when, datetime) else float(when)
    except (TypeError, ValueError):
        return 0.0
