"""The pytest plugin: one S3 server for the whole run, and a fresh bucket or proxy for each test.

A test that asks for any of these fixtures is marked `s3`, so that the same tests run on moto with
`make test` and on Ceph with `make test-system`.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.servers.fault_proxy import FaultProxy
from tests.servers.http_files import HttpFiles, http_files
from tests.servers.moto import moto_server
from tests.servers.radosgw import radosgw_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.s3_server import S3Server

SERVERS = {"moto": moto_server, "radosgw": radosgw_server}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--s3-server",
        choices=sorted(SERVERS),
        default="moto",
        help="the S3 server that tests marked s3 run on (default: %(default)s)",
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    if "s3_server" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.s3)


@pytest.fixture(scope="session")
def s3_server(pytestconfig: pytest.Config) -> Iterator[S3Server]:
    """The running S3 server, with a client to look into it."""
    with SERVERS[pytestconfig.getoption("--s3-server")]() as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """The name of an empty bucket."""
    return s3_server.new_bucket()


@pytest.fixture
def fault_proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    """A proxy in front of the S3 server; its `storage_options` lead through it."""
    with FaultProxy(s3_server.url, s3_server.storage_options) as proxy:
        yield proxy


@pytest.fixture
def web() -> Iterator[HttpFiles]:
    """An HTTP server without files."""
    with http_files() as served:
        yield served


@pytest.fixture
def dead_endpoint() -> Iterator[str]:
    """The URL of a port on which nothing listens, nor will while the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
