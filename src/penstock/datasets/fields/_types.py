"""Arrow types as text: what a user writes behind the name of a field."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

from penstock.datasets.fields._grammar import SCALARS, TEXTS, parsed
from penstock.errors import OptionError

_UNITS = {
    "time32": (pa.time32, ("s", "ms")),
    "time64": (pa.time64, ("us", "ns")),
    "timestamp": (pa.timestamp, ("s", "ms", "us", "ns")),
    "duration": (pa.duration, ("s", "ms", "us", "ns")),
}
_NAMES = {
    "null": pa.null(),
    **SCALARS,
    **TEXTS,
    **{f"{name}[{u}]": make(u) for name, (make, units) in _UNITS.items() for u in units},
}
_NAME_OF = {type_: name for name, type_ in _NAMES.items()}
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns),\s*(?:tz=)?([^\]\s]+)\]")
_LIST = re.compile(r"(list|large_list)<(.*)>", re.DOTALL)


def arrow_type(type_: str | pa.DataType) -> pa.DataType:
    """Return the Arrow type that a text names; a type stands for itself.

    >>> arrow_type("list<list<float32>>")
    ListType(list<item: list<item: float>>)
    >>> arrow_type("timestamp[us, UTC]"), arrow_type("int64[:50] = -1")
    (TimestampType(timestamp[us, tz=UTC]), ListType(list<item: int64>))
    """
    if isinstance(type_, pa.DataType):
        return type_
    if isinstance(type_, str):
        return _parsed(type_)
    raise OptionError(
        f"a field's type is a text such as 'int64' or a pyarrow.DataType, not {type_!r}"
    )


def type_text(type_: pa.DataType) -> str:
    """Return a type as a user writes it, or as Arrow does.

    >>> type_text(pa.list_(pa.float32())), type_text(pa.list_(pa.float32(), 3))
    ('list<float32>', 'float32[3]')
    >>> type_text(pa.decimal128(5))
    'decimal128(5, 0)'
    """
    if pa.types.is_fixed_size_list(type_):
        return f"{type_text(type_.value_type)}[{type_.list_size}]"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return (
            f"{'list' if pa.types.is_list(type_) else 'large_list'}<{type_text(type_.value_type)}>"
        )
    return _NAME_OF.get(type_) or str(type_)


@lru_cache(1024)
def _parsed(text: str) -> pa.DataType:
    # Other field types of a loader have the Arrow type of their values.
    return _plain(text.strip()) or parsed(text).arrow


def _plain(name: str) -> pa.DataType | None:
    if name in _NAMES:
        return _NAMES[name]
    if zoned := _ZONED.fullmatch(name):
        return pa.timestamp(zoned[1], zoned[2])
    if lists := _LIST.fullmatch(name):
        item = _plain(lists[2].strip())
        return item and (pa.list_ if lists[1] == "list" else pa.large_list)(item)
    return None
