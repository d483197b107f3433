"""The headers of Parquet pages, which are structures of Thrift's compact protocol.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Value = int | bytes | list["Value"] | dict[int, "Value"]

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 7, 8, 9, 12
_INTEGERS = (4, 5, 6)
_LONG_LIST = 15
_MOST_BITS = 64
_DEEPEST = 8
_UNCOMPRESSED_BYTES, _COMPRESSED_BYTES, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8
"""Fields of a page's header; the first field of the last three is the number of values."""


class DamagedStructureError(ValueError):
    """Bytes that are no structure."""


class ThriftReader:
    r"""Reads one value after the other; `at` is the next byte.

    >>> reader = ThriftReader(b"\x15\x04\x18\x01a\x00 and more")
    >>> reader.structure(), reader.at
    ({1: 2, 2: b'a'}, 6)
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at

    def structure(self) -> dict[int, Value]:
        """Return a structure by the numbers of its fields."""
        return self._fields(0)

    def _value(self, kind: int, depth: int) -> Value:
        if kind in _INTEGERS:
            number = self._unsigned()
            return number >> 1 ^ -(number & 1)
        if kind in (_TRUE, _FALSE):
            return int(kind == _TRUE)
        if kind in (_BYTE, _DOUBLE, _BINARY):
            size = self._unsigned() if kind == _BINARY else 8 if kind == _DOUBLE else 1
            self._refuse_beyond(size)
            self.at += size
            return self._data[self.at - size : self.at]
        if depth < _DEEPEST and kind == _STRUCT:
            return self._fields(depth + 1)
        if depth < _DEEPEST and kind == _LIST:
            return self._items(depth + 1)
        raise DamagedStructureError(f"a value of kind {kind}, {depth} levels deep")

    def _fields(self, depth: int) -> dict[int, Value]:
        fields: dict[int, Value] = {}
        number = 0
        while head := self._byte():
            if head >> 4:
                number += head >> 4
            else:
                number = self._unsigned() >> 1
            fields[number] = self._value(head & 15, depth)
        return fields

    def _items(self, depth: int) -> list[Value]:
        head = self._byte()
        size = self._unsigned() if head >> 4 == _LONG_LIST else head >> 4
        self._refuse_beyond(size)  # No value has fewer bytes than one.
        kind = _BYTE if head & 15 in (_TRUE, _FALSE) else head & 15
        return [self._value(kind, depth) for _ in range(size)]

    def _refuse_beyond(self, size: int) -> None:
        if size > len(self._data) - self.at:
            raise DamagedStructureError(f"{size:,} bytes or values, more than follow {self.at:,}")

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise DamagedStructureError(f"no end before byte {self.at:,}")
        self.at += 1
        return self._data[self.at - 1]

    def _unsigned(self) -> int:
        found = shift = 0
        while (byte := self._byte()) & 0x80:
            found |= (byte & 0x7F) << shift
            shift += 7
            if shift > _MOST_BITS:
                raise DamagedStructureError(f"an endless number before byte {self.at:,}")
        return found | byte << shift


class PageHeader(NamedTuple):
    """What a page claims to hold."""

    values: int
    size: int
    is_dictionary: bool


def page_headers(chunk: bytes) -> Iterator[PageHeader]:
    """Yield the header of each page of a column chunk, up to one that Arrow cannot read either."""
    reader = ThriftReader(chunk)
    while reader.at < len(chunk):
        try:
            header = reader.structure()
        except DamagedStructureError:
            return
        whole, size = header.get(_UNCOMPRESSED_BYTES), header.get(_COMPRESSED_BYTES)
        if not isinstance(whole, int) or not isinstance(size, int) or size < 0:
            return
        for kind in (_DATA, _DICTIONARY, _DATA_2):
            page = header.get(kind)
            if isinstance(page, dict) and isinstance(count := page.get(1), int):
                yield PageHeader(count, whole, kind == _DICTIONARY)
        reader.at += size
