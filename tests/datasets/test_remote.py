"""Sources in an object store: what opening and reading cost, and where the index goes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.datasets import JsonlDataset
from penstock.errors import OptionError, StaleIndexError
from penstock.index import _open_index, create_default_jsonl_indexer
from penstock.jsonl import JsonlDir, JsonlFile

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

RECORDS = [{"id": n, "text": "x" * (n % 50)} for n in range(2000)]
pytestmark = pytest.mark.s3


@pytest.fixture(params=[".jsonl", ".jsonl.zst"])
def folder(request: pytest.FixtureRequest, s3_server: S3Server, bucket: str) -> str:
    url = f"s3://{bucket}/data"
    with JsonlDir(url, s3_server.storage_options).writer_sync(
        request.param, 1000, frame_bytes=5000
    ) as writer:
        writer.write_many(RECORDS)
    return url


def test_records_come_by_number(folder: str, s3_server: S3Server) -> None:
    source = penstock.open(folder, storage_options=s3_server.storage_options)
    ids = random.Random(2).sample(range(2000), 200)
    assert source[ids] == [RECORDS[n] for n in ids]
    assert source[-1] == RECORDS[-1]
    assert list(source) == RECORDS
    assert source.files == [f"{folder}/part-0000{n}.jsonl{s}" for n, s in enumerate(_ends(source))]


def _ends(source: penstock.datasets.Source) -> list[str]:  # type: ignore[name-defined]
    return [name.partition(".jsonl")[2] for name in source.files]


def test_one_record_costs_one_ranged_get(
    folder: str, fault_proxy: FaultProxy, s3_server: S3Server
) -> None:
    penstock.open(folder, storage_options=s3_server.storage_options)
    source = penstock.open(folder, storage_options=fault_proxy.storage_options)
    fault_proxy.clear()
    assert source[1234] == RECORDS[1234]
    assert [request.method for request in fault_proxy.requests] == ["GET"]
    fault_proxy.clear()
    assert source[[1, 5, 3]] == [RECORDS[1], RECORDS[5], RECORDS[3]]
    assert fault_proxy.count() == 1  # Neighbours are fetched together.


def test_opening_again_costs_one_listing(
    folder: str, fault_proxy: FaultProxy, s3_server: S3Server
) -> None:
    penstock.open(folder, storage_options=s3_server.storage_options)
    fault_proxy.clear()
    penstock.open(folder, storage_options=fault_proxy.storage_options)
    assert [request.method for request in fault_proxy.requests] == ["GET"]
    assert "list-type=2" in fault_proxy.requests[0].path


def test_the_index_goes_to_the_cache_and_nothing_beside_the_data(
    folder: str, s3_server: S3Server, own_cache: Path
) -> None:
    penstock.open(folder, storage_options=s3_server.storage_options)
    assert len(list((own_cache / "indexes").iterdir())) == 1
    walked = JsonlDir(folder, s3_server.storage_options).walk_sync(recursive=True)
    assert all("index" not in file.path for file in walked)


def test_an_explicit_index_lies_beside_the_data_and_is_used_from_anywhere(
    folder: str, s3_server: S3Server, own_cache: Path, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    create_default_jsonl_indexer(folder, storage_options=s3_server.storage_options)()
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "another machine"))
    source = penstock.open(folder, storage_options=s3_server.storage_options)
    assert source[1999] == RECORDS[1999]
    assert not (tmp_path / "another machine" / "indexes").exists()
    assert not (own_cache / "indexes").exists()
    with pytest.raises(ValueError, match="already"):
        create_default_jsonl_indexer(folder, storage_options=s3_server.storage_options)()
    with JsonlDir(folder, s3_server.storage_options).writer_sync() as writer:
        writer.write({"id": 2000})
    create_default_jsonl_indexer(folder, update=True, storage_options=s3_server.storage_options)()
    assert penstock.open(folder, storage_options=s3_server.storage_options)[2000] == {"id": 2000}


def test_a_replaced_object_is_seen_at_open_and_while_reading(
    folder: str, s3_server: S3Server
) -> None:
    options = s3_server.storage_options
    source = penstock.open(folder, storage_options=options)
    with JsonlFile(source.files[0], options).writer_sync() as writer:
        writer.write_many([{"id": -1}] * 1000)
    with pytest.raises(OSError, match="part-00000"):
        source[0]
    with pytest.raises(StaleIndexError, match="part-00000"):
        penstock.open(folder, refresh="never", storage_options=options)
    again = penstock.open(folder, storage_options=options)
    assert (again[0], len(again)) == ({"id": -1}, 2000)


def test_much_remote_data_without_an_index_is_refused_with_its_price(
    folder: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_open_index, "LARGEST_UNASKED", 1000)
    with pytest.raises(OptionError, match=r"GB.*2 objects.*about 2 requests.*penstock index s3://"):
        penstock.open(folder, storage_options=s3_server.storage_options)


def test_much_remote_data_that_changed_is_refused_and_little_that_is_new_is_not(
    folder: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = s3_server.storage_options
    files = penstock.open(folder, storage_options=options).files
    monkeypatch.setattr(_open_index, "LARGEST_UNASKED", 1000)
    with JsonlDir(folder, options).writer_sync() as writer:
        writer.write({"id": 2000})
    assert len(penstock.open(folder, storage_options=options)) == 2001
    with JsonlFile(files[0], options).writer_sync() as writer:
        writer.write({"id": -1})
    with pytest.raises(OptionError, match=r"GB.*3 objects.*penstock index s3://"):
        penstock.open(folder, storage_options=options)


def test_a_pattern_names_objects(folder: str, s3_server: S3Server) -> None:
    source = penstock.open(f"{folder}/*-00001.jsonl*", storage_options=s3_server.storage_options)
    assert source[0] == RECORDS[1000]
    with pytest.raises(FileNotFoundError, match="no file matches"):
        penstock.open(f"{folder}/*.nope", storage_options=s3_server.storage_options)


def test_no_secret_is_in_a_pickle_of_a_local_index_or_in_meta(
    folder: str, s3_server: S3Server, own_cache: Path
) -> None:
    penstock.open(folder, storage_options=s3_server.storage_options)
    secret = s3_server.storage_options["secret_access_key"].encode()
    for path in own_cache.rglob("*"):
        assert path.is_dir() or secret not in path.read_bytes()


def test_the_seeds_own_door_opens_a_remote_index(folder: str, s3_server: S3Server) -> None:
    options = s3_server.storage_options
    create_default_jsonl_indexer(folder, storage_options=options)()
    dataset = JsonlDataset.create_from_index_on_filesystem(folder, storage_options=options)
    assert dataset[[1999, 0]] == [RECORDS[1999], RECORDS[0]]
    with JsonlFile(dataset.files[1], options).writer_sync() as writer:
        writer.write({"id": -1})
    with pytest.raises(StaleIndexError, match="part-00001"):
        JsonlDataset.create_from_index_on_filesystem(folder, storage_options=options)


def test_a_remote_index_is_replaced_as_a_whole(folder: str, s3_server: S3Server) -> None:
    options = s3_server.storage_options
    create_default_jsonl_indexer(folder, storage_options=options)()
    with JsonlFile(f"{folder}/part-00000.jsonl", options).writer_sync() as writer:
        writer.write_many([{"id": n} for n in range(5)])
    (first, *_) = penstock.open(f"{folder}/part-00001*", storage_options=options).files
    JsonlFile(first, options).delete_sync()
    create_default_jsonl_indexer(folder, overwrite=True, storage_options=options)()
    source = penstock.open(folder, storage_options=options)
    assert [record["id"] for record in source[:5]] == [0, 1, 2, 3, 4]
    assert first not in source.files
