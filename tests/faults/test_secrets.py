"""A stored secret shows nowhere: not in texts, logs, tracebacks, pickled errors or files."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import OptionError, PenstockError
from penstock.jsonl import JsonlDir, JsonlFile
from penstock.storage import ObjectStore, StorageOptions, locate
from tests.faults.leaks import check_hidden, shown_by_error, shown_by_object
from tests.faults.remote import read, write
from tests.servers.faults import Fault, reset_in_body, s3_error, stall, status

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.remote import Remote
    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

KEY_ID = "PSSTkeyidPSST"
SECRET = "HUSHsecret/with+signsHUSH"
TOKEN = "SHTsessiontokenSHT"
HIDDEN = [KEY_ID, SECRET, TOKEN]
CREDENTIALS = {"access_key_id": KEY_ID, "secret_access_key": SECRET, "session_token": TOKEN}
# As AWS answers a signature that does not fit.
ECHO = (
    "<Error><Code>SignatureDoesNotMatch</Code>"
    f"<AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId>"
    f"<StringToSign>{SECRET} {TOKEN}</StringToSign></Error>"
).encode()
HASTE = {"retry_timeout": 0.05, "timeout": 0.5, "region": "us-east-1"}


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


@pytest.fixture(params=["storage options", "environment"])
def given(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options to pass, with the credentials in them or in the environment."""
    if request.param == "environment":
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(f"AWS_{name.upper()}", value)
        return dict(HASTE)
    return {**HASTE, **CREDENTIALS}


async def _download(path: str, options: dict[str, Any]) -> None:
    await JsonlFile(path, options).download()


def _write_by_path(url: str, options: dict[str, Any]) -> None:
    with penstock.writer(f"{url}/w.jsonl", storage_options=options) as sink:
        sink.write([{}])


CALLS: dict[str, Callable[[str, dict[str, Any]], object]] = {
    "read a file": lambda url, options: read(JsonlFile(f"{url}/a.jsonl", options), "sync"),
    "read a file async": lambda url, options: read(JsonlFile(f"{url}/a.jsonl", options), "async"),
    "read a compressed file": lambda url, o: read(JsonlFile(f"{url}/a.jsonl.zst", o), "sync"),
    "read a directory": lambda url, options: read(JsonlDir(url, options), "sync"),
    "read a directory async": lambda url, options: read(JsonlDir(url, options), "async"),
    "write a file": lambda url, options: write(JsonlFile(f"{url}/b.jsonl", options), [{}]),
    "write a new file": lambda url, options: write(
        JsonlFile(f"{url}/b.jsonl", options), [{}], overwrite=False
    ),
    "write a directory": lambda url, options: write(JsonlDir(f"{url}/d", options), [{}]),
    "write async": lambda url, options: write(JsonlDir(f"{url}/d", options), [{}], "async"),
    "write by path": _write_by_path,
    "Arrow": lambda url, o: list(JsonlFile(f"{url}/a.jsonl", o).iter_arrow_batches_sync()),
    "exists": lambda url, options: JsonlFile(f"{url}/a.jsonl", options).exists_sync(),
    "size": lambda url, options: JsonlFile(f"{url}/a.jsonl", options).size_sync(),
    "open": lambda url, options: JsonlFile(f"{url}/a.jsonl", options).open_sync().read(),
    "download": lambda url, options: asyncio.run(_download(f"{url}/a.jsonl", options)),
    "delete": lambda url, options: JsonlFile(f"{url}/a.jsonl", options).delete_sync(),
    "walk": lambda url, options: list(JsonlDir(url, options).walk_sync()),
}


