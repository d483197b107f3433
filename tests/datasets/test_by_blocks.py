"""Remote sources read by whole blocks: the same records, and each block fetched once a host."""

from __future__ import annotations

import gzip
import io
import json
import multiprocessing
import os
import pickle
import random
import shutil
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import penstock
from penstock.datasets import ParquetRows, Source
from penstock.datasets.tables import _files as _table_files
from penstock.datasets.text._block_texts import BlockText
from penstock.jsonl import JsonlFile
from penstock.storage import Meter, StorageOptions, locate, metered
from tests.datasets.block_reading import read_all
from tests.datasets.table_files import file_bytes
from tests.faults.child import run_together
from tests.servers.faults import Fault, reset_in_body, s3_error

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.s3
LENGTH = 3000
RECORDS = [{"id": n, "text": f"{n} ü " * (n % 200)} for n in range(LENGTH)]
FORMATS = ["jsonl", "zst", "csv", "parquet", "feather", "orc", "avro"]


def upload(server: S3Server, bucket: str, kind: str) -> str:
    """Write two files of the records; return the URL of their folder."""
    for number, some in enumerate((RECORDS[:1700], RECORDS[1700:])):
        lines = [json.dumps(record).encode() + b"\n" for record in some]
        key = f"data/part-0000{number}"
        if kind == "jsonl":
            server.put(bucket, f"{key}.jsonl", b"\n".join(lines))
        elif kind == "zst":
            # Frames that end in the middle of records, as other tools cut them.
            text = b"".join(lines)
            pieces = [text[at : at + 100_000] for at in range(0, len(text), 100_000)]
            frames = [zstandard.ZstdCompressor().compress(piece) for piece in pieces]
            server.put(bucket, f"{key}.jsonl.zst", b"".join(frames))
        elif kind == "csv":
            rows = [f'{record["id"]},"{record["text"]}"\n' for record in some]
            server.put(bucket, f"{key}.csv", f"id,text\n{''.join(rows)}".encode())
        elif kind == "parquet":
            file = io.BytesIO()
            pq.write_table(pa.Table.from_pylist(some), file, row_group_size=300)
            server.put(bucket, f"{key}.parquet", file.getvalue())
        else:
            data = file_bytes(f".{kind}", pa.Table.from_pylist(some), 300, "null")
            server.put(bucket, f"{key}.{kind}", data)
    return f"s3://{bucket}/data"


@pytest.fixture(params=FORMATS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, s3_server: S3Server, bucket: str) -> str:
    return upload(s3_server, bucket, kind)


@pytest.fixture
def plain(url: str, fault_proxy: FaultProxy) -> Source:
    source = penstock.open(url, storage_options=fault_proxy.storage_options)
    fault_proxy.clear()
    return source


def forget() -> None:
    """Let go of what this process holds, as if it were another one."""
    BlockText._held.clear()  # noqa: SLF001
    _table_files._blocks.clear()  # noqa: SLF001


def units(source: Source) -> int:
    """Return how many blocks there are to fetch."""
    index = getattr(source, "_sample_index", None)
    return len(source.blocks) - 1 if index is None or not len(index.frames) else len(index.frames)


def test_records_are_the_same_in_any_order(plain: Source) -> None:
    source = plain.by_blocks()
    for seed in (1, 2):
        ids = random.Random(seed).sample(range(LENGTH), 500)
        assert source[ids] == plain.read(ids)
        forget()
    assert source.read([]) == []


def test_an_epoch_costs_one_request_a_block(plain: Source, fault_proxy: FaultProxy) -> None:
    source = plain.by_blocks()
    assert units(source) > 1
    for epoch in (1, 2):
        meter = Meter()
        ids = np.array(random.Random(epoch).sample(range(LENGTH), LENGTH))
        with metered(meter):
            for at in range(0, LENGTH, 500):
                columns = source.read(ids[at : at + 500], {"id": "int32"})
                assert columns.column(0).to_pylist() == ids[at : at + 500].tolist()
        assert meter.requests == (units(source) if epoch == 1 else 0)
        assert fault_proxy.count() == units(source)
        assert meter.cache_hits == (0 if epoch == 1 else units(source))
        assert meter.seconds_reading > 0
        forget()
    options = StorageOptions(fault_proxy.storage_options)
    files = (locate(path, options) for path in source.files)
    sent = sum(request.sent for request in fault_proxy.requests)
    assert sent <= sum(store.entry(name).size for store, name in files)


@pytest.mark.parametrize("kind", ["zst", "parquet"])
def test_processes_and_threads_at_once_fetch_each_block_once(
    url: str, fault_proxy: FaultProxy
) -> None:
    options = fault_proxy.storage_options
    source = penstock.open(url, storage_options=options)
    fault_proxy.clear()
    with run_together(read_all, [(url, options, 4)] * 2) as children:
        counts = [child.result() for child in children]
    # Index and footers are on this host already.
    assert fault_proxy.count("GET", "data/part") == units(source)
    assert sum(one["requests"] for one in counts) == units(source)


