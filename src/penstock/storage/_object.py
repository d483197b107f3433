"""Objects in S3, Google Cloud Storage and Azure, through obstore."""

from __future__ import annotations

import logging
import mmap
import os
import random
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from obstore.exceptions import AlreadyExistsError, NotSupportedError
from obstore.store import AzureStore, GCSStore, S3Store

from penstock.errors import ObjectNotFoundError, OptionError, PenstockError, StorageError
from penstock.storage._coalesce import read_coalesced
from penstock.storage._drafts import OwnedFile
from penstock.storage._environment import endpoint_is_plain_http
from penstock.storage._fork import guarded_client
from penstock.storage._local_errors import translated
from penstock.storage._meter import count, waiting
from penstock.storage._object_errors import (
    ConflictError,
    is_passing,
    is_throttled,
    object_error,
)
from penstock.storage._options import StorageOptions
from penstock.storage._store import Entry, OpenFile

if TYPE_CHECKING:
    from obstore import ObjectMeta

T = TypeVar("T")

_log = logging.getLogger("penstock.storage")
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
_CHANCE = random.SystemRandom()
"""Neither the numbers that the user's own seed promises him, nor the same in every fork."""

LARGEST_SINGLE_PUT = 5 << 30
"""What the stores accept as one request, and so as one exclusive publish."""
_MULTIPART_ABOVE = 64 << 20
_PART_BYTES = 16 << 20
_SLOWEST_UPLOAD = 1e6
_MANY = 1000  # The deadline ends the repeats, not their number.
_CHUNK_BYTES = 256 << 10
_THREADS = 16
"""Ranges that are read at once, because each waits for the network."""
_OWNER = "penstock-draft"
"""Metadata by which a writer recognises its own upload under a name."""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """One bucket or container; names are object keys."""

    url: str
    options: StorageOptions = field(default_factory=StorageOptions)

    def path(self, name: str) -> str:
        return f"{self.url}/{name}"

    def list(self, directory: str, *, recursive: bool = False) -> Iterator[Entry]:
        prefix = f"{directory}/" if directory else None

        def collect() -> list[ObjectMeta]:
            if recursive:
                return list(self.client().list(prefix).collect())
            found = self.client().list_with_delimiter(prefix)
            nested.extend(found["common_prefixes"])
            return list(found["objects"])

        nested: list[str] = []
        # The client repeats failed requests by itself, but not a listing that broke off.
        objects = self.request("list", self.path(directory), lambda: self.retry("list", collect))
        if not objects and not nested:
            message = f"{self.path(directory)}: there is no object under this prefix."
            raise ObjectNotFoundError(message, path=self.path(directory))
        for meta in objects:
            # An object named like the directory itself is how consoles make "folders".
            if meta["path"] != directory:
                yield entry_of(meta)

    def entry(self, name: str) -> Entry:
        return entry_of(self.request("read", self.path(name), lambda: self.client().head(name)))

    def open(self, name: str, known: Entry | None = None) -> RemoteFile:
        """Open an object for reading; every read asks for the version that was opened."""
        return RemoteFile(self, known or self.entry(name))

    def get(self, name: str, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 (of the client)
        """Begin to read an object; what fails is not sent again."""
        return self.client(repeats=False).get(name, options=options)

    def draft(self, directory: str, label: str) -> ObjectDraft:
        """Begin a draft in an unnamed local file, which vanishes with this process."""
        del directory, label
        return ObjectDraft(self)

    def clear_dead_drafts(self, directory: str) -> Sequence[Entry]:
        """Do nothing: drafts of objects have no name, so a killed writer leaves none."""
        return []

    def delete(self, name: str) -> None:
        self.entry(name)  # Stores answer a delete of nothing with success.
        self.request("delete", self.path(name), lambda: self.client().delete(name))

    def request(self, verb: str, what: str, call: Callable[[], T]) -> T:
        """Return `call()`, with its errors as Penstock's own."""
        try:
            return call()
        except PenstockError:
            raise
        except BaseException as failure:
            error = object_error(failure, verb, what, self.options)
            if error is failure:
                raise
        # Raised here, without a context: the client's own text may repeat secrets.
        raise error

    def client(self, *, repeats: bool = True, upload_bytes: int = 0) -> Any:  # noqa: ANN401
        """Return this process's client for a kind of request.

        With `repeats` it sends a failed request again by itself, and continues a broken body
        where it stopped; `upload_bytes` gives an upload the time it needs at 1 MB/s.
        """
        seconds = self.options.timeout
        while seconds < upload_bytes / _SLOWEST_UPLOAD:
            seconds *= 2
        key = (self.url, self.options, repeats, seconds)
        return guarded_client(key, lambda: _new_client(*key))

    def refuse_other(self, entry: Entry, meta: ObjectMeta) -> None:
        """Raise if an answer is of another version; buckets compare by themselves."""

    def retry(self, what: str, call: Callable[[], T]) -> T:
        """Return `call()`, sent again while that may help; for what the client does not repeat."""
        seconds = self.options.retry_timeout
        return retry(call, what=what, is_passing=is_passing, timeout=seconds)


def retry(
    call: Callable[[], T], *, what: str, is_passing: Callable[[Exception], bool], timeout: float
) -> T:
    """Return `call()`, repeated while it fails for a passing reason and time is left.

    The pause before attempt n is random between 0 and 0.1 s × 2ⁿ (at most 10 s), so that many
    clients that were throttled together do not come back together. The last failure is raised.
    """
    deadline = time.monotonic() + timeout
    attempt = 0
    while True:
        try:
            return call()
        except Exception as failure:
            attempt += 1
            longest = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
            pause = _CHANCE.uniform(0, longest)
            if not is_passing(failure) or time.monotonic() + pause >= deadline:
                raise
            _log.debug("%s failed (attempt %d), again in %.1f s", what, attempt, pause)
            time.sleep(pause)


class RemoteFile(OpenFile):
    """An object read by ranged requests, all for one version."""

    def __init__(self, store: ObjectStore, entry: Entry) -> None:
        self._store = store
        self._entry = entry
        self.path = store.path(entry.name)
        self.size = entry.size

    def read_at(self, start: int, length: int) -> bytes:
        if not length:
            return b""
        what = f"{self.path} (bytes {start:,} to {start + length:,})"
        body = _Body(self._store, self._entry, start, start + length)
        with waiting(self.path, start, start + length):
            return self._store.request("read", what, lambda: self._store.retry(what, body.fetch))

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return read_coalesced(self.read_at, ranges, _THREADS)


class _Body:
    """A range on its way: a request that breaks off is followed by one for the rest.

    The client's own retries are off, since they could not be counted.
    """

    def __init__(self, store: ObjectStore, entry: Entry, start: int, stop: int) -> None:
        self._store, self._entry = store, entry
        self._start, self._stop = start, stop
        self._parts: list[Any] = []
        self._repeats = 0

    def fetch(self) -> bytes:
        """Ask for what is missing, and return the whole if that came."""
        received = sum(map(len, self._parts))
        options: dict[str, Any] = {"range": (self._start + received, self._stop)}
        if (version := self._entry.version) and not version.startswith("W/"):
            # Also where the version is known from the first answer only: two must not be mixed. A
            # weak one matches nothing.
            options["if_match"] = version
        count(requests=1, retries=self._repeats)
        self._repeats = 1
        try:
            answer = self._store.get(self._entry.name, options)
            self._store.refuse_other(self._entry, answer.meta)
            self._entry = replace(self._entry, version=version or answer.meta["e_tag"])
            for part in answer.stream(min_chunk_size=_CHUNK_BYTES):
                self._parts.append(part)
                received += len(part)
                count(bytes=len(part))
                if self._start + received > self._stop:
                    raise NotSupportedError("the server sends more than was asked for")  # noqa: TRY301 (as the client's own)
        except Exception as failure:
            if is_throttled(failure):
                count(throttled=1)
            raise
        whole, length = b"".join(self._parts), self._stop - self._start
        if len(whole) != length:
            self._parts = []  # The client takes a short answer for a whole one.
            raise ConnectionError(f"{length:,} bytes asked for, {len(whole):,} received")
        return whole


class ObjectDraft(OwnedFile):
    """A draft spooled to an unnamed local file and uploaded when published."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._owner = secrets.token_hex(16)
        folder = tempfile.gettempdir()
        with translated(folder, "write in"):
            # Unbuffered: what a buffer holds back would fail in `discard`, not in `write`.
            self._spool = tempfile.TemporaryFile(prefix="penstock-", buffering=0)  # noqa: SIM115
        super().__init__(self._spool.fileno(), f"the local spool in {folder}")

    def publish(self, name: str, *, exclusive: bool) -> None:
        self.check()
        path = self._store.path(name)
        size = os.fstat(self.descriptor).st_size
        if exclusive and size > LARGEST_SINGLE_PUT:
            message = (
                f"cannot publish {path} exclusively: {size:,} bytes, and stores take at most "
                f"{LARGEST_SINGLE_PUT:,} in one request. Write smaller shards."
            )
            raise StorageError(message, path=path)
        put = self._put_new if exclusive else self._put
        self._store.request("publish", path, lambda: put(name, size))
        self.discard()

    def discard(self) -> None:
        self._spool.close()

    def __del__(self) -> None:
        # After a failed __init__ there is no spool.
        if hasattr(self, "_spool"):
            self.discard()

    def _put(self, name: str, size: int) -> None:
        multipart = size > _MULTIPART_ABOVE
        self._spool.seek(0)
        client = self._store.client(upload_bytes=_PART_BYTES * 12 if multipart else size)
        client.put(name, self._spool, use_multipart=multipart, chunk_size=_PART_BYTES)

    def _put_new(self, name: str, size: int) -> None:
        client = self._store.client(repeats=False, upload_bytes=size)

        def put(body: bytes | mmap.mmap) -> None:
            try:
                client.put(name, body, mode="create", attributes={_OWNER: self._owner})
            except AlreadyExistsError:
                # After a lost answer the name may be taken by this very draft.
                if self._owner_of(name) != self._owner:
                    raise

        if not size:
            self._store.retry(f"publish {name}", lambda: put(b""))
            return
        # Mapped, not read: the body of one request is otherwise held in memory as a whole.
        with mmap.mmap(self._spool.fileno(), size, access=mmap.ACCESS_READ) as body:
            self._store.retry(f"publish {name}", lambda: put(body))

    def _owner_of(self, name: str) -> str | None:
        try:
            attributes = self._store.client().get(name, options={"head": True}).attributes
        except FileNotFoundError:
            # Some stores refuse one of two conditional requests although neither took the name.
            raise ConflictError from None
        owner: str | None = attributes.get(_OWNER)
        return owner


def _new_client(url: str, options: StorageOptions, repeats: bool, seconds: float) -> Any:  # noqa: ANN401, FBT001 (one of three classes; a key)
    scheme, _, bucket = url.partition("://")
    config = options.store_config()
    client_options = options.client_options() | {"timeout": timedelta(seconds=seconds)}
    endpoints = [v for k, v in config.items() if k.removesuffix("_url").endswith("endpoint")]
    if any(e.startswith("http://") for e in endpoints) or endpoint_is_plain_http():
        client_options.setdefault("allow_http", True)
    kinds: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    kind, given = kinds[scheme], {"config": config}
    del config  # Secrets, which a traceback with locals would show, stay in `given` alone.
    problem = ""
    try:
        return kind(
            bucket,
            **given,
            client_options=client_options,
            retry_config={
                "max_retries": _MANY if repeats else 0,
                "retry_timeout": timedelta(seconds=options.retry_timeout),
            },
        )
    except Exception as failure:  # noqa: BLE001 (every refusal becomes an error of ours)
        problem = options.redact(str(failure)).partition("\n")[0]
    del given, client_options
    raise OptionError(f"cannot use storage options for {url}: {problem}")


def entry_of(meta: ObjectMeta) -> Entry:
    return Entry(meta["path"], meta["size"], meta["last_modified"].timestamp(), meta["e_tag"])