def _check_every_call(
    url: str, options: dict[str, Any], log: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    """Make every call, each of which must fail, and look into all that it shows."""
    for name, call in CALLS.items():
        log.clear()
        with pytest.raises(kind) as raised:
            call(url, options)
        assert isinstance(raised.value, PenstockError), name
        # Without frames of ours the search would prove nothing.
        assert check_hidden(shown_by_error(raised.value), HIDDEN) > 10
        check_hidden(iter([("log", log.text)]), HIDDEN)


def test_a_dead_endpoint_shows_no_secret(
    dead_endpoint: str, given: dict[str, Any], log: pytest.LogCaptureFixture
) -> None:
    _check_every_call("s3://bucket-dead/x", {**given, "endpoint": dead_endpoint}, log, OSError)


def test_a_refusal_shows_no_secret_even_if_the_server_repeats_it(
    remote: Remote, given: dict[str, Any], log: pytest.LogCaptureFixture
) -> None:
    remote.proxy.add(Fault(status(403, ECHO, {"Content-Type": "application/xml"}), times=None))
    options = {**given, "endpoint": remote.proxy.url}
    _check_every_call(remote.url("x"), options, log, PermissionError)


@pytest.mark.parametrize("code", [400, 503])
def test_an_answer_that_nobody_expects_shows_no_secret_even_if_it_repeats_it(
    remote: Remote, given: dict[str, Any], log: pytest.LogCaptureFixture, code: int
) -> None:
    remote.proxy.add(Fault(status(code, ECHO.replace(b"Code>", b"Kode>")), times=None))
    options = {**given, "endpoint": remote.proxy.url}
    _check_every_call(remote.url("x"), options, log, OSError)


def test_a_missing_bucket_shows_no_secret(
    fault_proxy: FaultProxy, given: dict[str, Any], log: pytest.LogCaptureFixture
) -> None:
    # The server would say so to anybody whom it knows, and these credentials it does not.
    fault_proxy.add(Fault(s3_error(404, "NoSuchBucket"), times=None))
    options = {**given, "endpoint": fault_proxy.url}
    bucket = "s3://penstock-no-such-bucket"
    expected = dict(CALLS)
    # It is not there: that is the answer.
    assert expected.pop("exists")(bucket, options) is False
    for call in expected.values():
        with pytest.raises(FileNotFoundError, match="no-such-bucket") as raised:
            call(bucket, options)
        check_hidden(shown_by_error(raised.value), HIDDEN)
    check_hidden(iter([("log", log.text)]), HIDDEN)


@pytest.mark.parametrize("action", [stall(), reset_in_body(10)], ids=["stall", "reset"])
def test_a_broken_connection_shows_no_secret(
    remote: Remote,
    given: dict[str, Any],
    log: pytest.LogCaptureFixture,
    action: Any,
) -> None:
    remote.proxy.add(Fault(action, times=None))
    options = {**given, "endpoint": remote.proxy.url}
    for name in ("read a directory", "read a directory async"):
        with pytest.raises(OSError, match="cannot list") as raised:
            CALLS[name](remote.url("x"), options)
        check_hidden(shown_by_error(raised.value), HIDDEN)
    check_hidden(iter([("log", log.text)]), HIDDEN)


@pytest.mark.parametrize(
    "bad",
    [
        {"timeout": "soon"},
        {"retry_timeout": -1},
        {"no_such_option": "x"},
        {"endpoint": "not a url"},
        {"proxy_url": "::"},
        {"allow_http": "perhaps"},
        {"virtual_hosted_style_request": "perhaps"},
    ],
    ids=str,
)
def test_a_bad_option_shows_no_secret(
    given: dict[str, Any], bad: dict[str, Any], log: pytest.LogCaptureFixture
) -> None:
    _check_every_call("s3://bucket-bad/x", {**given, **bad}, log, Exception)


@pytest.mark.parametrize(
    "make",
    [
        lambda options: JsonlFile("nowhere://x/a.jsonl", options),
        lambda options: JsonlDir("nowhere://x/a", options),
        lambda options: JsonlFile.new_remote("a", storage_options={**options, "timeout": "soon"}),
        lambda options: JsonlDir.new_remote("a", storage_options={**options, "timeout": "soon"}),
        lambda options: JsonlFile.from_existing_remote("nowhere://x/a", storage_options=options),
        lambda options: JsonlDir.from_local_sync(".", "nowhere://x/a", storage_options=options),
        lambda options: penstock.writer("nowhere://x/a.jsonl", storage_options=options),
        lambda options: penstock.writer("a.parquet", storage_options=options),
        lambda options: penstock.writer("a.jsonl", storage_options=options, flush_bytes=-1),
        lambda options: JsonlDir("s3://b", options).writer_sync(max_bytes_per_shard=-1),
        lambda options: locate("nowhere://x", StorageOptions(options)),
    ],
    ids=range(11),
)
def test_what_cannot_be_made_shows_no_secret(make: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(OptionError) as raised:
        make({**HASTE, **CREDENTIALS})
    assert check_hidden(shown_by_error(raised.value), HIDDEN) > 6


def test_objects_show_no_secret_of_theirs() -> None:
    options = {**HASTE, **CREDENTIALS}
    file, folder = JsonlFile("s3://b/a.jsonl", options), JsonlDir("s3://b/d", options)
    store = ObjectStore("s3://b", StorageOptions(options))
    shown = [
        file,
        folder,
        store,
        file.storage_options,
        folder.writer_sync(),
        file.writer_sync(),
        store.draft("d", "x"),
        file.source(),
        pickle.loads(pickle.dumps(file)),
        file.iter_records_sync(),
        file.iter_records(),
        folder.iter_batches_sync(),
        store.client(),
        store.client(repeats=False),
    ]
    for value in shown:
        check_hidden(shown_by_object(value), HIDDEN)
        check_hidden(shown_by_object(getattr(value, "__dict__", None)), HIDDEN)
    assert "us-east-1" in repr(file)


def _unnamed_files() -> dict[str, bytes]:
    """Return the content of the files without a name that this process holds open."""
    found = {}
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = os.readlink(descriptor)  # noqa: PTH115 (the text is no path any more)
            if "(deleted)" in target:
                found[target] = descriptor.read_bytes()
    return found


def test_no_file_that_is_written_holds_a_secret(
    s3_server: S3Server,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    options = dict(s3_server.storage_options)
    secrets = [s3_server.secret_access_key]
    remote_dir = JsonlDir(f"s3://{bucket}/d", options)
    with (
        remote_dir.writer_sync(".jsonl.zst", max_records_per_shard=10) as shards,
        JsonlFile(f"s3://{bucket}/a.jsonl", options).writer_sync() as file,
        JsonlDir(tmp_path / "local", options).writer_sync() as local,
    ):
        for writer in (shards, file, local):
            writer.write_many({"n": n} for n in range(25))
            writer.flush()
        spools = _unnamed_files()
        assert len(spools) >= 2
        assert any(b'{"n":24}' in content for content in spools.values())
        check_hidden(((name, data.decode("latin-1")) for name, data in spools.items()), secrets)
        _check_files(tmp_path, secrets, at_least=1)
    remote_dir.download_sync()
    _check_files(tmp_path, secrets, at_least=4)
    client = s3_server.client()
    for key in s3_server.list_keys(bucket):
        head = client.head_object(Bucket=bucket, Key=key)
        check_hidden(iter([(key, f"{head['Metadata']} {head['ContentType']}")]), secrets)
        check_hidden(iter([(key, s3_server.get(bucket, key).decode("latin-1"))]), secrets)
    client.close()
    ours = [record for record in log.records if record.name.startswith("penstock")]
    check_hidden(((r.name, f"{r.getMessage()} {r.args}") for r in ours), secrets)


def _check_files(root: Path, secrets: list[str], at_least: int) -> None:
    files = [path for path in root.rglob("*") if path.is_file()]
    assert len(files) >= at_least
    check_hidden(((str(p), p.read_bytes().decode("latin-1") + p.name) for p in files), secrets)
