"""What happens to writers and readers that the system refuses something."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import StorageError
from penstock.jsonl import JsonlDir, JsonlFile
from tests.faults.writer_programs import record

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = 65534
SMALL_SHARD = 20


def told(failure: BaseException) -> dict[str, Any]:
    """Return what a test wants to know of an error."""
    return {
        "kind": type(failure).__name__,
        "built_ins": [kind.__name__ for kind in type(failure).__mro__],
        "text": str(failure),
        "errno": getattr(failure, "errno", None),
        "path": getattr(failure, "path", None),
    }


def write_with_a_size_limit(
    path: str, options: dict[str, str], kind: str, limit: int
) -> dict[str, Any]:
    """Write more than a file may hold, in one of several ways; return how that ended."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    return overfill(path, options, kind, limit)


def overfill(path: str, options: dict[str, str], kind: str, limit: int) -> dict[str, Any]:
    """Write small shards that fit, then more than `limit`; or a file larger than that at once."""
    ways = {
        "file": _overfill_file,
        "dir": _overfill_dir,
        "async file": lambda *args: asyncio.run(_overfill_file_async(*args)),
        "async dir": lambda *args: asyncio.run(_overfill_dir_async(*args)),
        "raw": _overfill_raw,
    }
    published: list[str] = []
    try:
        ways[kind](path, options, limit, published)
    except StorageError as failure:
        return {**told(failure), "published": published}
    return {"kind": None, "published": published}


