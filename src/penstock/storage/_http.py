"""Files of HTTP servers, read by ranges."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self
from urllib.parse import quote, unquote

from obstore.exceptions import NotSupportedError

from penstock.errors import ObjectChangedError, ObjectNotFoundError, OptionError
from penstock.storage._http_client import Answer, HttpError, ask
from penstock.storage._object import ObjectStore, entry_of
from penstock.storage._schemes import ReadOnly, refuse_password, without_query
from penstock.storage._store import Entry, is_same_version

if TYPE_CHECKING:
    from obstore import ObjectMeta

    from penstock.storage._options import StorageOptions

_HOST = re.compile(r"[^\s/\\@]+")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
_PARTIAL = 206
_NO_HEAD = ("status code: 403", "status code: 405")
_PLAIN = "/:@!$&'()+,;="
"""What stays as it is in the path of a URL, beside letters and digits."""


class HttpStore(ReadOnly, ObjectStore):
    """One HTTP server; names are whole URLs, with their queries.

    Nothing is listed. A server that ignores ranges is refused.
    """

    @classmethod
    def at(cls, scheme: str, rest: str, options: StorageOptions) -> tuple[Self, str]:
        """Return the server of a URL, and the URL in its normal form."""
        place, mark, query = rest.partition("#")[0].partition("?")
        host, _, path = place.partition("/")
        refuse_password(scheme, host, "Give a signed URL.")
        if not _HOST.fullmatch(host):
            raise OptionError(f"{scheme}:// needs the name of a host, without a user.")
        if not {".", ".."}.isdisjoint(map(unquote, path.split("/"))):
            raise OptionError(f"{scheme}://{host}/{path}: give the URL without '.' and '..'.")
        # What a parser of URLs would change is written out: another URL cannot hide behind one. In
        # an index a path is cut at "/".
        path, query = quote(path, safe=f"{_PLAIN}%"), quote(query, safe=f"{_PLAIN[1:]}%?*[]{{}}|")
        return cls(f"{scheme}://{host}", options), f"{scheme}://{host}/{path}{mark}{query}"

    def path(self, name: str) -> str:
        return name

    def list(self, directory: str, *, recursive: bool = False) -> NoReturn:
        """Refuse: HTTP has no listings."""
        del recursive
        raise ObjectNotFoundError(
            f"cannot list {directory}: over HTTP there are neither folders nor patterns.",
            remedy="Give the URLs of the files, as a list.",
            path=directory,
        )

    def entry(self, name: str) -> Entry:
        if without_query(name).endswith("/"):
            self.list(name)
        return self.request("read", name, lambda: self.retry("HEAD", lambda: self._look(name)))

    def _look(self, name: str) -> Entry:
        try:
            answer = self._ask("HEAD", name, {})
        except HttpError as why:
            if str(why) not in _NO_HEAD:
                raise
        else:
            answer.drop()
            length = answer.headers["Content-Length"] or ""
            if length.isdecimal():
                return entry_of(_meta(name, int(length), answer))
        # A signed URL is for GET only.
        part = self.get(name, {"range": (0, 1)})
        deque(part.stream(1), 0)
        return entry_of(part.meta)

    def get(self, name: str, options: Mapping[str, Any]) -> _Part:
        start, stop = options["range"]
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        if "if_match" in options:
            headers["If-Match"] = options["if_match"]
        answer = self._ask("GET", name, headers)
        place = _CONTENT_RANGE.fullmatch(answer.headers["Content-Range"] or "")
        if answer.status != _PARTIAL or place is None or int(place[1]) != start:
            answer.drop()
            raise NotSupportedError("Range request not supported")
        return _Part(_meta(name, int(place[2]), answer), answer, stop - start)

    def _ask(self, method: str, name: str, headers: Mapping[str, str]) -> Answer:
        if unknown := min(self.options.store_config(), default=""):
            scheme = self.url.partition("://")[0]
            raise OptionError(f"storage option {unknown}: {scheme}:// has no such option.")
        return ask(method, name, headers, self.options)

    def refuse_other(self, entry: Entry, meta: ObjectMeta) -> None:
        """Raise if an answer is of another version: not every server knows `If-Match`."""
        if not is_same_version(entry_of(meta), entry):
            text = f"{entry.name} was replaced while it was being read; open it again."
            raise ObjectChangedError(text, path=entry.name)


class _Part(NamedTuple):
    """A range of a file on its way, as the client of object stores gives one."""

    meta: ObjectMeta
    answer: Answer
    length: int

    def stream(self, min_chunk_size: int) -> Iterator[bytes]:
        del min_chunk_size
        return self.answer.read(self.length)


def _meta(name: str, size: int, answer: Answer) -> ObjectMeta:
    modified = datetime.fromtimestamp(0, UTC)
    with suppress(TypeError, ValueError):  # There is none, or it is no time.
        modified = parsedate_to_datetime(answer.headers["Last-Modified"])
    tag = answer.headers["ETag"]
    return {"path": name, "size": size, "last_modified": modified, "e_tag": tag, "version": None}
