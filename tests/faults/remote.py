"""JSON Lines on S3 behind a proxy that breaks things, for sync and async code alike."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.jsonl import JsonlDir, JsonlFile
from tests.servers.faults import Action, CloseConnectionError, Exchange, ResetConnectionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

Mode = Literal["sync", "async"]
Target = JsonlFile | JsonlDir


@dataclass(frozen=True)
class Remote:
    """A bucket, reached by Penstock through the proxy and by the test directly."""

    server: S3Server
    bucket: str
    proxy: FaultProxy

    def url(self, name: str) -> str:
        return f"s3://{self.bucket}/{name}"

    def file(self, name: str, **options: object) -> JsonlFile:
        return JsonlFile(self.url(name), {**self.proxy.storage_options, **options})

    def dir(self, name: str, **options: object) -> JsonlDir:
        return JsonlDir(self.url(name), {**self.proxy.storage_options, **options})

    def put(self, name: str, content: bytes) -> None:
        self.server.put(self.bucket, name, content)

    def get(self, name: str) -> bytes:
        return self.server.get(self.bucket, name)

    def names(self, prefix: str = "") -> list[str]:
        return self.server.list_keys(self.bucket, prefix)

    def records(self, name: str) -> list[Any]:
        """Return the records of a plain file, read without Penstock."""
        return [json.loads(line) for line in self.get(name).splitlines()]

    def unfinished_uploads(self) -> list[tuple[str, str]]:
        return self.server.multipart_uploads(self.bucket)


def lines(records: Iterable[object]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def read(source: Target, mode: Mode, seen: list[Any] | None = None) -> list[Any]:
    """Return all records; those before an error are in `seen`."""
    seen = [] if seen is None else seen

    async def read_async() -> None:
        async for record in source.iter_records():
            seen.append(record)

    if mode == "async":
        asyncio.run(read_async())
    else:
        for record in source.iter_records_sync():
            seen.append(record)
    return seen


def write(target: Target, records: Iterable[object], mode: Mode = "sync", **how: Any) -> None:
    """Write records by a writer of its own."""

    async def write_async() -> None:
        async with target.writer(**how) as writer:
            await writer.write_many(records)

    if mode == "async":
        asyncio.run(write_async())
    else:
        with target.writer_sync(**how) as writer:
            writer.write_many(records)


@dataclass(frozen=True)
class Meanwhile(Action):
    """Lets something happen at the very moment when a request has arrived."""

    happen: Callable[[], object]

    def on_request_head(self, exchange: Exchange) -> bool:
        del exchange
        self.happen()
        return False


@dataclass(frozen=True)
class MeanwhileInBody(Action):
    """Lets something happen when part of an answer is out, and ends the connection there."""

    happen: Callable[[], object]
    end: type[Exception] = ResetConnectionError

    def on_response_body(self, exchange: Exchange) -> None:
        exchange.send_some_body(1000)
        self.happen()
        raise self.end


ORDERLY = CloseConnectionError
