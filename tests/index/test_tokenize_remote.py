"""Tokens of objects, and tokens that become objects."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from penstock.errors import IndexExistsError, OptionError, StorageError
from penstock.index import digest, list_files, load_beside, read_bad_lines
from penstock.index.tokens._journal import Reach, Uploaded, note, take_back, take_back_dead
from penstock.storage import StorageOptions, locate
from penstock.storage._folders import hidden_name
from tests.index.tokenize_samples import Tokens, by_hand, indexer, left_of, letters, line, tokens_in
from tests.servers.faults import Fault, s3_error

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.s3
FILES = {"a.jsonl": ["to be", "or not"] * 5, "b.jsonl": [], "sub/c.jsonl": ["that is"] * 3}
NAMES = {name.rpartition("/")[2]: texts for name, texts in FILES.items()}


@pytest.fixture
def url(s3_server: S3Server, bucket: str) -> str:
    for name, texts in FILES.items():
        s3_server.put(bucket, f"data/{name}", "".join(map(line, texts)).encode())
    return f"s3://{bucket}/data"


def make(server: S3Server | FaultProxy, *arguments: Any, **options: Any) -> Any:
    return indexer(letters, *arguments, storage_options=server.storage_options, **options)()


def remote_tokens(server: S3Server, bucket: str, folder: str) -> Tokens:
    index = load_beside(f"s3://{bucket}/{folder}", "index", StorageOptions(server.storage_options))
    start = f"{folder}/tokenized-samples/"
    documents = index.documents
    assert documents is not None
    stops = documents.offsets.tolist()
    return Tokens(
        {
            key.removeprefix(start): server.get(bucket, key)
            for key in sorted(server.list_keys(bucket))
            if key.startswith(start)
        },
        [path.removeprefix(f"s3://{bucket}/{folder}/") for path in index.file_locations],
        index.sample_locations.tolist(),
        [documents.ends[a:b].tolist() for a, b in pairwise(stops)],
        documents.goes_on.tolist(),
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_objects_are_tokenised_into_a_local_folder(
    workers: int, url: str, s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    s3_server.put(bucket, "data/d.jsonl.zst", zstandard.compress(line("question").encode()))
    report = make(s3_server, url, output_base_path=tmp_path, sample_size=4, num_workers=workers)
    files = {
        "a.jsonl": NAMES["a.jsonl"],
        "b.jsonl": [],
        "d.jsonl": ["question"],
        "c.jsonl": NAMES["c.jsonl"],
    }
    assert tokens_in(tmp_path) == by_hand(files, 4)
    assert report.files == 4


def test_tokens_lie_beside_the_objects_they_were_made_of(
    url: str, s3_server: S3Server, bucket: str, own_cache: Path
) -> None:
    make(s3_server, url, sample_size=4)
    assert remote_tokens(s3_server, bucket, "data") == by_hand(NAMES, 4)
    with pytest.raises(FileExistsError, match="Remove those tokens"):
        make(s3_server, url, sample_size=4)
    with pytest.raises(IndexExistsError, match="Remove those tokens"):
        make(s3_server, url, sample_size=4, file_name_postfix="other")
    # Objects cannot be put aside: what fails would leave neither the old ones nor the new.
    with pytest.raises(OptionError, match=r"overwrite=True.*output_base_path="):
        make(s3_server, url, sample_size=5, overwrite=True)
    assert remote_tokens(s3_server, bucket, "data") == by_hand(NAMES, 4)
    listing = list_files(url, (".jsonl",), StorageOptions(s3_server.storage_options))
    assert len(listing.files) == 3
    assert list((own_cache / "indexes").iterdir()) == []


def test_local_files_become_tokens_in_a_bucket(
    s3_server: S3Server, bucket: str, tmp_path: Path, own_cache: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(line("to be") + "{oops\n")
    target = f"s3://{bucket}/out"
    report = make(s3_server, tmp_path, output_base_path=target, sample_size=2, on_error="skip")
    assert (report.samples, report.bad_documents) == (3, 1)
    assert remote_tokens(s3_server, bucket, "out") == by_hand({"a.jsonl": ["to be"]}, 2)
    (fetched,) = (own_cache / "fetched-indexes").iterdir()
    assert [(bad.file, bad.line) for bad in read_bad_lines(fetched)] == [("a.jsonl", 2)]
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_an_upload_that_fails_leaves_nothing_of_it(
    url: str, s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    before = set(s3_server.list_keys(bucket))
    fault_proxy.add(Fault(s3_error(403, "AccessDenied"), "PUT", "file_location", times=None))
    with pytest.raises(PermissionError):
        make(fault_proxy, url, sample_size=4)
    left = {key for key in s3_server.list_keys(bucket) if key.startswith("data/")} - before
    assert not any("tokenized-samples" in key or "meta.json" in key for key in left)
    make(s3_server, url, sample_size=4)
    assert remote_tokens(s3_server, bucket, "data") == by_hand(NAMES, 4)


SEEN: list[str] = []


def noted(text: str) -> list[int]:
    SEEN.append(text)
    return letters(text)


def test_what_was_finished_before_storage_failed_is_gone_on_with(
    url: str, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"output_base_path": tmp_path, "unit_bytes": 1, "sample_size": 4}
    options["storage_options"] = fault_proxy.storage_options
    fault_proxy.add(Fault(s3_error(403, "AccessDenied"), "GET", "c.jsonl", times=None))
    with pytest.raises(StorageError) as raised:
        indexer(noted, url, **options)()
    assert "Finished work is kept" in raised.value.__notes__[-1]
    assert all(path.name[0] == "." for path in tmp_path.iterdir())
    fault_proxy.clear()
    SEEN.clear()
    indexer(noted, url, **options)()
    # The first documents are looked at twice, each time; those of the first file are done.
    assert (SEEN.count("to be"), SEEN.count("that is")) == (10, 3)
    assert tokens_in(tmp_path) == by_hand(NAMES, 4)
    assert left_of(tmp_path) == []


def journal(server: S3Server, bucket: str, folder: Path, version: str | None) -> None:
    """Write what a killed builder had noted of an object."""
    entry = StorageOptions(server.storage_options), f"s3://{bucket}/out/a.bin"
    store, name = locate(entry[1], entry[0])
    found = store.entry(name)
    version = found.version if version is None else version
    note(folder, [Uploaded(entry[1], found.size, version, f"s3://{bucket}/out/index")])


@pytest.mark.parametrize("whose", ["ours", "another's", "ours beside another's index"])
def test_only_an_object_of_ours_is_taken_back(
    whose: str, s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    s3_server.put(bucket, "out/a.bin", b"tokens")
    journal(s3_server, bucket, tmp_path, '"of-another"' if whose == "another's" else None)
    if "index" in whose:
        s3_server.put(bucket, "out/index/meta.json", b"{}")
    base, options = f"s3://{bucket}/out", StorageOptions(s3_server.storage_options)
    assert take_back(tmp_path, Reach(f"{base}/index", (base,), options)) == []
    assert ("out/a.bin" in s3_server.list_keys(bucket)) == (whose != "ours")


@pytest.mark.parametrize("where", ["cache", "dataset", "cache of another index"])
def test_clean_takes_objects_back_only_for_the_index_that_the_folder_is_named_after(
    where: str, s3_server: S3Server, bucket: str, own_cache: Path, tmp_path: Path
) -> None:
    s3_server.put(bucket, "out/a.bin", b"tokens")
    url = f"s3://{bucket}/{'other' if 'another' in where else 'out'}/index"
    around = tmp_path if where == "dataset" else own_cache / "indexes"
    left = around / hidden_name(digest(url), "tmp")
    left.mkdir(parents=True)
    journal(s3_server, bucket, left, None)
    is_undone = take_back_dead(left, StorageOptions(s3_server.storage_options))
    assert is_undone == (where == "cache")
    assert ("out/a.bin" in s3_server.list_keys(bucket)) == (where != "cache")
