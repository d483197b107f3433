"""Writers for sync code."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from orjson import dumps

from penstock.jsonl._encode import LOOKED_AT, OPTIONS, contains
from penstock.jsonl._lines import Lines, ShardLines, refuse_part_lines, refuse_single

if TYPE_CHECKING:
    from penstock.jsonl._targets import Target

_TOGETHER = 128
"""Lines that are gathered before they are searched and handed on together."""
_LONG_LINE = 4 << 10
"""A line above this is handed on at once, with those before it."""
_TOGETHER_BYTES = 16 << 10
"""Text of records of a list that are encoded together, or up to four times as much."""


class JsonlWriterSync(Lines):
    """Writes records to a file that appears when the `with` block ends well, or not at all.

    Any number of threads may share it.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        options = target.options
        self._alone = threading.RLock()
        self._gathered: list[Any] = []
        """A line, its record, a line … Threads add both in one step, without the lock."""
        self._together = max(1, min(_TOGETHER, options.flush_bytes // _LONG_LINE))
        self._default = self._encoder.default
        self._looks_at_once = options.allow_nan
        self._last: object = None

    @property
    def not_finite(self) -> int:
        """NaN and infinities that were written as `null`."""
        with self._alone:
            if not self._closed and self._failure is None:
                self._hand_on()
            return self._encoder.not_finite

    def write(self, record: object) -> None:
        """Write one record; one that cannot be written raises `TypeError` and leaves no trace."""
        try:
            line = dumps(record, self._default, OPTIONS)
        except TypeError:
            self._write_singly(record)
            return
        if self._looks_at_once:
            if not self._encoder.is_finite(record):
                self._write_singly(record)
                return
            record = LOOKED_AT
        gathered = self._gathered
        gathered += (line, record)
        if len(gathered) >= self._most_gathered or len(line) > _LONG_LINE:
            self._hand_on()

    def _write_singly(self, record: object) -> None:
        """Write a record that is not plain: with big integers, NaN, or what JSON has not at all."""
        with self._alone:
            line = self._encoder.encode(record)
            self._gathered += (line, LOOKED_AT)
            self._hand_on()

    def write_many(self, records: Iterable[object]) -> None:
        """Write records in order; those of a list go a good deal faster."""
        refuse_single(records)
        if isinstance(records, list | tuple):
            with self._alone:
                records = self._write_plain(records)
        for record in records:
            self.write(record)

    def _write_plain(self, records: Sequence[object]) -> Iterable[object]:
        """Write records many at a time; return those from where one asks for a closer look."""
        start, many = 0, 1
        while start < len(records):
            some = records[start : start + many]
            text = self._encoder.encode_plain(some)
            if text is None:
                break
            self._check_open()
            self._drain()
            self._add(text, len(some))
            start += len(some)
            if len(text) < _TOGETHER_BYTES:
                many *= 2
            elif len(text) > 4 * _TOGETHER_BYTES:
                many = max(1, many // 2)
        return islice(records, start, None)

    def write_raw(self, data: bytes) -> None:
        """Write lines that are JSON already; they must be whole."""
        refuse_part_lines(data)
        with self._alone:
            self._check_open()
            self._drain()
            self._add(data, data.count(b"\n"))

    def flush(self) -> None:
        """Hand everything written so far to the operating system; it is not published by that."""
        with self._alone:
            self._flush()

    def close(self) -> None:
        """Publish; a `with` block does this when it ends well."""
        with self._alone:
            self._publish()

    def _hand_on(self) -> None:
        with self._alone:
            gathered = self._gathered
            if not gathered:
                return  # Another thread was quicker.
            self._check_open()
            # A record that is filled anew for every line cannot be looked at later. To see that
            # in time, the first two lines are handed on one by one.
            last, self._last = self._last, gathered[-1]
            self._looks_at_once |= last is self._last is not LOOKED_AT
            self._drain()
            # No more lines may be gathered than surely fit before a new shard begins.
            left = min(self._target.left_records + 1, self._target.left_bytes // _LONG_LINE)
            self._most_gathered = 1 if last is None else 2 * max(1, min(self._together, left))

    def _drain(self) -> None:
        gathered = self._gathered[:]
        if not gathered:
            return
        # Others may append meanwhile; what they append comes after these.
        del self._gathered[: len(gathered)]
        lines = gathered[::2]
        text = b"".join(lines)
        if contains(text, b"null"):
            self._looks_at_once |= self._encoder.look_again(lines, gathered[1::2])
            self._warn_of_not_finite()
        self._add(text, len(lines))

    def forked(self) -> None:
        super().forked()
        self._alone = threading.RLock()  # The old one may be held by a thread that is not here.

    def __enter__(self) -> Self:
        self._prepare()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._alone:
            if kind is None:
                self._publish()
            else:
                self._discard()


class JsonlDirWriterSync(JsonlWriterSync, ShardLines):
    """Writes records to numbered shards, each published when it is full."""
