"""Columns of remote data: kept on this host, or published beside the data for every host."""

from __future__ import annotations

import json
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import penstock
from penstock.datasets import Source, columns_of, estimate_columns, list_columns_of, typed_schema
from penstock.errors import MalformedLineError
from penstock.index import create_default_jsonl_indexer
from tests.datasets import materialize_programs as programs
from tests.datasets.materialize_programs import Counted, fetch_together, lie_in, write_large
from tests.datasets.materialize_samples import fields_of, lines, record, records, same
from tests.datasets.test_by_blocks import FORMATS, upload
from tests.faults.child import Child, run_together
from tests.faults.halting import halting

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.s3
FIELDS = {"id": "int64", "tags": "list<int64>", "items[].price": "list<float32>", "name": "string"}


@pytest.fixture
def url(s3_server: S3Server, bucket: str) -> str:
    for number in range(2):
        text = lines(records(150 * number, 150 * number + 150))
        s3_server.put(bucket, f"data/part-0000{number}.jsonl", text.encode())
    return f"s3://{bucket}/data"


@pytest.fixture
def source(url: str, s3_server: S3Server) -> Source:
    return penstock.open(url, storage_options=s3_server.storage_options)


@pytest.fixture
def elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Path]:
    """Return what makes this another host, which has nothing yet."""

    def move() -> Path:
        cache = tmp_path_factory.mktemp("another host")
        monkeypatch.setenv("PENSTOCK_CACHE", str(cache))
        return cache

    return move


@pytest.fixture
def published(url: str, source: Source) -> str:
    """Columns beside the data; return where."""
    place = f"{url}/index/columns"
    source.materialize(FIELDS, path=place, workers=0)
    return place


def right(columns: Source | None, source: Source) -> bool:
    ids = np.arange(len(source))[::-3]
    assert columns is not None
    return same(columns.read(ids, FIELDS), source.read(ids, FIELDS))


@pytest.mark.parametrize("kind", FORMATS)
def test_remote_data_of_every_format_has_columns_in_the_cache(
    kind: str, s3_server: S3Server, bucket: str, own_cache: Path
) -> None:
    url = upload(s3_server, bucket, kind)
    source = penstock.open(url, storage_options=s3_server.storage_options)
    fields = {"id": "int64", "text": "string"}
    columns = source.materialize(fields, workers=0)
    assert same(columns.read([2999, 0], fields), source.read([2999, 0], fields))
    assert all(column.folder.startswith(str(own_cache)) for column in list_columns_of(source))


