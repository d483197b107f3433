"""The same call through its sync and its async door, and what came out of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from penstock.jsonl import JsonlDir, JsonlFile, RecordIterator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable
    from pathlib import Path

both_doors = pytest.mark.parametrize("door", ["sync", "async"])
"""Runs a test with `door` sync and async."""

COMPRESSIONS = ["", ".zst", ".zstd", ".gz"]


class Outcome(NamedTuple):
    """What a stream gave before it ended, how it ended, and the lines that it skipped."""

    items: list[Any]
    error: Exception | None
    skipped: int


def read(
    source: JsonlFile | JsonlDir | Path, door: str, kind: str = "records", **options: object
) -> Outcome:
    """Read all that comes of `iter_<kind>` through a door, up to an error or the end."""
    if not isinstance(source, JsonlFile | JsonlDir):
        source = JsonlDir(source) if source.is_dir() else JsonlFile(source)
    stream = getattr(source, f"iter_{kind}{'_sync' if door == 'sync' else ''}")(**options)
    items: list[Any] = []
    if isinstance(stream, RecordIterator):
        try:
            items.extend(stream)
        except Exception as error:  # noqa: BLE001 (what ended it is for the test to judge)
            return Outcome(items, error, stream.skipped)
        return Outcome(items, None, stream.skipped)

    async def take() -> Exception | None:
        try:
            async for item in stream:
                items.append(item)  # noqa: PERF401 (what came before an error must be kept)
        except Exception as error:  # noqa: BLE001
            return error
        return None

    return Outcome(items, asyncio.run(take()), stream.skipped)


def records(
    source: JsonlFile | JsonlDir | Path, door: str = "sync", **options: object
) -> list[Any]:
    """Return all records; an error is raised."""
    outcome = read(source, door, **options)
    if outcome.error is not None:
        raise outcome.error
    return outcome.items


def write(
    target: JsonlFile | JsonlDir, items: Iterable[object], door: str = "sync", **options: object
) -> None:
    """Write records through a door."""
    if door == "sync":
        with target.writer_sync(**options) as writer:  # type: ignore[arg-type]
            writer.write_many(items)
        return

    async def put() -> None:
        async with target.writer(**options) as writer:  # type: ignore[arg-type]
            await writer.write_many(items)

    asyncio.run(put())


def call(owner: object, name: str, door: str, *arguments: object, **options: object) -> Any:
    """Call a method that has a `_sync` twin through a door."""
    method = getattr(owner, f"{name}_sync" if door == "sync" else name)
    if door == "sync":
        return method(*arguments, **options)

    async def wait() -> object:
        awaitable: Awaitable[object] = method(*arguments, **options)
        return await awaitable

    return asyncio.run(wait())


def names_in(directory: Path) -> list[str]:
    """Return every name in a directory, hidden ones too."""
    return sorted(path.name for path in directory.iterdir())
