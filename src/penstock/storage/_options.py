"""Storage options: endpoint, credentials, deadlines; secrets never show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from penstock._redact import MASK, secrets_in, without_secrets
from penstock.errors import OptionError
from penstock.storage._environment import secrets_in_environment

_SECRET = re.compile(
    "secret|key|token|passw|passphrase|sas|credential|signature|auth|header|cookie|bearer",
    re.IGNORECASE,
)
_SECONDS = ("retry_timeout", "timeout", "connect_timeout", "read_timeout", "pool_idle_timeout")
_CLIENT = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_url",
    "read_timeout",
    "timeout",
    "user_agent",
}
_OURS = {"retry_timeout", "cache_dir", "cache_limit"}
"""Options that do not go to the store itself."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_SHOWN = _CLIENT - {"proxy_url"} | _OURS | {"anon", "project", "protocol", "verify"}
_SHOWN_ENDINGS = ("region", "endpoint", "endpoint_url", "style_request", "skip_signature")
"""Options whose values show, URLs without their secrets; of all others only the names do."""


def parsed_size(text: str) -> int | None:
    """Return bytes; None for a text that names none.

    >>> parsed_size("0"), parsed_size("1.5 GB"), parsed_size("2MiB"), parsed_size("much")
    (0, 1500000000, 2097152, None)
    """
    size = _SIZE.fullmatch(text.strip())
    if size is None:
        return None
    power = " kmgt".index(size[2].lower() or " ")
    return int(float(size[1]) * (1024 if size[3] else 1000) ** power)


class StorageOptions(Mapping[str, str]):
    """Options for a store as plain text; `repr` and `str` show only what is known to be no secret.

    `retry_timeout` (seconds, default 120) bounds how long a failing request is tried again,
    `timeout` (30) and `connect_timeout` (5) one attempt. `cache_dir` is where blocks of remote
    files are kept on this machine, and `cache_limit` how much of them: bytes, a text such as
    "10GB" or "500 MiB", or 0 for nothing. All other names are those of the store: `endpoint`,
    `region`, `access_key_id`, `secret_access_key`, `allow_http` …

    >>> StorageOptions({"region": "eu-west-1", "secret_access_key": "hush"})
    StorageOptions({'region': 'eu-west-1', 'secret_access_key': '***'})
    """

    __slots__ = ("_checked", "_given", "_items")

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        # Nothing is checked here: a traceback that shows locals would show the caller's secrets.
        if isinstance(options, StorageOptions):
            options = dict(options._given)  # noqa: SLF001 (of this class)
        given = {} if options is None else {str(k).lower(): v for k, v in options.items()}
        self._given: _Masked = _Masked(given.items())
        self._items = _Masked(sorted((name, _text(value)) for name, value in given.items()))
        self._checked = not given

    def __getitem__(self, name: str) -> str:
        return str(dict(self._items)[name])

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageOptions) and self._items == other._items

    def __repr__(self) -> str:
        are_shown = {k: k in _SHOWN or k.endswith(_SHOWN_ENDINGS) for k, _ in self._items}
        shown = {k: without_secrets(v) if are_shown[k] else MASK for k, v in self._items}
        return f"StorageOptions({shown})"

    def redact(self, text: str) -> str:
        """Return `text` with every secret value masked."""
        hidden = {text for name, value in self._given for text in _secrets_in(name, value)}
        # The longest first: one secret may be a part of another.
        for value in sorted({*hidden, *secrets_in_environment()}, key=len, reverse=True):
            text = text.replace(value, MASK)
        return without_secrets(text)

    def check(self) -> None:
        """Raise `OptionError` for a value that cannot work."""
        if self._checked:
            return
        for name in _SECONDS:
            self._seconds(name, 0)
        _ = self.cache_limit
        for name in self:
            # The client does not refuse these two: it panics.
            if not self[name].isprintable():
                message = f"storage option {name}: it holds a line break or another such character"
                raise OptionError(message)
            if name.removesuffix("_url").endswith("endpoint") and not _is_url(self[name]):
                shown = self.redact(repr(self[name]))
                message = f"storage option {name}={shown}: expected a URL, as in https://host:9000"
                raise OptionError(message)
        self._checked = True

    @property
    def retry_timeout(self) -> float:
        """Seconds after which a failing request is given up."""
        return self._seconds("retry_timeout", 120)

    @property
    def timeout(self) -> float:
        """Seconds after which one request is given up, before it is sent again."""
        return self._seconds("timeout", 30)

    @property
    def connect_timeout(self) -> float:
        """Seconds after which a connection is given up."""
        return self._seconds("connect_timeout", 5)

    @property
    def cache_limit(self) -> int | None:
        """Bytes of blocks that are kept on this machine; None where not given."""
        given = self.get("cache_limit")
        if given is None:
            return None
        size = parsed_size(given)
        if size is None:
            message = f'storage option cache_limit={given!r}: expected bytes, or a text as "10GB"'
            raise OptionError(message)
        return size

    @property
    def place(self) -> str:
        """A text that differs for two stores with buckets of one name; without secrets."""
        found = [(k, v) for k, v in self.store_config().items() if not _is_secret(k, v)]
        return repr(found)

    def client_options(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {k: v for k, v in self._items if k in _CLIENT}
        chosen["connect_timeout"] = timedelta(seconds=self.connect_timeout)
        for name in ("read_timeout", "pool_idle_timeout"):
            if name in chosen:
                chosen[name] = timedelta(seconds=self._seconds(name, 0))
        return chosen

    def store_config(self) -> dict[str, str]:
        """Return the options of the store itself: endpoint, region, credentials."""
        return {k: v for k, v in self._items if k not in _CLIENT | _OURS}

    def as_given(self) -> dict[str, Any]:
        """Return the options of the store itself as the caller gave them, not as text."""
        return {k: v for k, v in self._given if k not in _OURS}

    def _seconds(self, name: str, default: float) -> float:
        given = self.get(name)
        if given is None:
            return default
        try:
            seconds = float(given.removesuffix("s"))
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < float("inf"):
            message = f"storage option {name}={given!r}: expected a number of seconds above 0"
            raise OptionError(message)
        return seconds


class _Masked(tuple[tuple[str, Any], ...]):
    """The items; masked as well where a traceback prints this object by itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} storage options>"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and " " not in text
        return bool(known and parts.hostname and parts.port != 0)
    except ValueError:  # No such port.
        return False


def _is_secret(name: str, value: str) -> bool:
    # A switch such as skip_signature is none, and masking "true" would garble every text. A dict is
    # for a store inside of another one.
    if value.startswith("{") and _SECRET.search(value):
        return True
    return bool(_SECRET.search(name)) and value.lower() not in ("", "true", "false")


def _secrets_in(name: str, value: Any) -> Iterator[str]:  # noqa: ANN401 (of the caller)
    """Yield the texts that are secret in an option, also inside of it."""
    if isinstance(value, Mapping):
        for inner, part in value.items():
            yield from _secrets_in(name if _SECRET.search(name) else str(inner), part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _secrets_in(name, part)
    elif _is_secret(name, text := _text(value)):
        yield text
        yield text.rpartition(" ")[2]  # "Bearer …"
    else:
        yield from secrets_in(text)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    return str(value)
