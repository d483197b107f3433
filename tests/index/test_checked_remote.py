"""Checked indexes of objects, beside them and in the cache."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.index import (
    create_default_jsonl_indexer,
    list_files,
    place_of,
    read_bad_lines,
    read_profile,
)
from penstock.index._open_index import local_folder
from penstock.index._scan import LineScanner
from penstock.storage import StorageOptions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.s3
CHECKED = {"bad_lines.ndjson", "profile.json", "profile.state"}


def index(url: str, server: S3Server, **options: Any) -> None:
    options = {"num_workers": 0} | options
    create_default_jsonl_indexer(url, storage_options=server.storage_options, **options)()  # type: ignore[arg-type]


def names(server: S3Server, bucket: str) -> set[str]:
    keys = server.list_keys(bucket)
    return {key.rpartition("/")[2] for key in keys if key.startswith("data/index/")}


def test_a_checked_index_lies_beside_the_objects_and_grows_with_them(
    s3_server: S3Server, bucket: str, own_cache: Path
) -> None:
    url = f"s3://{bucket}/data"
    s3_server.put(bucket, "data/a.jsonl", b'{"id": 0}\n{oops\n{"id": 1}\n')
    index(url, s3_server, validate=True, profile=True)
    assert names(s3_server, bucket) > CHECKED
    s3_server.put(bucket, "data/b.jsonl", b'\n[2]\n{"id": "two"}\n')
    index(url, s3_server, update=True, num_workers=1)
    options = StorageOptions(s3_server.storage_options)
    listing = list_files(url, (), options)
    folder = local_folder(place_of(listing, LineScanner(), options, beside_remote=True))
    assert [(bad.file, bad.line) for bad in read_bad_lines(folder)] == [
        ("a.jsonl", 2), ("b.jsonl", 2),
    ]  # fmt: skip
    profile = read_profile(folder)
    assert profile is not None
    assert [found["path"] for found in profile["drift"]] == ["id"]
    source = penstock.open(url, storage_options=s3_server.storage_options)
    assert [record["id"] for record in source] == [0, 1, "two"]
    index(url, s3_server, overwrite=True)
    assert not names(s3_server, bucket) & CHECKED
    assert list((own_cache / "indexes").iterdir()) == []


def test_a_cached_index_of_objects_can_be_checked(
    s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    s3_server.put(bucket, "data/a.jsonl", b'{"id": 0}\n?\n')
    index(f"s3://{bucket}/data", s3_server, validate=True, index=tmp_path / "index")
    (bad,) = (tmp_path / "index" / "bad_lines.ndjson").read_text().splitlines()
    assert json.loads(bad)["line"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
