"""Ceph's S3 gateway on a cluster of one monitor and one store in memory, all on loopback.

A server that people run in production: it checks signatures, and what it answers is nobody's
simplified idea of S3.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.daemon import Daemon, ServerStartError, free_ports, listens
from tests.servers.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_TIMEOUT = 60.0
ACCESS_KEY_ID = "testing"
SECRET_ACCESS_KEY = "testing123"
PROGRAMS = (
    "ceph",
    "ceph-authtool",
    "ceph-mon",
    "ceph-osd",
    "monmaptool",
    "radosgw",
    "radosgw-admin",
)
CAPABILITIES = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *"},
    "client.rgw.a": {"mon": "allow rw", "osd": "allow rwx"},
    "osd.0": {"mon": "allow profile osd", "osd": "allow *"},
}
CONFIGURATION = """\
[global]
fsid = {cluster}
mon_initial_members = a
mon_host = v2:127.0.0.1:{mon_port}
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false

# Without cephx radosgw waits for ever.
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
keyring = {folder}/keyring

# Everything stays in the folder; a socket's path might not fit into the 107 bytes it may have.
admin_socket =
run_dir = {folder}
log_to_file = false
mon_cluster_log_to_file = false
log_to_stderr = true
mon_data = {folder}/mon
osd_data = {folder}/osd
rgw_data = {folder}/rgw

# One copy of everything, on the one store there is, however full the disk.
osd_objectstore = memstore
memstore_device_bytes = {store_bytes}
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_data_avail_crit = 1
mon_data_avail_warn = 1
osd_class_update_on_start = false
# The monitor gathers changes for a second before it decides, and start-up is a chain of changes.
paxos_propose_interval = 0.05

# Without tcp_nodelay every small answer takes 43 ms instead of 1 ms.
rgw_frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw_thread_pool_size = 64
rgw_enable_usage_log = false
rgw_lc_max_objs = 1
rgw_gc_max_objs = 1
# What is deleted leaves the memory soon.
rgw_gc_obj_min_wait = 1
rgw_gc_processor_period = 10
"""
# An upper limit: memory is taken as objects come.
STORE_BYTES = 8 << 30


@contextlib.contextmanager
def radosgw_server() -> Iterator[S3Server]:
    """Run the cluster and its gateway while the block lasts."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise ServerStartError(
            f"not installed: {', '.join(missing)}. Start the tests with `make test-system`, "
            "which installs what they need"
        )
    # Leaving the stack kills the gateway first, then the store, then the monitor.
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-ceph-")))
        url = _start(folder, stack)
        server = stack.enter_context(
            contextlib.closing(S3Server(url, ACCESS_KEY_ID, SECRET_ACCESS_KEY))
        )
        _warm_up(server)
        yield server


def _start(folder: Path, stack: contextlib.ExitStack) -> str:
    cluster, osd_id = str(uuid.uuid4()), str(uuid.uuid4())
    mon_port, port = free_ports(2)
    for name in ("mon", "osd", "rgw"):
        (folder / name).mkdir()
    (folder / "ceph.conf").write_text(
        CONFIGURATION.format(
            cluster=cluster,
            folder=folder,
            mon_port=mon_port,
            port=port,
            store_bytes=STORE_BYTES,
        )
    )
    _make_keys(folder)
    address = f"[v2:127.0.0.1:{mon_port}]"
    _run(folder, "monmaptool", "--create", "--addv", "a", address, "--fsid", cluster, "monmap")

    _run(folder, "ceph-mon", "-i", "a", "--mkfs", "--monmap", "monmap", "--keyring", "keyring")
    monitor = _daemon(folder, stack, "ceph-mon", "-i", "a")
    monitor.wait_until(lambda: listens(mon_port), STEP_TIMEOUT)

    _run(folder, "ceph", "osd", "new", osd_id)
    _run(folder, "ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd_id)
    _daemon(folder, stack, "ceph-osd", "-i", "0")

    keys = (f"--access-key={ACCESS_KEY_ID}", f"--secret={SECRET_ACCESS_KEY}")
    _run(folder, "radosgw-admin", "user", "create", "--uid=t", "--display-name=t", *keys)
    gateway = _daemon(folder, stack, "radosgw", "-n", "client.rgw.a")
    gateway.wait_until(lambda: listens(port), STEP_TIMEOUT)
    return f"http://127.0.0.1:{port}"


def _make_keys(folder: Path) -> None:
    _run(folder, "ceph-authtool", "--create-keyring", "keyring")
    for name, allowed in CAPABILITIES.items():
        caps = [word for room, what in allowed.items() for word in ("--cap", room, what)]
        _run(folder, "ceph-authtool", "keyring", "--gen-key", "-n", name, *caps)


def _environment(folder: Path) -> dict[str, str]:
    # Not PYTHONPATH and the like: `ceph` is a program of the system's own Python.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C.UTF-8", "CEPH_CONF": str(folder / "ceph.conf")}


def _run(folder: Path, *command: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=STEP_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ServerStartError(f"{' '.join(command)} took over {STEP_TIMEOUT} s") from error
    if done.returncode != 0:
        raise ServerStartError(
            f"{' '.join(command)} ended with status {done.returncode}:\n"
            f"{done.stdout.decode(errors='replace')}"
        )


def _daemon(folder: Path, stack: contextlib.ExitStack, *command: str) -> Daemon:
    daemon = Daemon([*command, "-f"], folder / f"{command[0]}.log", _environment(folder))
    stack.callback(daemon.kill)
    return daemon


def _warm_up(server: S3Server) -> None:
    """Use every pool once: making one takes a second, which a test of time-outs cannot spare."""
    bucket = server.new_bucket()
    server.put(bucket, "object", b"content")
    upload = {"Bucket": bucket, "Key": "parts"}
    client = server.client()
    with contextlib.closing(client):
        begun = client.create_multipart_upload(**upload)["UploadId"]
        client.upload_part(**upload, UploadId=begun, PartNumber=1, Body=b"content")
        client.abort_multipart_upload(**upload, UploadId=begun)