def _overfill_file(path: str, options: dict[str, str], limit: int, _: list[str]) -> None:
    with JsonlFile(path, options).writer_sync(flush_bytes=1000) as writer:
        writer.write_many(record("x", number) for number in range(2 * limit // 400))


def _overfill_dir(path: str, options: dict[str, str], limit: int, published: list[str]) -> None:
    with JsonlDir(path, options).writer_sync(_extension(path), flush_bytes=1000) as writer:
        writer.write(record("first", 0))
    published += writer.published
    writer = JsonlDir(path, options).writer_sync(
        _extension(path), max_records_per_shard=SMALL_SHARD, flush_bytes=1000
    )
    try:
        with writer:
            writer.write_many(record("x", number) for number in range(3 * SMALL_SHARD))
            writer.write({"tag": "huge", "text": os.urandom(limit).hex()})
    finally:
        published += writer.published


async def _overfill_file_async(
    path: str, options: dict[str, str], limit: int, _: list[str]
) -> None:
    async with JsonlFile(path, options).writer(flush_bytes=1000) as writer:
        await writer.write_many(record("x", number) for number in range(2 * limit // 400))


async def _overfill_dir_async(
    path: str, options: dict[str, str], limit: int, published: list[str]
) -> None:
    writer = JsonlDir(path, options).writer(
        _extension(path), max_records_per_shard=SMALL_SHARD, flush_bytes=1000
    )
    try:
        async with writer:
            await writer.write_many(record("x", number) for number in range(3 * SMALL_SHARD))
            await writer.write({"tag": "huge", "text": os.urandom(limit).hex()})
    finally:
        published += writer.published


def _overfill_raw(path: str, options: dict[str, str], limit: int, _: list[str]) -> None:
    with JsonlFile(path, options).open_sync("wb") as file:
        file.write(os.urandom(limit // 2))
        file.write(os.urandom(limit))


def _extension(path: str) -> str:
    return ".jsonl.zst" if path.endswith("zst") else ".jsonl"


def swallow_a_failed_write(path: str, limit: int) -> list[dict[str, Any]]:
    """Go on after a write that failed, as careless code does; return every error met."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    met = []
    try:
        with JsonlFile(path).writer_sync(flush_bytes=1000) as writer:
            writer.write({"n": 0})
            try:
                writer.write({"text": "x" * 2 * limit})
                writer.flush()
            except StorageError as failure:
                met.append(told(failure))
            try:
                writer.write({"n": 1})
            except StorageError as failure:
                met.append(told(failure))
    except StorageError as failure:
        met.append(told(failure))
    return met


def try_without_permission() -> dict[str, Any]:
    """Try everything that modes can forbid, as a user whom modes concern; return what was said."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    if os.getuid() == 0:
        # Root may do anything, so be somebody else.
        os.chown(place, NOBODY, NOBODY)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        return {"place": str(place), **_attempts(place)}
    finally:
        for folder in place.rglob("*"):
            if folder.is_dir():
                folder.chmod(0o700)
        shutil.rmtree(place)


def _attempts(place: Path) -> dict[str, Any]:
    closed = _folder(place, "closed", {"kept.jsonl": b'{"n":0}\n'}, 0o555)
    unreadable = _folder(place, "unreadable", {"part-00000.jsonl": b"{}\n"}, 0o300)
    no_entry = _folder(place, "no-entry", {"a.jsonl": b"{}\n"}, 0o000)
    secret = _folder(place, "secret", {"a.jsonl": b"{}\n"}, 0o755) / "a.jsonl"
    secret.chmod(0o000)
    said = {
        "write a file": _said(lambda: _write(JsonlFile(closed / "a.jsonl"))),
        "write a compressed file": _said(lambda: _write(JsonlFile(closed / "a.jsonl.zst"))),
        "replace a file": _said(lambda: _write(JsonlFile(closed / "kept.jsonl"))),
        "write a shard": _said(lambda: _write(JsonlDir(closed))),
        "make a directory": _said(lambda: _write(JsonlDir(closed / "new" / "below"))),
        "delete": _said(JsonlFile(closed / "kept.jsonl").delete_sync),
        "read a file": _said(lambda: list(JsonlFile(secret).iter_records_sync())),
        "read a directory": _said(lambda: list(JsonlDir(unreadable).iter_records_sync())),
        "append to a directory": _said(lambda: _write(JsonlDir(unreadable))),
        "ask whether it exists": _said(JsonlFile(no_entry / "a.jsonl").exists_sync),
        "ask for the size": _said(JsonlFile(no_entry / "a.jsonl").size_sync),
        "write below what has no entry": _said(lambda: _write(JsonlFile(no_entry / "b.jsonl"))),
    }
    # What may be written and not read: a letter box.
    _write(JsonlFile(unreadable / "posted.jsonl"))
    # What another user's dead writer left cannot be cleared; that is no reason not to write.
    shared = _folder(place, "shared", {".x.0123456789abcdef.penstock-tmp": b"left"}, 0o755)
    (shared / ".x.0123456789abcdef.penstock-tmp").chmod(0o000)
    _write(JsonlDir(shared))
    for folder in (closed, unreadable, no_entry):
        folder.chmod(0o755)
    names = {p.name: sorted(f.name for f in p.iterdir()) for p in place.iterdir()}
    return {"said": said, "names": names, "kept": (closed / "kept.jsonl").read_text()}


def _folder(place: Path, name: str, files: dict[str, bytes], mode: int) -> Path:
    folder = place / name
    folder.mkdir()
    for file, content in files.items():
        (folder / file).write_bytes(content)
    folder.chmod(mode)
    return folder


def _write(target: JsonlFile | JsonlDir) -> None:
    with target.writer_sync() as writer:
        writer.write({"n": 1})


def _said(attempt: Callable[[], object]) -> dict[str, Any]:
    try:
        return {"kind": None, "result": attempt()}
    except OSError as failure:
        return told(failure)


def write_until_signalled(path: str) -> None:
    """Write three shards and half of another, and wait; a signal ends it as Python ends for it.

    One in the very moment in which a draft is made could leave that, for nobody knows it yet.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    with JsonlDir(path).writer_sync(max_records_per_shard=SMALL_SHARD, flush_bytes=1000) as writer:
        for number in range(3 * SMALL_SHARD + SMALL_SHARD // 2):
            writer.write(record("x", number))
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
