"""The common part of sync and async writers: one target, open or closed, and its failures."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

from penstock.errors import OptionError, StorageError, UnsafeForkError, UnserializableRecordError
from penstock.jsonl._encode import LineEncoder

if TYPE_CHECKING:
    from penstock.jsonl._targets import DirTarget, Target

_log = logging.getLogger("penstock.jsonl")
_writers: WeakSet[Lines] = WeakSet()


class Lines(ABC):
    """Lines on their way to a target."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._encoder = LineEncoder(allow_nan=target.options.allow_nan)
        self._warned = False
        self._closed = False
        self._failure: BaseException | None = None
        self._process = os.getpid()
        self._most_gathered = 0.0
        """What may be gathered before it is handed on; 0 where something must be asked first, as
        by the first record."""
        self._used = False
        _writers.add(self)

    @property
    def path(self) -> str:
        """Where the lines go."""
        return self._target.path

    @property
    def not_finite(self) -> int:
        """NaN and infinities that were written as `null`."""
        return self._encoder.not_finite

    @abstractmethod
    def _drain(self) -> None:
        """Hand everything gathered to the target."""

    def _add(self, text: bytes | bytearray, records: int) -> None:
        """Hand whole lines to the target."""
        if text:
            self._used = True
            with self._failing_for_good():
                self._target.add(text, records)

    def _warn_of_not_finite(self) -> None:
        if self._encoder.not_finite and not self._warned:
            self._warned = True
            _log.warning(
                "%s: NaN or infinity written as null, which JSON has no number for; "
                "allow_nan=True writes them as Python does",
                self.path,
            )

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        """Remember a failure: from then on the contents of the target are undefined."""
        try:
            yield
        except BaseException as failure:
            self._failure = failure
            raise

    def _flush(self) -> None:
        self._check_open()
        with self._failing_for_good():
            self._drain()
            self._target.flush()

    def _publish(self) -> None:
        self._most_gathered = 0
        self._check_process()
        if self._failure is not None:
            self._discard()
            message = (
                f"{self.path} was not published, because an earlier write failed: {self._failure}"
            )
            raise StorageError(message, path=self.path) from self._failure
        if self._closed:
            return
        try:
            with self._failing_for_good():
                self._drain()
                self._target.publish()
        finally:
            self._discard()

    def _discard(self) -> None:
        self._closed = True
        self._most_gathered = 0
        self._target.discard()

    def _prepare(self) -> None:
        self._check_open()
        self._target.prepare()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._discard()
            message = (
                f"the writer of {self.path} belongs to process {self._process}, from which this "
                "one was forked. Open a writer of its own in the forked process."
            )
            raise UnsafeForkError(message, path=self.path)

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise OptionError(f"the writer of {self.path} is closed; open another one.")
        if self._failure is not None:
            message = f"an earlier write to {self.path} failed: {self._failure}"
            raise StorageError(message, path=self.path) from self._failure

    def forked(self) -> None:
        """Make the next write in this forked process come by _check_process."""
        self._most_gathered = 0

    def __del__(self) -> None:
        # A forked child holds a copy, which it must not report.
        if not self._closed and self._used and self._process == os.getpid():
            _log.warning(
                "a writer of %s was dropped without being closed: use it in a with block. "
                "What it had not published is lost.",
                self.path,
            )


class ShardLines(Lines):
    """Lines on their way to a directory."""

    _target: DirTarget

    @property
    def published(self) -> list[str]:
        """The shards that are visible so far."""
        return list(self._target.published)


def refuse_part_lines(data: bytes) -> None:
    """Raise for raw data that is not whole lines."""
    if not isinstance(data, bytes | bytearray):
        raise UnserializableRecordError(f"write_raw takes bytes, not {type(data).__name__}.")
    if data and not data.endswith(b"\n"):
        message = f"write_raw takes whole lines; this ends without a newline: {data[-40:]!r}"
        raise OptionError(message)


def refuse_single(records: object) -> None:
    """Raise for one record, or text, where records are expected: its parts are none."""
    if isinstance(records, dict | str | bytes | bytearray):
        message = f"write_many takes records, not one {type(records).__name__}; write takes one."
        raise UnserializableRecordError(message)


def _after_fork_in_child() -> None:
    for writer in list(_writers):
        writer.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
