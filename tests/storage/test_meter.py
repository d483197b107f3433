"""What reading costs is counted exactly, for whoever asked, by any thread."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.storage import (
    InFlight,
    Meter,
    ReadAhead,
    StorageOptions,
    carried,
    current_meter,
    locate,
    metered,
    reading,
)
from penstock.storage._meter import waiting
from tests.servers.faults import Fault, delay, s3_error, truncate_body

if TYPE_CHECKING:
    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

BODY = bytes(range(256)) * 8192


def test_counts_are_those_of_the_server_through_throttling_and_resets(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    s3_server.put(bucket, "a", BODY)
    store, name = locate(f"s3://{bucket}/a", StorageOptions(fault_proxy.storage_options))
    file = store.open(name)
    fault_proxy.clear()
    fault_proxy.add(Fault(s3_error(503, "SlowDown"), method="GET", times=2))
    fault_proxy.add(Fault(s3_error(429, "TooManyRequests"), method="GET"))
    fault_proxy.add(Fault(s3_error(500, "InternalError"), method="GET"))
    fault_proxy.add(Fault(truncate_body(1_000_000), method="GET"))
    meter = Meter()
    with metered(meter):
        assert file.read_at(5, len(BODY) - 5) == BODY[5:]
    assert (meter.requests, meter.retries, meter.throttled) == (6, 5, 3)
    assert meter.requests == fault_proxy.count("GET")
    assert meter.bytes == len(BODY) - 5  # What came before the reset is not fetched again.
    # What the client had not yet taken out of the connection is lost with it.
    start, stop = fault_proxy.requests[-1].range.removeprefix("bytes=").split("-")
    assert 5 < int(start) <= 1_000_005
    assert int(stop) == len(BODY) - 1
    assert meter.in_flight() == []
    file.read_at(0, 10)
    assert meter.requests == 6  # Outside of the block nothing is counted.


def test_ranges_that_are_read_by_threads_are_counted(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    s3_server.put(bucket, "a", BODY * 3)
    store, name = locate(f"s3://{bucket}/a", StorageOptions(fault_proxy.storage_options))
    file = store.open(name)
    fault_proxy.clear()
    with metered(Meter()) as meter:
        file.read_ranges([(0, 10), (3_000_000, 10), (6_000_000, 10)])
    assert meter is not None
    assert (meter.requests, meter.bytes) == (fault_proxy.count("GET"), 30)


def test_what_is_waited_for_is_named(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    s3_server.put(bucket, "a", BODY)
    store, name = locate(f"s3://{bucket}/a", StorageOptions(fault_proxy.storage_options))
    file = store.open(name)
    fault_proxy.add(Fault(delay(1.0), method="GET"))
    meter, before = Meter(), time.monotonic()
    with metered(meter):
        thread = threading.Thread(target=carried(file.read_at), args=(7, 100))
        thread.start()
    while not (waiting := meter.in_flight()):
        time.sleep(0.001)
    thread.join()
    assert [one[:3] for one in waiting] == [(f"s3://{bucket}/a", 7, 107)]
    assert before <= waiting[0].since <= time.monotonic()
    assert meter.in_flight() == []


def test_threads_count_together() -> None:
    meter = Meter()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(1000):
            pool.submit(meter.count, requests=1, bytes=3)
    assert (meter.requests, meter.bytes) == (1000, 3000)


def test_a_meter_holds_for_its_block_and_inner_ones_win() -> None:
    outer, inner = Meter(), Meter()
    assert current_meter() is None
    with metered(outer):
        with metered(inner):
            assert current_meter() is inner
        with metered(None):
            assert current_meter() is None
        assert current_meter() is outer
    assert current_meter() is None


def test_what_is_read_ahead_is_counted() -> None:
    meter = Meter()
    with metered(meter):
        ahead = ReadAhead(iter(current_meter, ""), limit=1, weigh=lambda _: 1, name="test")
    assert next(ahead) is meter
    ahead.close()


def test_time_is_counted_once_however_deep() -> None:
    meter = Meter()
    with metered(meter), reading():
        with reading(), ThreadPoolExecutor(4) as pool:
            list(pool.map(carried(_read_a_while), range(4)))
        assert meter.seconds_reading == 0
    assert meter.seconds_reading >= 0.02
    once = meter.seconds_reading
    with reading():
        pass
    assert meter.seconds_reading == once


def _read_a_while(_: int) -> None:
    with reading():
        time.sleep(0.02)


def test_counts_travel_between_processes() -> None:
    meter = Meter()
    meter.count(requests=2, seconds_reading=0.5)
    with metered(meter), waiting("a", 0, 1):
        assert meter.in_flight() == [InFlight("a", 0, 1, meter.in_flight()[0].since)]
        twin = pickle.loads(pickle.dumps(meter))
    assert twin.counts() == meter.counts()
    assert twin.in_flight() == []
    twin.count(**meter.counts())
    assert (twin.requests, twin.seconds_reading) == (4, 1.0)
