"""Writing to S3 while the server or the network fails: each record once, or a clear error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    StorageError,
    StoragePermissionError,
    StorageTimeoutError,
)
from penstock.jsonl import JsonlDir, JsonlFile
from tests.faults.remote import Meanwhile, read, write
from tests.servers.faults import (
    Action,
    Fault,
    lose_response,
    reset_before_request,
    reset_during_upload,
    s3_error,
    stall,
    status,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.remote import Mode, Remote
    from tests.servers.fault_proxy import FaultProxy

MODES = pytest.mark.parametrize("mode", ["sync", "async"])
RECORDS = [{"n": n, "text": f"{n:06d}" * 100} for n in range(200)]
PASSING: dict[str, Action] = {
    "503": s3_error(503, "SlowDown"),
    "500": s3_error(500, "InternalError"),
    "429": status(429),
    "500 after all": s3_error(500, "InternalError", after_success=True),
    "reset before": reset_before_request(),
    "reset during the upload": reset_during_upload(20_000),
    "lost response": lose_response(),
    "stall": stall(),
}
# Only a conditional request can meet these, and they say that nobody knows who won.
CONFLICTS: dict[str, Action] = {
    "409": s3_error(409, "ConditionalRequestConflict"),
    "409 after all": s3_error(409, "ConditionalRequestConflict", after_success=True),
    "412 for nothing": s3_error(412, "PreconditionFailed"),
    "412 after all": s3_error(412, "PreconditionFailed", after_success=True),
}
ASYNC = ("503", "lost response", "reset during the upload")
LINE = json.dumps({"text": "x" * 1000}).encode() + b"\n"
PIECE = LINE * 4000
PIECES = 17
PART_BYTES = 16 << 20


@pytest.mark.parametrize(
    ("mode", "trouble"),
    [("sync", name) for name in PASSING] + [("async", name) for name in ASYNC],
)
def test_a_file_is_published_through_trouble_that_passes(
    remote: Remote, mode: Mode, trouble: str
) -> None:
    fault = remote.proxy.add(Fault(PASSING[trouble], "PUT"))
    write(remote.file("a.jsonl", timeout=0.5), RECORDS, mode)
    assert fault.applied == 1
    assert remote.names() == ["a.jsonl"]
    assert remote.records("a.jsonl") == RECORDS
    assert remote.unfinished_uploads() == []


@pytest.mark.parametrize(
    ("mode", "trouble"),
    [("sync", name) for name in (PASSING | CONFLICTS)] + [("async", name) for name in ASYNC],
)
def test_a_shard_is_published_once_through_trouble_that_passes(
    remote: Remote, mode: Mode, trouble: str
) -> None:
    action = (PASSING | CONFLICTS)[trouble]
    fault = remote.proxy.add(Fault(action, "PUT", "part-00001", times=2))
    write(remote.dir("d", timeout=0.5), RECORDS, mode, max_records_per_shard=70)
    # "Taken", and by its own draft: that settles it at once.
    assert fault.applied == (1 if trouble in ("409 after all", "412 after all") else 2)
    assert remote.names() == [f"d/part-0000{number}.jsonl" for number in range(3)]
    found = [each for name in remote.names() for each in remote.records(name)]
    assert found == RECORDS


@pytest.mark.parametrize("trouble", ["503", "reset before"])
def test_a_name_whose_owner_could_not_be_asked_at_once_is_asked_again(
    remote: Remote, trouble: str
) -> None:
    lost = remote.proxy.add(Fault(lose_response(), "PUT", "part-00000"))
    unasked = remote.proxy.add(Fault(PASSING[trouble], "HEAD", "part-00000", times=2))
    write(remote.dir("d"), RECORDS)
    assert (lost.applied, unasked.applied) == (1, 2)
    assert remote.names() == ["d/part-00000.jsonl"]


@MODES
def test_a_number_that_somebody_else_takes_meanwhile_is_left_to_them(
    remote: Remote, mode: Mode
) -> None:
    other = JsonlDir(remote.url("d"), remote.server.storage_options)

    def take() -> None:
        write(other, [{"other": True}])

    # Between this writer's listing and its own request for part-00000; then again.
    first = remote.proxy.add(Fault(Meanwhile(take), "PUT", "part-00000"))
    second = remote.proxy.add(Fault(Meanwhile(take), "PUT", "part-00002"))
    write(remote.dir("d"), RECORDS, mode, max_records_per_shard=100)
    assert (first.applied, second.applied) == (1, 1)
    assert remote.names() == [f"d/part-0000{number}.jsonl" for number in range(4)]
    assert remote.records("d/part-00000.jsonl") == [{"other": True}]
    assert remote.records("d/part-00002.jsonl") == [{"other": True}]
    assert remote.records("d/part-00001.jsonl") == RECORDS[:100]
    assert remote.records("d/part-00003.jsonl") == RECORDS[100:]


@MODES
def test_a_number_taken_while_the_answer_was_lost_is_not_taken_for_ones_own(
    remote: Remote, mode: Mode
) -> None:
    other = JsonlDir(remote.url("d"), remote.server.storage_options)
    # The first request never arrives, and before the second the name is taken.
    remote.proxy.add(Fault(reset_before_request(), "PUT", "part-00000"))
    remote.proxy.add(Fault(Meanwhile(lambda: write(other, [{"other": True}])), "PUT", "part-00000"))
    write(remote.dir("d"), RECORDS, mode)
    assert remote.records("d/part-00000.jsonl") == [{"other": True}]
    assert remote.records("d/part-00001.jsonl") == RECORDS
    assert len(remote.names()) == 2


@MODES
def test_a_file_that_may_not_be_replaced_is_not(remote: Remote, mode: Mode) -> None:
    remote.put("a.jsonl", b"{}\n")
    with pytest.raises(FileExistsError, match=r"a\.jsonl.*overwrite=True") as raised:
        write(remote.file("a.jsonl"), RECORDS, mode, overwrite=False)
    assert isinstance(raised.value, ObjectExistsError)
    assert remote.proxy.count("PUT") == 0
    # Taken after it was asked for, before it was published.
    remote.proxy.add(Fault(Meanwhile(lambda: remote.put("b.jsonl", b"{}\n")), "PUT", "b.jsonl"))
    with pytest.raises(ObjectExistsError, match=r"b\.jsonl"):
        write(remote.file("b.jsonl"), RECORDS, mode, overwrite=False)
    assert remote.get("a.jsonl") == remote.get("b.jsonl") == b"{}\n"
    # A lost answer is not somebody else's file.
    lost = remote.proxy.add(Fault(lose_response(), "PUT", "c.jsonl"))
    write(remote.file("c.jsonl"), RECORDS, mode, overwrite=False)
    assert lost.applied == 1
    assert remote.records("c.jsonl") == RECORDS


LASTING: dict[str, tuple[Action, type[StorageError], str]] = {
    "503": (s3_error(503, "SlowDown"), StorageError, "503 SlowDown"),
    "reset": (reset_during_upload(10), StorageError, "the connection broke"),
    "stall": (stall(), StorageTimeoutError, "did not answer in time"),
    "403": (s3_error(403, "AccessDenied"), StoragePermissionError, "403 AccessDenied"),
    "400": (s3_error(400, "EntityTooLarge"), StorageError, "400 EntityTooLarge"),
}


@pytest.mark.parametrize("trouble", LASTING)
@pytest.mark.parametrize(("mode", "target_kind"), [("sync", "file"), ("async", "dir")])
def test_trouble_that_lasts_is_an_error_that_names_what_was_not_published(
    remote: Remote, mode: Mode, target_kind: str, trouble: str
) -> None:
    action, kind, words = LASTING[trouble]
    remote.proxy.add(Fault(action, "PUT", times=None))
    options = {"retry_timeout": 0.5, "timeout": 0.5}
    target = (
        remote.file("d/part-00000.jsonl", **options)
        if target_kind == "file"
        else remote.dir("d", **options)
    )
    with pytest.raises(StorageError) as raised:
        write(target, RECORDS, mode)
    assert type(raised.value) is kind
    assert f"cannot publish {remote.url('d/part-00000.jsonl')}: " in str(raised.value)
    assert words in str(raised.value)
    assert remote.names() == []


@MODES
def test_shards_published_before_lasting_trouble_stay_and_none_after_it(
    remote: Remote, mode: Mode
) -> None:
    remote.proxy.add(Fault(s3_error(503, "SlowDown"), "PUT", "part-00002", times=None))
    with pytest.raises(StorageError, match="part-00002"):
        write(remote.dir("d", retry_timeout=0.3), RECORDS, mode, max_records_per_shard=30)
    assert remote.names() == ["d/part-00000.jsonl", "d/part-00001.jsonl"]
    found = [each for name in remote.names() for each in remote.records(name)]
    assert found == RECORDS[:60]


@MODES
def test_a_bucket_that_does_not_exist_is_named(fault_proxy: FaultProxy, mode: Mode) -> None:
    bucket, options = "penstock-no-such-bucket", fault_proxy.storage_options
    for target in (
        JsonlFile(f"s3://{bucket}/a.jsonl", options),
        JsonlDir(f"s3://{bucket}", options),
    ):
        with pytest.raises(
            FileNotFoundError, match=f"{bucket}.*the bucket does not exist"
        ) as raised:
            write(target, RECORDS, mode)
        assert isinstance(raised.value, ObjectNotFoundError)


@MODES
def test_a_dead_endpoint_is_given_up(dead_endpoint: str, mode: Mode) -> None:
    options = {
        "endpoint": dead_endpoint,
        "access_key_id": "a",
        "secret_access_key": "b",
        "retry_timeout": 0.3,
    }
    for target in (JsonlFile("s3://bucket/a.jsonl", options), JsonlDir("s3://bucket/d", options)):
        with pytest.raises(StorageError, match=r"s3://bucket.*check the endpoint"):
            write(target, RECORDS, mode)


def _pieces() -> Iterator[bytes]:
    for number in range(PIECES):
        yield json.dumps({"piece": number}).encode() + b"\n" + PIECE


def _check_large(remote: Remote) -> None:
    content = remote.get("large.jsonl")
    assert len(content) > 64 << 20
    assert content == b"".join(_pieces())
    assert remote.unfinished_uploads() == []


def test_a_large_file_is_uploaded_in_parts_through_trouble_in_each(remote: Remote) -> None:
    faults = [
        remote.proxy.add(Fault(s3_error(503, "SlowDown"), "POST", "uploads")),
        remote.proxy.add(Fault(reset_during_upload(1 << 20), "PUT", "partNumber=2")),
        remote.proxy.add(Fault(s3_error(500, "InternalError"), "PUT", "partNumber=3")),
        remote.proxy.add(Fault(lose_response(), "PUT", "partNumber=4")),
        remote.proxy.add(Fault(lose_response(), "POST", "uploadId")),
    ]
    with remote.file("large.jsonl").writer_sync() as writer:
        for piece in _pieces():
            writer.write_raw(piece)
    assert [fault.applied for fault in faults] == [1] * len(faults)
    assert remote.proxy.count("PUT", "partNumber=1&") == 1
    assert max(r.received for r in remote.proxy.requests) <= PART_BYTES
    _check_large(remote)


def test_a_large_file_whose_upload_fails_for_good_leaves_nothing_to_pay_for(
    remote: Remote,
) -> None:
    remote.put("large.jsonl", b"{}\n")
    remote.proxy.add(Fault(s3_error(503, "SlowDown"), "PUT", "partNumber=3", times=None))
    writer = remote.file("large.jsonl", retry_timeout=0.5).writer_sync()
    for piece in _pieces():
        writer.write_raw(piece)
    with pytest.raises(StorageError, match=r"cannot publish .*large\.jsonl.*503 SlowDown"):
        writer.close()
    assert remote.get("large.jsonl") == b"{}\n"
    assert remote.unfinished_uploads() == []


@MODES
def test_a_shard_that_could_pass_4_gib_is_refused_before_a_record_is_written(
    remote: Remote, mode: Mode
) -> None:
    folder = remote.dir("d")
    open_writer = folder.writer if mode == "async" else folder.writer_sync
    for limit in ((4 << 30) + 1, None):
        with pytest.raises(OptionError, match=rf"max_bytes_per_shard={limit}: .*4,294,967,296"):
            open_writer(max_bytes_per_shard=limit)
    open_writer(max_bytes_per_shard=4 << 30)
    assert remote.proxy.count() == 0


def test_appending_costs_one_listing_and_one_request_a_shard(remote: Remote) -> None:
    write(remote.dir("d"), RECORDS, max_records_per_shard=20)
    assert remote.proxy.count("GET", "list-type=2") == 1
    assert remote.proxy.count("PUT") == 10
    assert remote.proxy.count() == 11
    remote.proxy.clear()
    write(remote.file("a.jsonl"), RECORDS)
    assert [request.method for request in remote.proxy.requests] == ["PUT"]


@MODES
def test_a_block_left_by_an_exception_asks_nothing_of_the_server(
    remote: Remote, mode: Mode
) -> None:
    def failing() -> Iterator[object]:
        yield from RECORDS
        raise LookupError

    for target in (remote.file("a.jsonl"), remote.dir("d")):
        with pytest.raises(LookupError):
            write(target, failing(), mode)
    assert remote.proxy.count() == 0


@MODES
def test_what_was_written_through_trouble_is_read_through_trouble(
    remote: Remote, mode: Mode
) -> None:
    remote.proxy.add(Fault(s3_error(503, "SlowDown"), times=3))
    write(remote.dir("d"), RECORDS, mode, shard_extension=".jsonl.zst", max_records_per_shard=50)
    remote.proxy.add(Fault(reset_before_request(), times=3))
    assert read(remote.dir("d"), mode) == RECORDS
