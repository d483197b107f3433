from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.grounds import Ground
    from tests.faults.remote import Remote
    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server


@pytest.fixture
def local_ground(tmp_path: Path) -> Ground:
    from tests.faults.grounds import LocalGround

    return LocalGround(str(tmp_path / "ground"))


@pytest.fixture
def s3_ground(s3_server: S3Server, bucket: str) -> Ground:
    from tests.faults.grounds import S3Ground

    # Not through the proxy: it takes a request wholly before it passes it on, and a killed
    # writer's half request must reach the server.
    options = dict(s3_server.storage_options)
    return S3Ground(f"s3://{bucket}/ground", options, s3_server, bucket)


@pytest.fixture(scope="session")
def exfat_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root of a file system without hard links."""
    from tests.faults.mounts import exfat

    with exfat(tmp_path_factory.mktemp("mounts") / "exfat") as root:
        yield root


@pytest.fixture
def exfat_ground(exfat_root: Path, tmp_path: Path) -> Ground:
    from tests.faults.grounds import LocalGround

    return LocalGround(str(exfat_root / tmp_path.name))


@pytest.fixture(
    params=[
        "local",
        pytest.param("s3", marks=pytest.mark.s3),
        pytest.param("exfat", marks=pytest.mark.system),
    ]
)
def ground(request: pytest.FixtureRequest) -> Ground:
    """A place to write: local, on S3, and on a file system without hard links."""
    chosen: Ground = request.getfixturevalue(f"{request.param}_ground")
    return chosen


@pytest.fixture
def remote(s3_server: S3Server, bucket: str, fault_proxy: FaultProxy) -> Remote:
    """A bucket behind the proxy."""
    from tests.faults.remote import Remote

    return Remote(s3_server, bucket, fault_proxy)
