"""Files of HTTP servers, read by ranges, through obstore."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Self
from urllib.parse import quote, unquote

from penstock.errors import ObjectChangedError, ObjectNotFoundError, OptionError
from penstock.storage._object import ObjectStore, entry_of
from penstock.storage._object_errors import is_about_head
from penstock.storage._schemes import ReadOnly, refuse_password, without_query
from penstock.storage._store import Entry, is_same_version

if TYPE_CHECKING:
    from obstore import ObjectMeta

    from penstock.storage._options import StorageOptions

_HOST = re.compile(r"[^\s/\\@]+")
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
        return replace(entry_of(self.request("read", name, lambda: self._head(name))), name=name)

    def _head(self, name: str) -> ObjectMeta:
        client, place = self._client(name, repeats=True)
        try:
            meta: ObjectMeta = client.head(place)
        except Exception as failure:
            if not is_about_head(failure):
                raise
            # A signed URL is for GET only.
            meta = client.get(place, options={"range": (0, 1)}).meta
        return meta

    def get(self, name: str, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 (of the client)
        client, place = self._client(name, repeats=False)
        return client.get(place, options=options)

    def refuse_other(self, entry: Entry, meta: ObjectMeta) -> None:
        """Raise if an answer is of another version: not every server knows `If-Match`."""
        if not is_same_version(entry_of(meta), entry):
            text = f"{entry.name} was replaced while it was being read; open it again."
            raise ObjectChangedError(text, path=entry.name)

    def _client(self, name: str, *, repeats: bool) -> tuple[Any, str]:
        """Return a client, and what it is asked for.

        A client has connections of its own, so that one serves all URLs of a server with the same
        query. It writes out paths by itself; a URL with another spelling has its own client.
        """
        bare, mark, query = name.removeprefix(self.url).partition("?")
        path = unquote(bare[1:])
        if "" in path.split("/") or quote(path, safe=_PLAIN) != bare[1:]:
            return self.client(name, repeats=repeats), ""
        return self.client(f"{self.url}/{mark}{query}", repeats=repeats), path
