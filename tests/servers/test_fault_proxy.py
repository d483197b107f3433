from __future__ import annotations

import http.client
import itertools
import os
import socket
import threading
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import pytest
from obstore.exceptions import GenericError

from tests.servers.fault_proxy import FaultProxy
from tests.servers.faults import (
    Action,
    Fault,
    delay,
    lose_response,
    reset_before_request,
    reset_during_upload,
    reset_in_body,
    s3_error,
    stall,
    status,
    truncate_body,
)
from tests.servers.obstore_client import obstore_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore.store import S3Store

    from tests.servers.s3_server import S3Server

CONTENT = bytes(itertools.islice(itertools.cycle(range(251)), 400_000))
NEVER = 3600.0


def store(bucket: str, proxy: FaultProxy, *, retries: int = 0, timeout: float = 20.0) -> S3Store:
    return obstore_client(bucket, proxy.storage_options, retries=retries, timeout=timeout)


@contextmanager
def presigned_get(
    server: S3Server, proxy: FaultProxy, bucket: str, key: str
) -> Iterator[http.client.HTTPConnection]:
    """Ask for an object with a client that repeats and hides nothing."""
    with closing(server.client(proxy.url)) as client:
        url = client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key})
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    with closing(connection):
        connection.request("GET", f"{parts.path}?{parts.query}")
        yield connection


# What passes unharmed


