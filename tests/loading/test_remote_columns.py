"""Columns of data in an object store: used where they are, and never in the way."""

from __future__ import annotations

import gzip
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock import DataLoader
from penstock.errors import OptionError
from penstock.order import Order
from tests.loading.column_samples import outcome
from tests.loading.samples import TYPES, record
from tests.servers.faults import Action, Fault, delay, s3_error, stall

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.datasets import Source
    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.s3
COUNT = 200
LINES = "".join(json.dumps(record(number)) + "\n" for number in range(COUNT)).encode()


@pytest.fixture
def url(s3_server: S3Server, bucket: str) -> str:
    s3_server.put(bucket, "data/part-0.jsonl", LINES)
    return f"s3://{bucket}/data"


@pytest.fixture
def source(url: str, s3_server: S3Server) -> Source:
    return penstock.open(url, storage_options=s3_server.storage_options)


@pytest.fixture
def elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], None]:
    """Return what makes this another host, which has nothing yet."""
    return lambda: monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path_factory.mktemp("host")))


def loader_of(source: Source, **more: Any) -> DataLoader:
    return DataLoader(source, TYPES, batch_size=30, shuffle="full", seed=4, **more)


def check(loader: DataLoader) -> None:
    loader.set_epoch(0)
    seen = [number for batch in loader for number in batch["n"].tolist()]
    assert seen == Order(COUNT, seed=4).positions(0, COUNT).tolist()


def opened(url: str, proxy: FaultProxy, **more: Any) -> Source:
    return penstock.open(url, storage_options={**proxy.storage_options, **more})


def test_remote_data_is_decoded_unless_somebody_asks_for_columns(
    url: str, fault_proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    source = opened(url, fault_proxy)
    loader = loader_of(source)
    command = f"penstock materialize {url} 'n:int64,x:float32,tags:list<int64>'"
    with caplog.at_level(logging.INFO, "penstock.loading"):
        assert loader.explain()["columns"] == (
            "decoded anew for each batch: remote data is decoded unasked only as it is needed. "
            f"To make them: {command}"
        )
    assert loader.explain()["workers"].startswith("4 threads")
    assert len([one for one in caplog.messages if one.endswith(command)]) == 1
    check(loader)
    asked = loader_of(source, materialize=True)
    check(asked)
    assert asked.explain()["columns"].startswith("gathered; they were made")
    assert asked.explain()["workers"].startswith("the caller's own thread: to gather")
    fault_proxy.clear()
    check(asked)
    check(loader_of(source, num_workers=0))
    check(loader_of(source, num_workers=2))
    assert fault_proxy.count() == 0


def test_published_columns_are_fetched_once_and_gathered(
    url: str, source: Source, fault_proxy: FaultProxy, elsewhere: Callable[[], None]
) -> None:
    source.materialize(TYPES, path=f"{url}/index/columns", workers=0)
    elsewhere()
    fresh = opened(url, fault_proxy)
    for is_first in (True, False):
        fault_proxy.clear()
        loader = loader_of(fresh)
        assert loader.explain()["columns"] == "gathered; they were there"
        assert loader.explain()["workers"].startswith("the caller's own thread")
        check(loader)
        assert fault_proxy.count(path="part-0") == 0
        assert (fault_proxy.count() > 0) == is_first


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (s3_error(403, "AccessDenied"), "403"),
        (s3_error(503, "SlowDown"), "given up after 1 s"),
        (stall(), "storage did not answer for 1 s"),
    ],
    ids=["denied", "throttled", "stalled"],
)
def test_storage_that_does_not_say_whether_there_are_columns_breaks_no_run(
    action: Action,
    told: str,
    url: str,
    fault_proxy: FaultProxy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = opened(url, fault_proxy, timeout=4, retry_timeout=1)
    fault_proxy.add(Fault(action, path="columns", times=None))
    loader = loader_of(source, stall_timeout=1 if told.startswith("storage") else 30)
    check(loader)
    check(loader)
    assert loader.explain()["columns"].startswith("decoded anew for each batch: remote data is")
    (entry,) = [one for one in caplog.messages if "does not say whether there are columns" in one]
    assert told in entry


def test_columns_that_take_long_to_fetch_are_waited_for(
    url: str, source: Source, fault_proxy: FaultProxy, elsewhere: Callable[[], None]
) -> None:
    """As long as something comes, and whatever `stall_timeout` says about a batch."""
    source.materialize(TYPES, path=f"{url}/index/columns", workers=0)
    elsewhere()
    fresh = opened(url, fault_proxy)
    fault_proxy.clear()
    fault_proxy.add(Fault(delay(0.1), method="GET", path="columns/", times=None))
    loader = loader_of(fresh, stall_timeout=1)
    assert loader.explain()["columns"] == "gathered; they were there"
    assert fault_proxy.count("GET", "columns/") > 10
    check(loader)


def test_gzip_there_is_shuffled_for_whoever_asks_for_columns(
    s3_server: S3Server, bucket: str
) -> None:
    s3_server.put(bucket, "packed/a.jsonl.gz", gzip.compress(LINES))
    url = f"s3://{bucket}/packed"
    source = penstock.open(url, storage_options=s3_server.storage_options)
    loader = loader_of(source)
    with pytest.raises(OptionError, match=r"gzip.*remote data.*materialize=True.*penstock mat"):
        next(iter(loader))
    check(loader_of(source, materialize=True))
    check(loader_of(source))  # Now they are there.


@pytest.mark.parametrize("materialize", [False, True])
def test_a_field_that_no_record_has_is_refused_or_told_once(
    source: Source, materialize: Any, caplog: pytest.LogCaptureFixture
) -> None:
    types = {"n": "int64", "tax": "float32"}
    with pytest.raises(OptionError, match="no record that was looked at has a field 'tax'"):
        next(iter(DataLoader(source, types, batch_size=30, materialize=materialize)))
    types["tax"] = "float32?"
    loader = DataLoader(source, types, batch_size=30, materialize=materialize)
    assert not caplog.messages
    assert len(list(loader)) == 7
    (told,) = [one for one in caplog.messages if "'tax'" in one]
    assert told.startswith("no record that was looked at has a field 'tax': they have n, x")


def test_bad_records_are_told_from_where_they_lie(
    s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    s3_server.put(bucket, "bad/a.jsonl", LINES.replace(b'"n": 77,', b'"n": "many",'))
    source = penstock.open(f"s3://{bucket}/bad", storage_options=s3_server.storage_options)
    for on_error in ("raise", "mask"):
        runs = [
            outcome(loader_of(source, materialize=way, on_error=on_error)) for way in (False, True)
        ]
        assert runs[0] == runs[1]
    assert runs[0].bad == 1
    assert not [*tmp_path.iterdir()]
