"""Reading from S3 while the server or the network fails: recovered from, or a clear error."""

from __future__ import annotations

import io
import itertools
import json
import random
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from pyzstd import SeekableZstdFile

from penstock.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    StorageTimeoutError,
)
from penstock.jsonl import JsonlDir, JsonlFile
from tests.faults.remote import ORDERLY, Meanwhile, MeanwhileInBody, lines, read, write
from tests.servers.faults import (
    Action,
    Fault,
    reset_before_request,
    reset_in_body,
    s3_error,
    stall,
    status,
    truncate_body,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.remote import Mode, Remote
    from tests.servers.fault_proxy import FaultProxy

MODES = pytest.mark.parametrize("mode", ["sync", "async"])
# One request brings 8 MiB, so this takes two.
BIG = [{"n": n, "text": f"{n:06d}" * 10_000} for n in range(145)]
SHARDS = 6
SMALL = [{"n": n} for n in range(10 * SHARDS)]
PASSING: dict[str, Action] = {
    "503": s3_error(503, "SlowDown"),
    "500": s3_error(500, "InternalError"),
    "429": status(429),
    "reset before": reset_before_request(),
    "reset in the body": reset_in_body(100_000),
    "body cut short": truncate_body(100_000),
    "stall": stall(),
}
ASYNC = ("503", "reset in the body", "body cut short")
CASES = [("sync", name) for name in PASSING] + [("async", name) for name in ASYNC]
EVERY_PASSING = pytest.mark.parametrize(("mode", "trouble"), CASES)


@pytest.fixture(scope="module")
def big() -> bytes:
    return lines(BIG)


@pytest.fixture
def shards(remote: Remote) -> Remote:
    for number in range(SHARDS):
        part = lines(SMALL[10 * number : 10 * number + 10])
        remote.put(f"dir/part-{number:05d}.jsonl", part)
    return remote


@EVERY_PASSING
def test_a_file_is_read_through_trouble_that_passes(
    remote: Remote, big: bytes, mode: Mode, trouble: str
) -> None:
    remote.put("big.jsonl", big)
    at_first = remote.proxy.add(Fault(PASSING[trouble], "GET", "big.jsonl"))
    in_the_middle = remote.proxy.add(Fault(PASSING[trouble], "GET", "big.jsonl", after=1))
    assert read(remote.file("big.jsonl", timeout=0.5), mode) == BIG
    assert (at_first.applied, in_the_middle.applied) == (1, 1)


@EVERY_PASSING
def test_a_directory_is_read_through_trouble_that_passes(
    shards: Remote, mode: Mode, trouble: str
) -> None:
    faults = [
        shards.proxy.add(Fault(PASSING[trouble], "GET", name))
        for name in ("list-type=2", "part-00000", "part-00003")
    ]
    assert read(shards.dir("dir", timeout=0.5), mode) == SMALL
    assert [fault.applied for fault in faults] == [1, 1, 1]


@MODES
@pytest.mark.parametrize("action", [reset_in_body(200), truncate_body(200)], ids=["reset", "cut"])
def test_a_listing_that_breaks_off_is_begun_again_and_lists_each_shard_once(
    shards: Remote, mode: Mode, action: Action
) -> None:
    fault = shards.proxy.add(Fault(action, "GET", "list-type=2", times=2))
    assert read(shards.dir("dir"), mode) == SMALL
    assert fault.applied == 2
    assert shards.proxy.count("GET", "list-type=2") == 3


LASTING: dict[str, tuple[Action, type[StorageError], str]] = {
    "503": (s3_error(503, "SlowDown"), StorageError, "503 SlowDown"),
    "reset": (reset_in_body(10_000), StorageError, "the connection broke"),
    "stall": (stall(), StorageTimeoutError, "did not answer in time"),
    "403": (s3_error(403, "AccessDenied"), StoragePermissionError, "403 AccessDenied"),
}


@pytest.mark.parametrize(
    ("mode", "trouble"),
    [*(("sync", name) for name in LASTING), ("async", "503"), ("async", "reset")],
)
def test_trouble_that_lasts_ends_in_an_error_behind_the_records_that_came(
    remote: Remote, big: bytes, mode: Mode, trouble: str
) -> None:
    action, kind, words = LASTING[trouble]
    remote.put("big.jsonl", big)
    fault = remote.proxy.add(Fault(action, "GET", "big.jsonl", times=None, after=1))
    seen: list[Any] = []
    with pytest.raises(StorageError) as raised:
        read(remote.file("big.jsonl", retry_timeout=0.5, timeout=2), mode, seen)
    assert fault.applied >= 1
    assert type(raised.value) is kind
    assert words in str(raised.value)
    assert f"{remote.url('big.jsonl')} (bytes 8,388,608 to {len(big):,})" in str(raised.value)
    assert seen == BIG[: len(seen)]
    # All whole lines of the first request, and nothing more.
    assert len(seen) == big[: 8 << 20].count(b"\n")


@MODES
def test_an_error_in_one_shard_comes_at_its_place_and_names_it(shards: Remote, mode: Mode) -> None:
    shards.proxy.add(Fault(s3_error(503, "SlowDown"), "GET", "part-00003", times=None))
    seen: list[Any] = []
    with pytest.raises(StorageError, match=r"part-00003\.jsonl"):
        read(shards.dir("dir", retry_timeout=0.5), mode, seen)
    assert seen == SMALL[:30]


@MODES
def test_a_listing_that_fails_for_good_names_the_directory(shards: Remote, mode: Mode) -> None:
    shards.proxy.add(Fault(reset_in_body(10), "GET", "list-type=2", times=None))
    with pytest.raises(StorageError, match=f"cannot list {shards.url('dir')}"):
        read(shards.dir("dir", retry_timeout=0.5), mode)


@MODES
@pytest.mark.parametrize("ending", [None, ORDERLY], ids=["between requests", "in a body"])
def test_a_file_replaced_while_it_is_read_is_an_error_and_never_a_mixture(
    remote: Remote, big: bytes, mode: Mode, ending: type[Exception] | None
) -> None:
    remote.put("big.jsonl", big)
    newer = lines({**record, "new": True} for record in BIG)

    def replace() -> None:
        remote.put("big.jsonl", newer)

    action = MeanwhileInBody(replace, ending) if ending else Meanwhile(replace)
    fault = remote.proxy.add(Fault(action, "GET", "big.jsonl", after=1))
    seen: list[Any] = []
    with pytest.raises(ObjectChangedError) as raised:
        read(remote.file("big.jsonl"), mode, seen)
    assert fault.applied == 1
    assert remote.url("big.jsonl") in str(raised.value)
    assert "open it again" in str(raised.value)
    assert seen == BIG[: len(seen)]
    assert read(remote.file("big.jsonl"), mode)[0] == {**BIG[0], "new": True}


@MODES
def test_a_shard_replaced_after_the_listing_is_an_error(shards: Remote, mode: Mode) -> None:
    shards.proxy.add(
        Fault(Meanwhile(lambda: shards.put("dir/part-00002.jsonl", b"{}\n")), "GET", "part-00002")
    )
    seen: list[Any] = []
    with pytest.raises(ObjectChangedError, match="part-00002"):
        read(shards.dir("dir"), mode, seen)
    assert seen == SMALL[:20]


@MODES
def test_a_shard_deleted_after_the_listing_is_an_error(shards: Remote, mode: Mode) -> None:
    gone = JsonlFile(shards.url("dir/part-00002.jsonl"), shards.server.storage_options)
    shards.proxy.add(Fault(Meanwhile(gone.delete_sync), "GET", "part-00002"))
    seen: list[Any] = []
    with pytest.raises(ObjectNotFoundError, match="part-00002"):
        read(shards.dir("dir"), mode, seen)
    assert seen == SMALL[:20]


@MODES
@pytest.mark.parametrize("extension", [".jsonl", ".jsonl.zst"])
def test_reading_a_directory_costs_one_listing_and_one_get_a_shard(
    remote: Remote, mode: Mode, extension: str
) -> None:
    direct = JsonlDir(remote.url("dir"), remote.server.storage_options)
    write(direct, SMALL, shard_extension=extension, max_records_per_shard=10)
    assert read(remote.dir("dir"), mode) == SMALL
    proxy = remote.proxy
    assert proxy.count("GET", "list-type=2") == 1
    assert proxy.count("GET", "part-") == SHARDS
    assert proxy.count() == 1 + SHARDS


@MODES
def test_reading_a_file_costs_one_head_and_as_few_gets_as_its_size_needs(
    remote: Remote, big: bytes, mode: Mode
) -> None:
    remote.put("big.jsonl", big)
    assert read(remote.file("big.jsonl"), mode) == BIG
    assert remote.proxy.count("HEAD") == 1
    assert remote.proxy.count("GET") == -(-len(big) // (8 << 20)) == 2


@MODES
def test_a_large_compressed_file_is_read_in_ranges_and_no_byte_twice(
    remote: Remote, mode: Mode
) -> None:
    chance = random.Random(0)
    records = [{"n": n, "text": chance.randbytes(50_000).hex()} for n in range(200)]
    direct = JsonlFile(remote.url("big.jsonl.zst"), remote.server.storage_options)
    write(direct, records)
    size = direct.size_sync()
    assert size > 8 << 20
    fault = remote.proxy.add(Fault(reset_in_body(100_000), "GET", "big", after=2))
    assert read(remote.file("big.jsonl.zst"), mode) == records
    assert fault.applied == 1
    asked = sorted(_range(r.range) for r in remote.proxy.requests if r.range)
    # The table of frames at the end, its last bytes first; and what broke off, asked for again.
    frames = [each for each in asked if each[1] - each[0] > 1 << 20]
    assert len(frames) <= 5
    covered = 0
    for start, end in frames:
        assert start <= covered
        covered = max(covered, end)
    assert covered >= size - 20_000


def _range(text: str) -> tuple[int, int]:
    start, _, end = text.removeprefix("bytes=").partition("-")
    return int(start), int(end) + 1


@MODES
def test_a_seekable_compressed_file_on_s3_is_read_by_others_from_the_middle(
    remote: Remote, mode: Mode
) -> None:
    write(remote.file("a.jsonl.zst"), BIG, mode)
    assert read(remote.file("a.jsonl.zst"), mode) == BIG
    with SeekableZstdFile(io.BytesIO(remote.get("a.jsonl.zst"))) as file:
        text = file.read()
        assert [json.loads(line) for line in text.splitlines()] == BIG
        middle = text.index(b"\n", len(text) // 2) + 1
        file.seek(middle)
        assert json.loads(file.readline()) in BIG[70:75]


@MODES
def test_a_bucket_that_does_not_exist_is_named(fault_proxy: FaultProxy, mode: Mode) -> None:
    options = fault_proxy.storage_options
    bucket = "penstock-no-such-bucket"
    with pytest.raises(FileNotFoundError, match=bucket) as of_file:
        read(JsonlFile(f"s3://{bucket}/a.jsonl", options), mode)
    with pytest.raises(FileNotFoundError, match=f"{bucket}.*: the bucket does not exist") as of_dir:
        read(JsonlDir(f"s3://{bucket}/d", options), mode)
    assert isinstance(of_file.value, ObjectNotFoundError)
    assert isinstance(of_dir.value, ObjectNotFoundError)
    assert not JsonlFile(f"s3://{bucket}/a.jsonl", options).exists_sync()
    assert not JsonlDir(f"s3://{bucket}/d", options).exists_sync()


@MODES
def test_what_is_missing_from_a_bucket_is_named(remote: Remote, mode: Mode) -> None:
    for source in (remote.file("a.jsonl"), remote.dir("d")):
        with pytest.raises(ObjectNotFoundError, match=source.path):
            read(source, mode)


@MODES
def test_a_dead_endpoint_is_given_up(dead_endpoint: str, mode: Mode) -> None:
    options = {
        "endpoint": dead_endpoint,
        "access_key_id": "a",
        "secret_access_key": "b",
        "region": "us-east-1",
        "retry_timeout": 0.5,
    }
    file, folder = JsonlFile("s3://bucket/a.jsonl", options), JsonlDir("s3://bucket/d", options)
    for source in (file, folder):
        with pytest.raises(StorageError, match=r"bucket.*check the endpoint") as raised:
            read(source, mode)
        assert "given up after 0.5 s" in str(raised.value)


@pytest.mark.parametrize(
    "call",
    [
        JsonlFile.exists_sync,
        JsonlFile.size_sync,
        JsonlFile.delete_sync,
        JsonlFile.download_sync,
        lambda file: file.open_sync("rb").read(),
    ],
    ids=itertools.count(),
)
def test_every_other_call_gives_a_dead_endpoint_up_too(dead_endpoint: str, call: Any) -> None:
    options = {"endpoint": dead_endpoint, "access_key_id": "a", "secret_access_key": "b"}
    file = JsonlFile("s3://bucket/a.jsonl", {**options, "retry_timeout": 0.3})
    with pytest.raises(StorageError, match=r"s3://bucket/a\.jsonl: no connection to the server"):
        call(file)


@MODES
def test_a_wrong_secret_is_a_permission_error_where_the_server_looks_at_it(
    shards: Remote, mode: Mode, pytestconfig: pytest.Config
) -> None:
    file = shards.file("dir/part-00000.jsonl", secret_access_key="wrong")
    folder = shards.dir("dir", secret_access_key="wrong")
    if pytestconfig.getoption("--s3-server") == "moto":
        # moto takes any signature for a good one.
        assert read(file, mode) == SMALL[:10]
        assert read(folder, mode) == SMALL
        return
    for source in (file, folder):
        with pytest.raises(PermissionError, match="access denied") as raised:
            read(source, mode)
        assert isinstance(raised.value, StoragePermissionError)
        assert "wrong" not in str(raised.value)
        with pytest.raises(PermissionError):
            write(source, [{}], mode)
    with pytest.raises(PermissionError):
        file.exists_sync()


def test_a_download_that_fails_leaves_nothing_behind(
    shards: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shards.proxy.add(Fault(s3_error(403, "AccessDenied"), "GET", "part-00002", times=None))
    for download in (
        shards.file("dir/part-00002.jsonl").download_sync,
        shards.file("missing.jsonl").download_sync,
        shards.dir("dir").download_sync,
    ):
        with pytest.raises(StorageError):
            download()
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(StoragePermissionError):
        shards.dir("dir").download_sync(tmp_path / "mine")
    # What came whole may stay where the user wanted it; a part of a file never.
    names = sorted(path.name for path in (tmp_path / "mine").iterdir())
    assert names == ["part-00000.jsonl", "part-00001.jsonl"]


@MODES
def test_refused_requests_are_not_repeated(shards: Remote, mode: Mode) -> None:
    shards.proxy.add(Fault(s3_error(403, "AccessDenied"), "GET", times=None))
    with pytest.raises(StoragePermissionError, match=f"list {shards.url('dir')}"):
        read(shards.dir("dir"), mode)
    assert shards.proxy.count("GET") == 1
