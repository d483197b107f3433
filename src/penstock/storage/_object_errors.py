"""Errors of an object store's client, in plain words and without secrets.

The client keeps the cause in free text: a status line with the server's XML body, or a dump
that names the kind of network failure. Only what is recognised is passed on, because servers
copy parts of the request, credentials included, into their answers.
"""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from penstock.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    PenstockError,
    StorageError,
    StoragePermissionError,
    StorageTimeoutError,
)
from penstock.storage._schemes import HTTP_SCHEMES, scheme_of

if TYPE_CHECKING:
    from penstock.storage._options import StorageOptions

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_KIND = re.compile(r"kind: (Timeout|Connect|Interrupted|Request|Decode)\b")
_PASSING_CLIENT_ERRORS = {"408", "429"}
_THROTTLING = {"429", "503"}
_NETWORK = {
    "Timeout": "the server did not answer in time",
    "Connect": "no connection to the server; check the endpoint and that it is up",
    "Interrupted": "the connection broke",
}
_NO_RANGES = (
    "the server ignores ranges and sends whole files. Download it, or serve it by a server that "
    "knows Range"
)
_ERRNO: dict[type[PenstockError], int] = {
    ObjectExistsError: errno.EEXIST,
    ObjectNotFoundError: errno.ENOENT,
    StoragePermissionError: errno.EACCES,
    StorageTimeoutError: errno.ETIMEDOUT,
}


class ConflictError(ConnectionError):
    """A conditional request met another one under way; it has to be sent again."""


def is_passing(failure: Exception) -> bool:
    """Whether the same request may succeed when it is sent again."""
    if isinstance(failure, ConnectionError):
        return True
    if not isinstance(failure, GenericError):
        return False
    text = str(failure)
    if (status := _STATUS.search(text)) is None:
        # Without an answer only the network's failures pass; the rest fails again at once.
        return _KIND.search(text) is not None
    return status[1].startswith("5") or status[1] in _PASSING_CLIENT_ERRORS


def is_throttled(failure: Exception) -> bool:
    """Whether the server answered that it is asked too much."""
    status = _STATUS.search(str(failure)) if isinstance(failure, GenericError) else None
    return status is not None and status[1] in _THROTTLING


def object_error(
    failure: BaseException, verb: str, what: str, options: StorageOptions
) -> BaseException:
    """Return the error to raise for a failure: itself where it is not the client's."""
    text = str(failure)
    code = _CODE.search(text)
    status = _STATUS.search(text)
    answer = " ".join(match[1] for match in (status, code) if match)
    said = f" (the server said: {answer})" if answer else ""
    first_line = options.redact(text.partition("\n")[0])
    kind: type[PenstockError] = StorageError
    if isinstance(failure, FileNotFoundError) or (status and status[1] == "404"):
        kind = ObjectNotFoundError
        bucket = code is not None and code[1] in ("NoSuchBucket", "ContainerNotFound")
        why = "the bucket does not exist" if bucket else _nothing_at(what)
    elif isinstance(failure, (PermissionDeniedError, UnauthenticatedError)) or (
        status and status[1] in ("401", "403")
    ):
        kind = StoragePermissionError
        why = f"access denied{said}; check the credentials and what they may do"
    elif isinstance(failure, AlreadyExistsError):
        kind, why = ObjectExistsError, "the name is taken"
    elif isinstance(failure, PreconditionError) or (status and status[1] == "412"):
        kind, why = ObjectChangedError, "it was replaced while it was being read; open it again"
    elif isinstance(failure, GenericError | ConnectionError):
        network = _KIND.search(text)
        reason = _NETWORK.get(network[1], "the connection failed") if network else ""
        if network and network[1] == "Timeout":
            kind = StorageTimeoutError
        why = reason or said.strip(" ()") or first_line
        if is_passing(failure):
            seconds = f"{options.retry_timeout:g} s"
            why += f"; given up after {seconds} of trying (storage option retry_timeout)"
    elif isinstance(failure, BaseError):
        why = _NO_RANGES if "Range request not supported" in text else first_line
    elif type(failure).__name__ == "PanicException":
        kind = OptionError
        why = (
            f"the client does not understand its options ({first_line}); check the endpoint, "
            "region and credentials, also those in environment variables"
        )
    else:
        return failure
    path = what.partition(" (bytes ")[0]
    return kind(f"cannot {verb} {what}: {why}.", path=path, errno=_ERRNO.get(kind))


def _nothing_at(what: str) -> str:
    if scheme_of(what) in HTTP_SCHEMES:
        return "the server has no such file"
    return "there is no such object, or no such bucket"
