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
from penstock.lightning import EngineOptions
from penstock.storage import ObjectStore, StorageOptions, locate
from tests.cli.commands import invoke
from tests.faults.leaks import check_hidden, shown_by_error, shown_by_object
from tests.faults.remote import read, write
from tests.servers.faults import Fault, reset_in_body, s3_error, stall, status

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.remote import Remote
    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.http_files import HttpFiles
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


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Authorization": f"Bearer {SECRET}"}},
        {"client_kwargs": {"headers": {"x-api-key": SECRET}}},
        {"auth": ("me", SECRET)},
        {"endpoint": f"https://objects.example/?token={SECRET}"},
        {"endpoint": f"https://{TOKEN}@objects.example"},
        {"proxy_url": f"http://me:{TOKEN}@proxy"},
        {"fo": f"https://me:{TOKEN}@host/a.zip"},
        {"anything_else": SECRET},
    ],
    ids=range(8),
)
def test_no_value_of_an_option_that_may_be_secret_shows(options: dict[str, Any]) -> None:
    given = {**options, "region": "eu-west-1", "timeout": 7}
    folder = JsonlDir("s3://b/d", given)
    for value in (folder, folder.storage_options, EngineOptions(storage_options=given)):
        check_hidden(shown_by_object(value), HIDDEN)
    assert "'region': 'eu-west-1', 'timeout': '7'" in repr(folder)
    if min(options) != "anything_else":
        said = StorageOptions(given).redact(f"the server repeats {options}")
        check_hidden(iter([("error", said)]), HIDDEN)


PLACES = [
    f"https://127.0.0.1:1/a.jsonl?page=1&X-Amz-Credential={TOKEN}&X-Amz-Signature={TOKEN}",
    f"https://127.0.0.1:1/a.jsonl?sv=2024&sig={TOKEN}",
    f"https://me:{TOKEN}@127.0.0.1:1/a.jsonl",
    f"https://{TOKEN}@127.0.0.1:1/a.jsonl",
    f"s3://{TOKEN}@bucket/a.jsonl",
    f"hf://{TOKEN}@datasets/me/data/a.jsonl",
    f"ftp://{TOKEN}@127.0.0.1:1/a.jsonl",
    f"nosuch://{TOKEN}@127.0.0.1:1/a.jsonl",
]


@pytest.mark.parametrize("path", PLACES, ids=range(8))
def test_no_error_repeats_the_user_or_the_signature_of_a_url(
    path: str, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    calls: list[Callable[[], object]] = [
        lambda: penstock.open(path, storage_options={"retry_timeout": 0.01, "timeout": 1}),
        lambda: list(JsonlFile(path, {"retry_timeout": 0.01, "timeout": 1}).iter_records_sync()),
        lambda: penstock.writer(path),
    ]
    for call in calls:
        with pytest.raises(PenstockError) as raised:
            call()
        shown = [(str(at), text) for at, text in shown_by_error(raised.value)]
        check_hidden(((at, text) for at, text in shown if not at.startswith("local")), HIDDEN)
    assert TOKEN not in invoke("info", path, "-o", "retry_timeout=0.01").output
    check_hidden(iter([("log", log.text)]), HIDDEN)


def test_a_signed_url_is_read_and_shows_nowhere(
    web: HttpFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    signed = f"?X-Amz-Credential={TOKEN}&X-Amz-Signature={TOKEN}"
    url = web.put("/a.jsonl", b'{"n":1}\n{"n":2}\n{"n":3}\n') + signed
    bad = web.put("/bad.jsonl", b'{"n":1}\nbad\n') + signed
    table = web.put("/a.csv", b"n,m\n1,2\n3,4\n") + signed
    source = penstock.open(url)
    loader = penstock.DataLoader(source, {"n": "int64"}, batch_size=2)
    assert next(iter(loader))["n"].tolist() == [1, 2]
    shown = {
        "source": (repr(source), source._repr_html_()),
        "view": repr(source.where("n > 1") + source),
        "columns": repr(source.materialize(["n"])),
        "loader": (repr(loader), loader.explain(), loader.explain(step=0)),
        "state": (loader.state_dict(), loader.stats()),
        "file": (JsonlFile(url), JsonlFile(url).iter_records_sync()),
    }
    list(JsonlFile(bad).iter_records_sync(on_error="skip"))
    for verb in ("info", "show", "check", "profile"):
        for path in (url, bad, table):
            shown[f"{verb} of {path}"] = invoke(verb, path).output
            shown[f"{verb} of {path} as JSON"] = invoke(verb, path, "--json").output
    shown["plan"] = invoke("plan", url, "--batch-size", 2, "--step", "0", "--show").output
    check_hidden(((where, str(text)) for where, text in shown.items()), HIDDEN)
    ours = (record for record in log.records if record.name.startswith("penstock"))
    check_hidden(((each.name, each.getMessage()) for each in ours), HIDDEN)
    assert "bad.jsonl?X-Amz-Credential=***&X-Amz-Signature=***, line 2" in log.text
