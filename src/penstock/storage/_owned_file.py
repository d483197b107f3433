"""A file that one process writes and its forked children leave alone."""

from __future__ import annotations

import os

from penstock.errors import StorageError, UnsafeForkError
from penstock.storage._local_errors import translated


class OwnedFile:
    """A descriptor that takes bytes in the process that opened it, and nowhere else.

    After a failed write the contents are undefined, and further writes are refused.
    """

    __slots__ = ("_failure", "_process", "descriptor", "path")

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path
        self._process = os.getpid()
        self._failure = ""

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it, rather than one that it was forked from."""
        return self._process == os.getpid()

    @property
    def size(self) -> int:
        """Bytes written."""
        return os.fstat(self.descriptor).st_size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        self.check()
        try:
            with translated(self.path, "write"), memoryview(data) as view:
                done = os.write(self.descriptor, view)
                if done < view.nbytes:  # The disk is nearly full.
                    self._write_rest(view.cast("B")[done:])
        except BaseException as failure:
            self._failure = str(failure) or type(failure).__name__
            raise

    def _write_rest(self, view: memoryview) -> None:
        while view:
            view = view[os.write(self.descriptor, view) :]

    def check(self) -> None:
        """Raise in a forked child, and after a failed write."""
        if not self.is_ours:
            message = (
                f"{self.path} is being written by process {self._process}, from which this one "
                "was forked. Open a writer of its own in the forked process."
            )
            raise UnsafeForkError(message, path=self.path)
        if self._failure:
            message = f"cannot go on with {self.path}: an earlier write failed: {self._failure}"
            raise StorageError(message, path=self.path)
