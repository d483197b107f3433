"""The verbs on S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.jsonl import JsonlDir
from tests.cli.commands import document, invoke, options, succeed, written
from tests.servers.faults import Fault, s3_error

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server


@pytest.fixture
def remote(s3_server: S3Server, bucket: str) -> tuple[str, list[str]]:
    """The URL of three compressed shards, ten records in all, and the options that lead there."""
    url = f"s3://{bucket}/some/logs"
    directory = JsonlDir(url, s3_server.storage_options)
    with directory.writer_sync(".jsonl.zst", max_records_per_shard=4) as writer:
        writer.write_many({"id": i} for i in range(10))
    return url, options(s3_server.storage_options)


def test_info_of_a_directory_a_file_and_a_bucket(remote: tuple[str, list[str]]) -> None:
    url, given = remote
    told = document("info", url, *given)
    assert (told["files"], told["records"], told["leftovers"]) == (3, 10, [])
    assert [one["path"] for one in told["per_file"]] == [
        f"{url}/part-0000{i}.jsonl.zst" for i in range(3)
    ]
    assert all(one["seekable"] for one in told["per_file"])
    assert document("info", f"{url}/", *given)["records"] == 10
    assert document("info", f"{url}/part-00002.jsonl.zst", *given)["records"] == 2
    assert document("info", url.rpartition("/some")[0], *given)["files"] == 3
    assert "part-00001.jsonl.zst" in succeed("info", url, *given)


def test_show_counts_over_shards(remote: tuple[str, list[str]]) -> None:
    url, given = remote
    assert [record["id"] for record in document("show", url, "3:6", *given)] == [3, 4, 5]
    assert document("show", url, "-1", *given) == [{"id": 9}]
    assert f"{url}/part-00001.jsonl.zst:1" in succeed("show", url, "4", *given)


def test_check_finds_what_is_wrong(
    remote: tuple[str, list[str]], s3_server: S3Server, bucket: str
) -> None:
    url, given = remote
    assert document("check", url, *given)["findings"] == 0
    s3_server.put(bucket, "some/logs/part-00003.jsonl", b'{"id":10}\n{oops\n')
    s3_server.put(bucket, "some/logs/part-00004.jsonl.gz", b"not gzip")
    told = document("check", url, *given, code=1)
    assert told["kinds"] == {"malformed line": 1, "damaged file": 1}
    assert told["shown"][0]["path"] == f"{url}/part-00003.jsonl"


def test_convert_goes_there_and_back(
    remote: tuple[str, list[str]], s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    url, given = remote
    told = document("convert", url, f"s3://{bucket}/out", "--max-records-per-shard", 6, *given)
    assert told["files_written"] == [f"s3://{bucket}/out/part-0000{i}.jsonl.zst" for i in range(2)]
    done = invoke("convert", url, f"s3://{bucket}/out", *given)
    assert (done.exit_code, "--append" in done.stderr) == (2, True)
    succeed("convert", f"s3://{bucket}/out", f"s3://{bucket}/one.jsonl", *given)
    assert len(s3_server.get(bucket, "one.jsonl").splitlines()) == 10
    done = invoke("convert", url, f"s3://{bucket}/one.jsonl", *given)
    assert (done.exit_code, "--overwrite" in done.stderr) == (2, True)
    succeed("convert", f"s3://{bucket}/one.jsonl", tmp_path / "back", *given)
    ids = [record["id"] for record in JsonlDir(tmp_path / "back").iter_records_sync()]
    assert ids == list(range(10))
    for source, target in [(url, f"{url}/"), (f"{url}/part-00000.jsonl.zst", url)]:
        done = invoke("convert", source, target, "--append", *given)
        assert (done.exit_code, "DST" in done.stderr) == (2, True)


def test_shards_published_before_a_failure_are_removed_again(
    s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    source = written(tmp_path / "a.jsonl", *["{}"] * 50_000, "{oops")
    given = options(s3_server.storage_options)
    target = f"s3://{bucket}/out"
    done = invoke("convert", source, target, "--max-records-per-shard", "10000", *given)
    assert done.exit_code == 1
    assert "removed again" in done.stderr
    assert s3_server.list_keys(bucket) == []


def test_shards_that_cannot_be_removed_again_are_named(
    fault_proxy: FaultProxy, bucket: str, tmp_path: Path
) -> None:
    source = written(tmp_path / "a.jsonl", *["{}"] * 50_000, "{oops")
    fault_proxy.add(Fault(s3_error(403, "AccessDenied"), method="DELETE", times=None))
    fault_proxy.add(Fault(s3_error(403, "AccessDenied"), method="POST", path="delete", times=None))
    given = options(fault_proxy.storage_options)
    target = f"s3://{bucket}/out"
    done = invoke("convert", source, target, "--max-records-per-shard", "10000", *given)
    assert done.exit_code == 1
    assert f"Could not be removed, though complete: {target}/part-00000.jsonl" in done.stderr


def test_an_object_that_is_denied_is_named_and_the_others_are_shown(
    remote: tuple[str, list[str]], fault_proxy: FaultProxy
) -> None:
    url, _ = remote
    denied = s3_error(403, "AccessDenied")
    fault_proxy.add(Fault(denied, method="GET", path="part-00001", times=None))
    told = document("info", url, *options(fault_proxy.storage_options), code=3)
    assert [one["records"] for one in told["per_file"]] == [4, 2]
    (error,) = told["errors"]
    assert error["path"] == f"{url}/part-00001.jsonl.zst"
    assert "access denied" in error["error"]


@pytest.mark.parametrize("name", ["nothing", "nothing.jsonl", "nothing/"])
def test_what_is_not_there_is_named(s3_server: S3Server, bucket: str, name: str) -> None:
    done = invoke("info", f"s3://{bucket}/{name}", *options(s3_server.storage_options))
    assert done.exit_code == 3
    assert f"s3://{bucket}/nothing" in done.stderr


def test_names_that_mislead_are_still_found(s3_server: S3Server, bucket: str) -> None:
    s3_server.put(bucket, "records", b"{}\n")
    s3_server.put(bucket, "d.jsonl/part-00000.jsonl", b"{}\n{}\n")
    given = options(s3_server.storage_options)
    assert document("info", f"s3://{bucket}/records", *given)["records"] == 1
    assert document("info", f"s3://{bucket}/d.jsonl", *given)["records"] == 2


@pytest.mark.parametrize(
    ("pattern", "records"),
    [
        ("*.jsonl", 1),
        ("d/*.jsonl", 3),
        ("d/part-0000[0-1].jsonl", 2),
        ("d/part-?????.jsonl", 3),
        ("**/*.jsonl", 6),
        ("d/**/*.jsonl", 5),
        ("d/**", 5),
    ],
)
def test_a_pattern_matches_as_it_does_for_files(
    s3_server: S3Server, bucket: str, pattern: str, records: int
) -> None:
    s3_server.put(bucket, "a.jsonl", b"{}\n")
    for number in range(3):
        s3_server.put(bucket, f"d/part-0000{number}.jsonl", b"{}\n")
    s3_server.put(bucket, "d/deep/er.jsonl", b"{}\n{}\n")
    s3_server.put(bucket, "d/note.txt", b"no\n")
    given = options(s3_server.storage_options)
    assert document("info", f"s3://{bucket}/{pattern}", *given)["records"] == records


def test_a_pattern_that_matches_nothing_is_named(s3_server: S3Server, bucket: str) -> None:
    s3_server.put(bucket, "a.jsonl", b"{}\n")
    done = invoke("info", f"s3://{bucket}/b*.jsonl", *options(s3_server.storage_options))
    assert done.exit_code == 3
    assert "no file matches" in done.stderr


def test_the_secret_shows_in_no_output(remote: tuple[str, list[str]], s3_server: S3Server) -> None:
    url, given = remote
    verbs = [["info", url], ["show", url], ["check", url], ["info", f"{url}/nothing"]]
    verbs += [["profile", url], ["materialize", url, "id:int8"], ["materialize", url, "--list"]]
    for verb in verbs:
        for more in ([], ["--json"]):
            output = invoke(*verb, *given, *more).output
            assert output
            assert s3_server.secret_access_key not in output
