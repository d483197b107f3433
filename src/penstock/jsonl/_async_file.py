"""A binary file for async code."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from penstock.jsonl._threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self


class AsyncFile:
    """Opens on `async with`; every call waits in a thread."""

    def __init__(self, open_file: Callable[[], IO[bytes]]) -> None:
        self._open_file = open_file
        self._file: Any = None

    async def __aenter__(self) -> Self:
        self._file = await in_thread(self._open_file)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await in_thread(self._file.__exit__, kind, failure, trace)

    async def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, or all that are left."""
        data: bytes = await in_thread(self._file.read, size)
        return data

    async def readline(self) -> bytes:
        """Return the next line."""
        line: bytes = await in_thread(self._file.readline)
        return line

    async def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a position and return it."""
        position: int = await in_thread(self._file.seek, offset, whence)
        return position

    async def write(self, data: bytes) -> int:
        """Append bytes."""
        written: int = await in_thread(self._file.write, data)
        return written
