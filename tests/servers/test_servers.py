from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError

from tests.servers.daemon import Daemon, ServerStartError, free_ports, listens
from tests.servers.fault_proxy import FaultProxy
from tests.servers.obstore_client import obstore_client
from tests.servers.radosgw import radosgw_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.s3_server import S3Server

CREATORS = 16
ROOT = Path(__file__).parents[2]
# A process that runs a server until it is killed, as a run of the tests does.
RUN = """
from tests.servers.fixtures import SERVERS
with SERVERS[{kind!r}]() as server:
    print(server.url, flush=True)
    input()
"""


def test_what_is_put_into_a_fresh_bucket_is_all_there_is_in_it(s3_server: S3Server) -> None:
    first, second = s3_server.new_bucket(), s3_server.new_bucket()
    s3_server.put(first, "a/1", b"one")
    s3_server.put(first, "b/2", b"two")
    assert s3_server.list_keys(first) == ["a/1", "b/2"]
    assert s3_server.list_keys(first, "b/") == ["b/2"]
    assert s3_server.get(first, "b/2") == b"two"
    assert s3_server.list_keys(second) == []


def test_uploads_that_were_begun_and_not_ended_are_seen(s3_server: S3Server, bucket: str) -> None:
    assert s3_server.multipart_uploads(bucket) == []
    with contextlib.closing(s3_server.client()) as client:
        begun = client.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
        assert s3_server.multipart_uploads(bucket) == [("k", begun)]
        client.abort_multipart_upload(Bucket=bucket, Key="k", UploadId=begun)
    assert s3_server.multipart_uploads(bucket) == []


def test_of_sixteen_creators_of_an_object_exactly_one_wins(
    s3_server: S3Server, bucket: str
) -> None:
    client = obstore_client(bucket, s3_server.storage_options)

    def create(key: str, creator: int) -> bool:
        try:
            client.put(key, f"creator {creator}".encode() * 1000, mode="create")
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(CREATORS) as pool:
        for number in range(10):
            key = f"object-{number}"
            created = list(pool.map(create, [key] * CREATORS, range(CREATORS)))
            assert created.count(True) == 1
            winner = f"creator {created.index(True)}".encode() * 1000
            assert s3_server.get(bucket, key) == winner


def test_tests_that_use_the_server_are_marked(request: pytest.FixtureRequest, bucket: str) -> None:
    assert bucket
    assert request.node.get_closest_marker("s3") is not None


def test_tests_that_do_not_use_it_are_not_marked(
    request: pytest.FixtureRequest, dead_endpoint: str
) -> None:
    assert dead_endpoint
    assert request.node.get_closest_marker("s3") is None


def test_nothing_listens_on_the_dead_endpoint(dead_endpoint: str) -> None:
    port = urlsplit(dead_endpoint).port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert not any(listens(port) for port in ports)


def test_a_server_that_ends_too_early_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo no such cluster; exit 3"]
    daemon = Daemon(command, tmp_path / "broken.log", os.environ)
    with pytest.raises(ServerStartError, match=r"(?s)broken ended with status 3.*no such cluster"):
        daemon.wait_until(lambda: False, 20)
    daemon.kill()


def test_a_server_that_never_gets_ready_is_an_error(tmp_path: Path) -> None:
    daemon = Daemon(["sleep", "60"], tmp_path / "slow.log", os.environ)
    with pytest.raises(ServerStartError, match="slow not ready in 0"):
        daemon.wait_until(lambda: False, 0.2)
    daemon.kill()
    assert not alive(daemon.pid)


def test_a_missing_ceph_is_an_error_that_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerStartError, match=r"radosgw.*`make test-system`"), radosgw_server():
        pass


def test_ctrl_c_ends_the_server_and_removes_its_folder(tmp_path: Path) -> None:
    with running("moto", tmp_path) as (process, url):
        assert list(tmp_path.iterdir())
        os.killpg(process.pid, signal.SIGINT)
        process.wait(20)
        assert not listens(urlsplit(url).port or 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
@pytest.mark.parametrize(("kind", "daemons"), [("moto", 1), ("radosgw", 3)])
def test_servers_end_when_the_run_of_the_tests_is_killed(
    kind: str, daemons: int, tmp_path: Path
) -> None:
    with running(kind, tmp_path) as (process, url):
        pids = children(process.pid)
        assert len(pids) == daemons
        process.kill()
        process.wait(20)
        wait_until_gone(pids)
        assert not listens(urlsplit(url).port or 0)


@pytest.mark.system
def test_a_cluster_that_fails_half_way_leaves_neither_process_nor_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bin" / "radosgw-admin"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho out of luck\nexit 7\n")
    broken.chmod(0o755)
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    before = children(os.getpid())
    with pytest.raises(ServerStartError, match="out of luck"), radosgw_server():
        pass
    assert children(os.getpid()) == before
    assert list(folder.iterdir()) == []


@pytest.mark.system
def test_radosgw_checks_signatures_also_behind_the_proxy() -> None:
    with (
        radosgw_server() as server,
        FaultProxy(server.url, server.storage_options) as proxy,
    ):
        bucket = server.new_bucket()
        obstore_client(bucket, proxy.storage_options).put("key", b"content")
        assert server.get(bucket, "key") == b"content"
        wrong = {**proxy.storage_options, "secret_access_key": "guessed"}
        with pytest.raises(PermissionDeniedError, match="SignatureDoesNotMatch"):
            obstore_client(bucket, wrong).put("key", b"x" * (20 << 20), use_multipart=False)
        assert server.get(bucket, "key") == b"content"


@contextlib.contextmanager
def running(kind: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server in another process, with its files in `folder`; give the process and the URL."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", RUN.format(kind=kind)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def children(parent: int) -> set[int]:
    pids = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name before it is in parentheses and may hold anything.
            _, fields = entry.read_text().rsplit(")", 1)
            if int(fields.split()[1]) == parent:
                pids.add(int(entry.parent.name))
    return pids


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pids: set[int]) -> None:
    deadline = time.monotonic() + 20
    while any(map(alive, pids)):
        assert time.monotonic() < deadline, f"still running: {[p for p in pids if alive(p)]}"
        time.sleep(0.05)
