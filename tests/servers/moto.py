"""moto's S3 server: up in half a second, pure Python; it takes any signature for a good one."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.daemon import Daemon
from tests.servers.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

START_TIMEOUT = 60.0
LISTENING = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")
ACCESS_KEY_ID = "testing"
SECRET_ACCESS_KEY = "testing123"


@contextlib.contextmanager
def moto_server() -> Iterator[S3Server]:
    """Run moto in a process of its own while the block lasts."""
    with tempfile.TemporaryDirectory(prefix="penstock-moto-") as folder:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
        daemon = Daemon(command, Path(folder, "moto.log"), env)
        try:
            daemon.wait_until(lambda: LISTENING.search(daemon.output) is not None, START_TIMEOUT)
            found = LISTENING.search(daemon.output)
            assert found is not None
            with contextlib.closing(S3Server(found[1], ACCESS_KEY_ID, SECRET_ACCESS_KEY)) as server:
                yield server
        finally:
            daemon.kill()