def test_what_a_killed_builder_finished_is_not_done_again(
    s3_server: S3Server, bucket: str, tmp_path: Path, own_cache: Path
) -> None:
    write_large(tmp_path)
    text = (tmp_path / "a.jsonl").read_bytes()
    half = text.index(b"\n", len(text) // 2) + 1
    s3_server.put(bucket, "data/part-00000.jsonl", text[:half])
    s3_server.put(bucket, "data/part-00001.jsonl", text[half:])
    url, options = f"s3://{bucket}/data", s3_server.storage_options
    with Child(
        programs.materialize, url, 0, options, env=halting("[0-9]*.arrow", after=1)
    ) as child:
        # Pathlib minds that folders go while it looks.
        name = f"{own_cache}/**/.penstock-building-*/[0-9]*.arrow"
        while not (done := glob(name, recursive=True, include_hidden=True)):  # noqa: PTH207
            child.hear()
        child.kill()
    lie_in(Path(done[0]))
    view = Counted()
    source = penstock.open(url, storage_options=options)
    columns = source.materialize(programs.FIELDS, progress=view, workers=0)
    assert view.total == programs.LINES
    assert columns.read([5], programs.FIELDS)["id"].to_pylist() == [10**9 + 5]
    assert not [*own_cache.rglob(".penstock-building-*")]


def test_gathering_asks_the_store_for_nothing(
    url: str, source: Source, fault_proxy: FaultProxy
) -> None:
    source.materialize(FIELDS, workers=0)
    again = penstock.open(url, storage_options=fault_proxy.storage_options)
    columns = columns_of(again, typed_schema(FIELDS))
    assert columns is not None
    fault_proxy.clear()
    assert columns.read([299, 5], FIELDS)["id"].to_pylist() == [299, 5]
    assert fault_proxy.count() == 0


@pytest.mark.usefixtures("published")
def test_published_columns_are_used_by_every_host(
    url: str, source: Source, fault_proxy: FaultProxy, elsewhere: Callable[[], Path]
) -> None:
    elsewhere()
    again = penstock.open(url, storage_options=fault_proxy.storage_options)
    view = Counted()
    fault_proxy.clear()
    columns = again.materialize(FIELDS, progress=view, workers=0)
    assert view.total == 0
    asked = [request.path for request in fault_proxy.requests]
    assert sum("list-type" in path for path in asked) == 1
    assert not any("part-0000" in path for path in asked)
    assert right(columns, source)
    # Once a host: the next process, and the next field, finds them.
    fault_proxy.clear()
    assert columns_of(again, typed_schema({"name": "string"})) is not None
    assert fault_proxy.count() == 0


@pytest.mark.usefixtures("published")
def test_views_of_remote_data_find_published_columns(
    url: str, s3_server: S3Server, elsewhere: Callable[[], Path]
) -> None:
    elsewhere()
    again = penstock.open(url, storage_options=s3_server.storage_options)
    train, _ = again.split(train=0.5, rest=0.5)
    columns = columns_of(train, typed_schema(FIELDS))
    assert columns is not None
    assert same(columns.read([3, 1], FIELDS), train.read([3, 1], FIELDS))
    assert columns_of(train, typed_schema({**FIELDS, "price": "float32"})) is None


def test_columns_count_from_their_meta_on_and_only_for_the_records_they_are_of(
    published: str, s3_server: S3Server, bucket: str, elsewhere: Callable[[], Path]
) -> None:
    elsewhere()
    url = published.removesuffix("/index/columns")
    again = penstock.open(url, storage_options=s3_server.storage_options)
    key = "data/index/columns/id-int64/meta.json"
    meta = json.loads(s3_server.get(bucket, key))
    s3_server.put(bucket, key, json.dumps({**meta, "fingerprint": "another"}).encode())
    assert columns_of(again, typed_schema({"id": "int64"})) is None
    s3_server.put(bucket, key, b"{")
    assert columns_of(again, typed_schema({"id": "int64"})) is None
    s3_server.client().delete_object(Bucket=bucket, Key=key)
    assert columns_of(again, typed_schema({"id": "int64"})) is None
    assert columns_of(again, typed_schema({"name": "string"})) is not None
    # They are published again, and then whole.
    again.materialize(FIELDS, path=published, workers=0)
    assert json.loads(s3_server.get(bucket, key))["fingerprint"] == again.fingerprint


def test_appended_data_goes_on_from_published_columns(
    url: str, s3_server: S3Server, bucket: str, elsewhere: Callable[[], Path]
) -> None:
    options = s3_server.storage_options
    create_default_jsonl_indexer(url, storage_options=options)()
    place = f"{url}/index/columns"
    penstock.open(url, storage_options=options).materialize(FIELDS, path=place, workers=0)
    s3_server.put(bucket, "data/part-00002.jsonl", lines(records(300, 330)).encode())
    create_default_jsonl_indexer(url, update=True, storage_options=options)()
    elsewhere()
    longer = penstock.open(url, storage_options=options)
    assert len(longer) == 330
    view = Counted()
    columns = longer.materialize(FIELDS, path=place, progress=view, workers=0)
    assert view.total == 30
    assert right(columns, longer)
    elsewhere()
    third = penstock.open(url, storage_options=options)
    assert right(columns_of(third, typed_schema(FIELDS)), longer)


@pytest.mark.usefixtures("published")
def test_of_many_processes_of_a_host_one_fetches(
    url: str, fault_proxy: FaultProxy, elsewhere: Callable[[], Path]
) -> None:
    cache = elsewhere()
    options = dict(fault_proxy.storage_options)
    with run_together(fetch_together, [(url, options, str(cache))] * 3) as children:
        done = [child.result() for child in children]
    assert [one["read"] for one in done] == [{"id": [7]}] * 3
    asked = [one.path for one in fault_proxy.requests if "/values" in one.path]
    assert len(asked) == len(set(asked)) == 2


def test_published_columns_are_replaced_with_all_their_files(
    url: str, published: str, s3_server: S3Server, bucket: str, elsewhere: Callable[[], Path]
) -> None:
    fresh = records(100_000, 100_300)
    for number in range(2):
        text = lines(fresh[150 * number : 150 * number + 150])
        s3_server.put(bucket, f"data/part-0000{number}.jsonl", text.encode())
    elsewhere()
    source = penstock.open(url, storage_options=s3_server.storage_options)
    source.materialize(FIELDS, path=published, workers=0)
    keys = [k for k in s3_server.list_keys(bucket) if "/id-int64/" in k]
    assert {key.rpartition("/")[2] for key in keys} == {"meta.json", "values-u4.bin"}
    # Whatever lies there beside it is not part of it.
    s3_server.put(bucket, f"{keys[0].rpartition('/')[0]}/values-u1.bin", b"\0" * 300)
    elsewhere()
    source = penstock.open(url, storage_options=s3_server.storage_options)
    assert right(columns_of(source, typed_schema(FIELDS)), source)


@pytest.mark.usefixtures("published")
def test_objects_with_names_that_lead_elsewhere_are_left_alone(
    url: str, s3_server: S3Server, bucket: str, elsewhere: Callable[[], Path]
) -> None:
    (key,) = (k for k in s3_server.list_keys(bucket) if k.endswith("tags-list<int64>/meta.json"))
    meta = json.loads(s3_server.get(bucket, key))
    s3_server.put(bucket, key, json.dumps({**meta, "lists": ["../../../out"]}).encode())
    cache = elsewhere()
    again = penstock.open(url, storage_options=s3_server.storage_options)
    assert columns_of(again, typed_schema({"tags": "list<int64>"})) is None
    assert not (cache / "columns").exists()


def test_what_remote_data_would_cost_is_known_from_the_index(source: Source) -> None:
    cost = estimate_columns(source, typed_schema(FIELDS))
    assert cost.records == 300
    assert cost.seconds > 0
    assert cost.bytes > 300 * 8


def test_a_bad_line_is_told_with_its_url(url: str, s3_server: S3Server, bucket: str) -> None:
    text = lines([record(0)]) + "\n{oops\n"
    s3_server.put(bucket, "data/part-00002.jsonl", text.encode())
    source = penstock.open(url, storage_options=s3_server.storage_options)
    with pytest.raises(MalformedLineError, match=rf"{url}/part-00002\.jsonl, line 3,"):
        source.materialize({"id": "int64"}, workers=0)


def test_local_data_is_published_too(
    tmp_path: Path,
    bucket: str,
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    elsewhere: Callable[[], Path],
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server.storage_options["endpoint"],
        "AWS_ACCESS_KEY_ID": s3_server.storage_options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": s3_server.storage_options["secret_access_key"],
        "AWS_REGION": s3_server.storage_options.get("region", "us-east-1"),
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "a.jsonl").write_text(lines(records(0, 40)))
    source = penstock.open(tmp_path / "a.jsonl")
    fields = fields_of("jsonl")
    place = f"s3://{bucket}/columns"
    source.materialize(fields, path=place, workers=0)
    elsewhere()
    view = Counted()
    again = penstock.open(tmp_path / "a.jsonl")
    columns = again.materialize(fields, path=place, progress=view, workers=0)
    assert view.total == 0
    assert same(columns.read([39, 0], fields), source.read([39, 0], fields))
