"""Parquet files that no writer writes: every number in them is chosen."""

from __future__ import annotations

import struct
from typing import Any

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
_INT64_TYPE = 2
_PLAIN, _RLE = 0, 3
_OPTIONAL, _REPEATED = 1, 2
_LIST_CONVERTED = 3


def forged(  # noqa: PLR0913 (all by name)
    *,
    rows: int,
    values: int | None = None,
    in_page: int | None = None,
    of_lists: bool = False,
    inflated: int | None = None,
    codec: int = 0,
    encoding: int = _PLAIN,
    empty_group: bool = False,
) -> bytes:
    """Return a file of one column without a value, stored as runs.

    It is of `rows` nulls, or, `of_lists`, of one row with a list of nulls. `values` is what the
    footer says, `in_page` what the page says and holds, `inflated` how long it claims to be.
    `codec` and `encoding` are those that chunk and page name. With `empty_group` a row group
    without rows and columns follows.
    """
    values = rows if values is None else values
    in_page = values if in_page is None else in_page
    levels = [_run(1, 0) + _run(in_page - 1, 1), _run(in_page, 2)] if of_lists else []
    levels = levels or [_run(in_page, 0)]
    body = b"".join(struct.pack("<I", len(level)) + level for level in levels)
    counts = _struct((1, I32, in_page), (2, I32, encoding), (3, I32, _RLE), (4, I32, _RLE))
    whole = len(body) if inflated is None else inflated
    head = _struct((1, I32, 0), (2, I32, whole), (3, I32, len(body)), (5, STRUCT, counts))
    page = head + body
    root, leaf = (4, BINARY, b"schema"), (1, I32, _INT64_TYPE)
    schema = [_struct(root, (5, I32, 1))]
    path = [b"a"]
    if of_lists:
        lists = ((3, I32, _OPTIONAL), (4, BINARY, b"a"), (5, I32, 1), (6, I32, _LIST_CONVERTED))
        schema += [_struct(*lists), _struct((3, I32, _REPEATED), (4, BINARY, b"list"), (5, I32, 1))]
        path += [b"list", b"element"]
    schema.append(_struct(leaf, (3, I32, _OPTIONAL), (4, BINARY, path[-1])))
    chunk = _struct(
        leaf,
        (2, LIST, (I32, [_RLE, _PLAIN])),
        (3, LIST, (BINARY, path)),
        (4, I32, codec),
        (5, I64, values),
        (6, I64, len(page)),
        (7, I64, len(page)),
        (9, I64, 4),
    )
    columns = [_struct((2, I64, 4), (3, STRUCT, chunk))]
    groups = [_struct((1, LIST, (STRUCT, columns)), (2, I64, len(page)), (3, I64, rows))]
    if empty_group:
        groups.append(_struct((1, LIST, (STRUCT, [])), (2, I64, 0), (3, I64, 0)))
    footer = _struct(
        (1, I32, 2), (2, LIST, (STRUCT, schema)), (3, I64, rows), (4, LIST, (STRUCT, groups))
    )
    return b"PAR1" + page + footer + struct.pack("<I", len(footer)) + b"PAR1"


def _run(length: int, level: int) -> bytes:
    return _unsigned(length << 1) + bytes([level])


def _struct(*fields: tuple[int, int, Any]) -> bytes:
    last, out = 0, b""
    for number, kind, value in fields:
        out += bytes([(number - last) << 4 | kind]) + _value(kind, value)
        last = number
    return out + b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind in (I32, I64):
        return _unsigned(value << 1 if value >= 0 else (-value << 1) - 1)
    if kind == BINARY:
        return _unsigned(len(value)) + bytes(value)
    if kind == LIST:
        item, values = value
        return bytes([len(values) << 4 | item]) + b"".join(_value(item, one) for one in values)
    return bytes(value)


def _unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def with_bare_group(data: bytes) -> bytes:
    """Return a file of one column with a group `bare` before it, which has no fields."""
    size = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - size], data[-8 - size : -8]
    # A list of two elements, of which the root has one child, becomes one of three.
    before, root = b"\x19\x2c", b"\x35\x00\x18\x06schema\x15"
    one, two = before + root + b"\x02\x00", b"\x19\x3c" + root + b"\x04\x00"
    assert one in footer
    group = _struct((3, I32, _OPTIONAL), (4, BINARY, b"bare"), (5, I32, 0))
    footer = footer.replace(one, two + group)
    return body + footer + len(footer).to_bytes(4, "little") + data[-4:]