def test_views_keep_their_numbers(plain: Source, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": -1, "text": "local"}\n')
    both = penstock.open(tmp_path / "a.jsonl") + plain.take(range(10, 2000, 3))
    train, test = plain.split(train=0.5, test=0.5)
    for view in (both, train, test, plain.where("id >= 2000")):
        blocked = view.by_blocks()
        assert blocked is not view
        assert blocked.by_blocks() is blocked
        assert blocked.fingerprint == view.fingerprint
        assert len(blocked) == len(view)
        np.testing.assert_array_equal(blocked.blocks, view.blocks)
        some = list(range(0, len(view), 97))
        assert blocked[some] == view[some]
        assert pickle.loads(pickle.dumps(blocked))[some[-1]] == view[some[-1]]


def test_it_is_the_same_source_otherwise(plain: Source) -> None:
    source = plain.by_blocks()
    assert source is not plain
    assert source.by_blocks() is source
    assert source.fingerprint == plain.fingerprint
    assert source.schema == plain.schema
    assert source.files == plain.files
    assert source.location(5) == plain.location(5)
    assert source[2345] == plain[2345]
    assert len(pickle.dumps(source)) < 10_000
    twin = pickle.loads(pickle.dumps(source))
    assert twin.by_blocks() is twin
    assert twin.read([2999, 0]) == plain.read([2999, 0])


@pytest.mark.parametrize(("kind", "method"), [("jsonl", "forkserver"), ("parquet", "spawn")])
def test_another_process_finds_the_blocks_on_disk(
    url: str, method: str, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    options = {**fault_proxy.storage_options, "cache_dir": str(tmp_path)}
    source = penstock.open(url, storage_options=options).by_blocks()
    assert [record["id"] for record in source] == list(range(LENGTH))
    fault_proxy.clear()
    # A fork server has the variables of its start, and a cache tells stores apart by some of them.
    own = {"initializer": _set_environment, "initargs": [dict(os.environ)]}
    with ProcessPoolExecutor(1, multiprocessing.get_context(method), **own) as pool:
        assert pool.submit(_costs, source).result()["requests"] == 0
    assert fault_proxy.count("GET", "data/part") == 0


def _set_environment(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _costs(source: Source) -> dict[str, float]:
    meter = Meter()
    with metered(meter):
        assert [record["id"] for record in source] == list(range(LENGTH))
    return meter.counts()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_replaced_object_is_not_served_from_the_cache(
    url: str, kind: str, s3_server: S3Server, bucket: str, own_cache: Path
) -> None:
    options = s3_server.storage_options
    assert penstock.open(url, storage_options=options).by_blocks()[0]["id"] == 0
    name = f"data/part-00000.{kind}"
    old = s3_server.get(bucket, name)
    if kind == "jsonl":
        new = old.replace(b'"id": 0,', b'"id": 7,')
        assert len(new) == len(old)
    else:
        file = io.BytesIO()
        pq.write_table(pa.table({"id": [7], "text": ["x"]}), file)
        new = file.getvalue()
    s3_server.put(bucket, name, new)
    shutil.rmtree(own_cache / "indexes", ignore_errors=True)
    assert penstock.open(url, storage_options=options).by_blocks()[0]["id"] == 7


@pytest.mark.parametrize("kind", ["jsonl"])
def test_trouble_costs_repeats_and_no_records(plain: Source, fault_proxy: FaultProxy) -> None:
    source = plain.by_blocks()
    fault_proxy.add(Fault(s3_error(503, "SlowDown"), method="GET", times=2))
    fault_proxy.add(Fault(reset_in_body(300_000), method="GET", times=1))
    with metered(Meter()) as meter:
        assert source[:] == RECORDS
    assert meter is not None
    assert (meter.throttled, meter.retries) == (2, 3)
    assert meter.requests == fault_proxy.count("GET") == units(source) + 3


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("limit", ["0", "300000"])
def test_a_small_cache_or_none_costs_requests_and_no_records(
    url: str, limit: str, s3_server: S3Server, own_cache: Path
) -> None:
    options = {**s3_server.storage_options, "cache_limit": limit}
    source = penstock.open(url, storage_options=options).by_blocks()
    for at in (0, 1500, 1000, 2500):
        assert source[at : at + 500] == RECORDS[at : at + 500]
        forget()
    kept = [path.stat().st_size for path in (own_cache / "blocks").glob("*.block")]
    assert sum(kept) <= int(limit)


def test_columns_that_a_file_does_not_have_are_null(s3_server: S3Server, bucket: str) -> None:
    for name, table in (("a", {"id": [1, 2]}), ("b", {"id": [3.5], "more": ["x"]})):
        file = io.BytesIO()
        pq.write_table(pa.table(table), file)
        s3_server.put(bucket, f"{name}.parquet", file.getvalue())
    plain = ParquetRows(f"s3://{bucket}", storage_options=s3_server.storage_options)
    source = plain.by_blocks()
    assert source[[2, 0, 1]] == plain[[2, 0, 1]]
    assert source.read([0, 2], {"more": "string"}).column(0).to_pylist() == [None, "x"]


def test_local_sources_and_records_in_memory_are_themselves(tmp_path: Path) -> None:
    with JsonlFile(tmp_path / "a.jsonl.zst").writer_sync() as writer:
        writer.write_many(RECORDS[:10])
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    for source in (
        penstock.open(tmp_path / "a.jsonl.zst"),
        penstock.open(tmp_path / "a.parquet"),
        penstock.open([{"id": 1}]),
    ):
        assert source.by_blocks() is source
        view = source.take([0]) + source
        assert view.by_blocks() is view


def test_gzip_is_streamed_beside_blocks(s3_server: S3Server, bucket: str) -> None:
    lines = [json.dumps(record).encode() + b"\n" for record in RECORDS[:20]]
    s3_server.put(bucket, "data/a.jsonl", b"".join(lines[:10]))
    s3_server.put(bucket, "data/b.jsonl.gz", gzip.compress(b"".join(lines[10:])))
    source = penstock.open(f"s3://{bucket}/data", storage_options=s3_server.storage_options)
    assert source.by_blocks()[[11, 3, 15, 0]] == [RECORDS[n] for n in (11, 3, 15, 0)]
