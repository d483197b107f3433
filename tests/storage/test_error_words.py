"""Errors of the operating system and of object stores, told to the person who will see them."""

from __future__ import annotations

import errno
import itertools
import os
import pickle

import pytest
from obstore.exceptions import (
    AlreadyExistsError,
    GenericError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
)

from penstock.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    StorageError,
    StoragePermissionError,
    StorageTimeoutError,
)
from penstock.storage import StorageOptions
from penstock.storage._local_errors import translated
from penstock.storage._object_errors import ConflictError, is_passing, object_error

KINDS = {
    errno.ENOENT: ObjectNotFoundError,
    errno.ENOTDIR: ObjectNotFoundError,
    errno.EEXIST: ObjectExistsError,
    errno.EACCES: StoragePermissionError,
    errno.EPERM: StoragePermissionError,
    errno.EROFS: StoragePermissionError,
}
SAID = "Generic S3 error: Error performing GET http://h/b/k in 4ms - Server returned non-2xx "
DUMP = "Generic S3 error: HTTP error: request or response body error\n\nDebug source:\n  kind: {}"


@pytest.mark.parametrize("number", sorted(errno.errorcode), ids=errno.errorcode.get)
def test_every_error_of_the_system_names_the_path_and_keeps_its_number(number: int) -> None:
    with pytest.raises(OSError, match="/some/path") as raised, translated("/some/path", "write"):
        raise OSError(number, os.strerror(number))
    failure = raised.value
    assert isinstance(failure, StorageError)
    assert failure.errno == number
    assert failure.path == "/some/path"
    assert str(failure).startswith("cannot write /some/path: ")
    # It is what Python would have raised, too.
    builtin = type(OSError(number, ""))
    if number in KINDS:
        assert isinstance(failure, KINDS[number])
        if builtin in (FileNotFoundError, FileExistsError, PermissionError):
            assert isinstance(failure, builtin)
    copy = pickle.loads(pickle.dumps(failure))
    assert (type(copy), str(copy), copy.errno) == (type(failure), str(failure), number)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE])
def test_what_a_user_can_mend_comes_with_the_remedy(number: int) -> None:
    with pytest.raises(StorageError, match=r"free space|ulimit"), translated("/some/path", "write"):
        raise OSError(number, os.strerror(number))


def test_our_own_errors_and_those_of_others_pass_as_they_are() -> None:
    ours = ObjectChangedError("as it is", path="/x")
    with pytest.raises(ObjectChangedError) as raised, translated("/some/path", "read"):
        raise ours
    assert raised.value is ours
    with pytest.raises(LookupError), translated("/some/path", "read"):
        raise LookupError


def _told(failure: Exception, **options: object) -> Exception:
    what = "s3://b/k (1) (bytes 0 to 5)"
    return object_error(failure, "read", what, StorageOptions(options))


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (FileNotFoundError("Object at location k not found"), ObjectNotFoundError, "no such"),
        (
            FileNotFoundError("404 Not Found: <Code>NoSuchBucket</Code>"),
            ObjectNotFoundError,
            "the bucket does not exist",
        ),
        (
            GenericError(SAID + "status code: 404 Not Found: <Code>NoSuchBucket</Code>"),
            ObjectNotFoundError,
            "the bucket does not exist",
        ),
        (
            GenericError(SAID + "status code: 403 Forbidden: <Code>AccessDenied</Code>"),
            StoragePermissionError,
            "403 AccessDenied",
        ),
        (PermissionDeniedError("no"), StoragePermissionError, "credentials"),
        (AlreadyExistsError("yes"), ObjectExistsError, "taken"),
        (PreconditionError("412"), ObjectChangedError, "replaced while it was being read"),
        (GenericError(SAID + "status code: 503 Slow"), StorageError, "503"),
        (GenericError(DUMP.format("Interrupted")), StorageError, "the connection broke"),
        (GenericError(DUMP.format("Connect")), StorageError, "check the endpoint"),
        (GenericError(DUMP.format("Timeout")), StorageTimeoutError, "did not answer in time"),
        (ConnectionError("5 bytes asked for, 3 received"), StorageError, "3 received"),
        (NotSupportedError("not here\n\nDebug source"), StorageError, "not here."),
        (NotSupportedError("no: Range request not supported by"), StorageError, "ignores ranges"),
    ],
    ids=itertools.count(),
)
def test_what_a_store_says_is_told_in_our_words(
    failure: Exception, kind: type[StorageError], words: str
) -> None:
    told = _told(failure)
    assert type(told) is kind
    assert str(told).startswith("cannot read s3://b/k (1) (bytes 0 to 5): ")
    assert words in str(told)
    assert told.path == "s3://b/k (1)"
    assert "Debug source" not in str(told)
    assert "\n" not in str(told)


@pytest.mark.parametrize("failure", [OptionError("ours"), LookupError("unknown")])
def test_what_is_ours_or_unknown_passes_as_it_is(failure: Exception) -> None:
    assert _told(failure) is failure


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (FileNotFoundError, errno.ENOENT),
        (PermissionDeniedError, errno.EACCES),
        (AlreadyExistsError, errno.EEXIST),
    ],
)
def test_errors_of_objects_have_the_numbers_that_files_have(
    kind: type[Exception], number: int
) -> None:
    told = _told(kind("text"))
    assert isinstance(told, OSError)
    assert told.errno == number


def test_what_a_server_copies_into_its_answer_is_not_passed_on() -> None:
    body = "<Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>PSST</AWSAccessKeyId><X>HUSH</X>"
    told = _told(
        GenericError(SAID + f"status code: 403 Forbidden: {body}"),
        access_key_id="PSST",
        secret_access_key="HUSH",
    )
    assert "SignatureDoesNotMatch" in str(told)
    assert "PSST" not in str(told)
    assert "HUSH" not in str(told)


@pytest.mark.parametrize("code", [500, 502, 503, 504, 429, 408])
def test_throttling_and_trouble_of_the_server_pass(code: int) -> None:
    assert is_passing(GenericError(SAID + f"status code: {code} Words"))


@pytest.mark.parametrize("kind", ["Interrupted", "Timeout", "Connect"])
def test_trouble_of_the_network_passes(kind: str) -> None:
    assert is_passing(GenericError(DUMP.format(kind)))
    assert is_passing(ConnectionError("cut off"))
    assert is_passing(ConflictError())


@pytest.mark.parametrize(
    "failure",
    [
        *(GenericError(SAID + f"status code: {code} Words") for code in (400, 403, 404, 416)),
        GenericError("Generic S3 error: not a network's"),
        PermissionDeniedError(""),
        AlreadyExistsError(""),
        PreconditionError(""),
        FileNotFoundError(""),
        ValueError(""),
    ],
    ids=lambda failure: f"{type(failure).__name__}{str(failure)[-10:]}",
)
def test_the_rest_does_not_pass(failure: Exception) -> None:
    assert not is_passing(failure)


def test_only_what_was_repeated_says_that_it_was() -> None:
    passing = _told(GenericError(SAID + "status code: 503 Slow"), retry_timeout=7)
    assert "given up after 7 s" in str(passing)
    lasting = _told(GenericError(SAID + "status code: 400 Bad"), retry_timeout=7)
    assert "given up" not in str(lasting)