def test_requests_are_passed_on_and_counted_in_order(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    client = store(bucket, fault_proxy)
    client.put("key", CONTENT, use_multipart=False)
    assert s3_server.get(bucket, "key") == CONTENT
    assert client.get("key").bytes() == CONTENT
    assert client.get_range("key", start=10, length=1000) == CONTENT[10:1010]
    assert client.head("key")["size"] == len(CONTENT)
    assert [entry["path"] for page in client.list() for entry in page] == ["key"]

    seen = [(r.method, r.range, r.status, r.received) for r in fault_proxy.requests]
    assert seen == [
        ("PUT", None, 200, len(CONTENT)),
        ("GET", None, 200, 0),
        ("GET", "bytes=10-1009", 206, 0),
        ("HEAD", None, 200, 0),
        ("GET", None, 200, 0),
    ]
    assert [r.sent for r in fault_proxy.requests[1:4]] == [len(CONTENT), 1000, 0]
    assert all(r.path.startswith(f"/{bucket}") for r in fault_proxy.requests)
    assert fault_proxy.count() == 5
    assert fault_proxy.count("GET", "/key") == 2
    fault_proxy.clear()
    assert fault_proxy.requests == []


def test_one_connection_serves_many_requests(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    s3_server.put(bucket, "key", CONTENT)
    with closing(s3_server.client(fault_proxy.url)) as client:
        for _ in range(5):
            assert client.head_object(Bucket=bucket, Key="key")["ContentLength"] == len(CONTENT)
            assert client.get_object(Bucket=bucket, Key="key")["Body"].read() == CONTENT
            client.put_object(Bucket=bucket, Key="other", Body=b"x")
            client.delete_object(Bucket=bucket, Key="other")
    assert fault_proxy.count() == 20
    assert fault_proxy.connections == 1


def test_an_upload_of_several_parts_passes(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    content = os.urandom(12 << 20)
    store(bucket, fault_proxy).put("key", content, use_multipart=True, chunk_size=5 << 20)
    assert s3_server.get(bucket, "key") == content
    assert fault_proxy.count("PUT", "partNumber=") == 3
    assert fault_proxy.count("POST") == 2


def test_a_client_that_waits_for_100_continue_is_told_to_go_on(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    with closing(s3_server.client(fault_proxy.url)) as client:
        client.put_object(Bucket=bucket, Key="key", Body=CONTENT * 4)
    assert fault_proxy.requests[0].headers["expect"] == "100-continue"
    assert s3_server.get(bucket, "key") == CONTENT * 4


class Echo(BaseHTTPRequestHandler):
    """Answers a chunked PUT with the bytes that came, in the framing that the path asks for."""

    def do_PUT(self) -> None:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        self.send_response(200)
        self.send_header("x-host", self.headers["Host"])
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("path", ["/chunked", "/until-close"])
def test_bodies_without_a_declared_length_pass_both_ways(path: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with FaultProxy(f"http://127.0.0.1:{server.server_port}") as proxy:
                host = proxy.url.removeprefix("http://")
                with closing(http.client.HTTPConnection(host, timeout=20)) as connection:
                    for _ in range(2):
                        connection.request("PUT", path, iter([CONTENT[:70_000], CONTENT[70_000:]]))
                        answer = connection.getresponse()
                        assert answer.headers["x-host"] == host
                        assert answer.read() == CONTENT
                assert [r.method for r in proxy.requests] == ["PUT", "PUT"]
        finally:
            server.shutdown()
            thread.join(20)


# Which requests are struck


def test_a_fault_strikes_after_some_matches_and_so_many_times(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    s3_server.put(bucket, "part-1", b"x")
    s3_server.put(bucket, "part 2", b"x")
    fault = Fault(s3_error(503, "SlowDown"), method="GET", path="part 2", times=2, after=1)
    assert fault_proxy.add(fault) is fault
    client = store(bucket, fault_proxy)
    client.head("part 2")
    client.get("part-1")
    for _ in range(5):
        with suppress(GenericError):
            client.get("part 2")
    assert [r.status for r in fault_proxy.requests] == [200, 200, 200, 503, 503, 200, 200]
    assert fault.applied == 2
    assert [r.fault for r in fault_proxy.requests if r.fault] == [fault.action] * 2


def test_the_fault_that_was_added_first_strikes_first_and_may_strike_for_ever(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    s3_server.put(bucket, "key", b"x")
    fault_proxy.add(Fault(status(500)))
    fault_proxy.add(Fault(status(503), times=None))
    with pytest.raises(GenericError, match="after 5 retries"):
        store(bucket, fault_proxy, retries=5).get("key")
    assert [r.status for r in fault_proxy.requests] == [500, *[503] * 5]
    fault_proxy.clear()
    assert store(bucket, fault_proxy).get("key").bytes() == b"x"


# What each fault does


def test_a_status_is_answered_without_asking_the_server(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    fault_proxy.add(Fault(s3_error(503, "SlowDown"), method="PUT"))
    with pytest.raises(GenericError, match=r"(?s)503.*<Code>SlowDown</Code>"):
        store(bucket, fault_proxy).put("key", CONTENT, mode="create")
    assert s3_server.list_keys(bucket) == []
    assert fault_proxy.requests[0].received == len(CONTENT)
    store(bucket, fault_proxy).put("key", CONTENT, mode="create")
    assert s3_server.get(bucket, "key") == CONTENT


def test_a_status_after_success_is_answered_for_what_the_server_did(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    fault_proxy.add(Fault(s3_error(500, "InternalError", after_success=True), method="PUT"))
    with pytest.raises(GenericError, match="500"):
        store(bucket, fault_proxy).put("key", CONTENT, mode="create")
    assert s3_server.get(bucket, "key") == CONTENT


def test_a_status_for_head_has_no_body_and_keeps_the_connection(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    s3_server.put(bucket, "key", b"x")
    fault_proxy.add(Fault(s3_error(503, "SlowDown"), method="HEAD"))
    assert store(bucket, fault_proxy, retries=1).head("key")["size"] == 1
    assert [(r.status, r.sent) for r in fault_proxy.requests] == [(503, 0), (200, 0)]
    assert fault_proxy.connections == 1


def test_a_reset_before_the_request_keeps_it_from_the_server(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    fault_proxy.add(Fault(reset_before_request(), method="PUT"))
    with pytest.raises(GenericError, match="ConnectionReset"):
        store(bucket, fault_proxy).put("key", b"x", mode="create")
    assert s3_server.list_keys(bucket) == []
    assert [r.status for r in fault_proxy.requests] == [None]


def test_a_reset_during_an_upload_keeps_it_from_the_server(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    content = os.urandom(16 << 20)
    fault_proxy.add(Fault(reset_during_upload(1 << 20), method="PUT"))
    with pytest.raises(GenericError, match=r"ConnectionReset|BrokenPipe"):
        store(bucket, fault_proxy).put("key", content, mode="create")
    assert s3_server.list_keys(bucket) == []
    assert 1 << 20 <= fault_proxy.requests[0].received < 2 << 20


def test_a_lost_response_leaves_the_object_on_the_server(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    fault_proxy.add(Fault(lose_response(), method="PUT"))
    with pytest.raises(GenericError, match="ConnectionReset"):
        store(bucket, fault_proxy).put("key", CONTENT, mode="create")
    assert s3_server.get(bucket, "key") == CONTENT
    assert [r.status for r in fault_proxy.requests] == [None]


@pytest.mark.parametrize(
    ("action", "error"),
    [
        pytest.param(reset_in_body(1000), ConnectionResetError, id="reset"),
        pytest.param(truncate_body(1000), http.client.IncompleteRead, id="truncation"),
    ],
)
def test_a_body_breaks_off_where_it_was_told_to(
    s3_server: S3Server,
    bucket: str,
    fault_proxy: FaultProxy,
    action: Action,
    error: type[Exception],
) -> None:
    s3_server.put(bucket, "key", CONTENT)
    fault_proxy.add(Fault(action, method="GET"))
    with presigned_get(s3_server, fault_proxy, bucket, "key") as connection:
        answer = connection.getresponse()
        assert (answer.status, answer.length) == (200, len(CONTENT))
        assert answer.read(1000) == CONTENT[:1000]
        with pytest.raises(error):
            answer.read()
    assert fault_proxy.requests[0].sent == 1000


@pytest.mark.parametrize("action", [reset_in_body(1000), truncate_body(1000)])
def test_a_body_that_is_short_breaks_off_too(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy, action: Action
) -> None:
    s3_server.put(bucket, "key", b"0123456789")
    fault_proxy.add(Fault(action, method="GET"))
    with pytest.raises(GenericError, match="body error"):
        store(bucket, fault_proxy).get("key").bytes()
    assert fault_proxy.requests[0].sent == 9


@pytest.mark.parametrize("action", [reset_in_body(1000), truncate_body(1000)])
def test_a_client_that_resumes_gets_the_rest_of_a_broken_body(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy, action: Action
) -> None:
    s3_server.put(bucket, "key", CONTENT)
    fault_proxy.add(Fault(action, method="GET"))
    assert store(bucket, fault_proxy, retries=1).get("key").bytes() == CONTENT
    assert [r.range for r in fault_proxy.requests] == [None, f"bytes=1000-{len(CONTENT) - 1}"]


@pytest.mark.parametrize("action", [stall(), delay(NEVER)])
def test_a_request_that_is_held_back_runs_into_the_time_out(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy, action: Action
) -> None:
    fault = fault_proxy.add(Fault(action, method="PUT"))
    with pytest.raises(GenericError, match="Timeout"):
        store(bucket, fault_proxy, timeout=1.0).put("key", b"x", mode="create")
    fault_proxy.close()
    assert s3_server.list_keys(bucket) == []
    assert fault.applied == 1


@pytest.mark.parametrize("before", ["request", "body"])
def test_a_delayed_answer_comes_whole(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy, before: Literal["request", "body"]
) -> None:
    s3_server.put(bucket, "key", CONTENT)
    fault = fault_proxy.add(Fault(delay(0.01, before), method="GET"))
    assert store(bucket, fault_proxy).get("key").bytes() == CONTENT
    assert fault.applied == 1


def test_a_delay_before_the_body_lets_the_head_pass(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy
) -> None:
    s3_server.put(bucket, "key", CONTENT)
    fault_proxy.add(Fault(delay(NEVER, "body"), method="GET"))
    with presigned_get(s3_server, fault_proxy, bucket, "key") as connection:
        answer = connection.getresponse()
        assert answer.status == 200
        connection.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            answer.read()
    assert fault_proxy.requests[0].sent == 0


# What it leaves behind


def test_a_closed_proxy_leaves_no_thread_and_no_descriptor(
    s3_server: S3Server, bucket: str
) -> None:
    def now() -> tuple[set[threading.Thread], int]:
        return set(threading.enumerate()), sum(1 for _ in Path("/dev/fd").iterdir())

    s3_server.put(bucket, "key", b"x")
    threads, descriptors = now()
    for action in (stall(), delay(NEVER), delay(NEVER, "body"), reset_in_body(0), lose_response()):
        with FaultProxy(s3_server.url) as proxy, socket.socket() as client:
            proxy.add(Fault(action))
            client.connect(("127.0.0.1", urlsplit(proxy.url).port or 0))
            client.sendall(f"GET /{bucket}/key HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            while proxy.count() == 0:
                threading.Event().wait(0.01)
    threads_after, descriptors_after = now()
    assert threads_after <= threads
    # Fewer when a client of an earlier test drops its connections meanwhile.
    assert descriptors_after <= descriptors
