"""Records into lines of JSON."""

from __future__ import annotations

import ctypes
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import orjson

from penstock.errors import UnserializableRecordError

# Dataclasses pass through to us because orjson leaves out fields that begin with an underscore.
OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATACLASS
LOOKED_AT: object = object()
"""In place of a record whose line needs no second look."""

_strstr = ctypes.CDLL(None).strstr
_strstr.restype = ctypes.c_void_p
_strstr.argtypes = [ctypes.c_char_p, ctypes.c_char_p]


def contains(text: bytes, word: bytes) -> bool:
    """Return `word in text`, for JSON and other text without NUL bytes.

    On tens of kilobytes the C library is eight times as fast as Python.

    >>> contains(b'{"a":null}', b"null")
    True
    """
    return _strstr(text, word) is not None


class LineEncoder:
    """Turns records into lines, and counts the numbers that JSON does not have.

    NaN and infinities become `null`, or with `allow_nan` what Python's `json` writes for them.
    """

    def __init__(self, *, allow_nan: bool = False) -> None:
        self._allow_nan = allow_nan
        self.default: Callable[[object], object] = self._convert
        """`orjson.dumps` calls it for values that it does not know."""
        self._met_omitted_defaults = False
        self.not_finite = 0
        """NaN and infinities written as `null` so far."""

    def encode(self, record: object) -> bytes:
        """Return the record's line, newline included."""
        try:
            line = orjson.dumps(record, self.default, OPTIONS)
        except TypeError:
            # Integers beyond 64 bit, lone surrogates; or what cannot be written at all.
            return self.encode_as_json(record)
        # orjson writes null for NaN without a word. A line without null needs no closer look,
        # and rfind is the fastest exact way to see that in one line.
        if line.rfind(b"null") < 0:
            return line
        not_finite = self._count_not_finite(line, record)
        if not_finite and self._allow_nan:
            return self.encode_as_json(record)
        self.not_finite += not_finite
        return line

    def encode_plain(self, records: Sequence[object]) -> bytes | None:
        """Return the lines of records, or None when one of them asks for a closer look.

        Faster than one by one, because many lines are searched for null at once.
        """
        try:
            text = b"".join([orjson.dumps(record, self.default, OPTIONS) for record in records])
        except TypeError:
            return None
        return text if not contains(text, b"null") or self.is_finite(records) else None

    def look_again(self, lines: Sequence[bytes], records: Sequence[object]) -> bool:
        """Count what is not finite in records that became lines a while ago.

        Returns whether it would be better to look at once: a record was changed since, or null
        is common.
        """
        changed = nulls = 0
        for line, record in zip(lines, records, strict=True):
            if record is LOOKED_AT or line.rfind(b"null") < 0:
                continue
            nulls += 1
            try:
                changed += orjson.dumps(record, self.default, OPTIONS) != line
                self.not_finite += self._count_not_finite(line, record)
            except TypeError:  # What can no longer be written was changed, too.
                changed += 1
        return changed > 0 or 4 * nulls > len(lines)

    def encode_as_json(self, record: object) -> bytes:
        """Return the line of a record that orjson refuses; `TypeError` where there is none."""
        plain = _Plain(allow_nan=self._allow_nan)
        try:
            value = plain.value(record, "")
        except RecursionError:
            message = "cannot write a record that is nested too deeply, or contains itself"
            raise UnserializableRecordError(message) from None
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        if not self._allow_nan:
            self.not_finite += plain.not_finite
        try:
            return text.encode() + b"\n"
        except UnicodeEncodeError:  # A lone surrogate can only be written escaped.
            return json.dumps(value, separators=(",", ":")).encode() + b"\n"

    def _count_not_finite(self, line: bytes, record: object) -> int:
        if _nulls_are_none(line, record) or self.is_finite(record):
            return 0
        plain = _Plain(allow_nan=self._allow_nan)
        plain.value(record, "")
        return plain.not_finite

    def is_finite(self, records: object) -> bool:
        """Whether records hold no NaN or infinity; False may mean unsure."""
        return not self._met_omitted_defaults and _is_finite(records)

    def _convert(self, value: object) -> object:
        if isinstance(value, msgspec.Struct) and value.__struct_config__.omit_defaults:
            self._met_omitted_defaults = True
        return _convert(value)


def _nulls_are_none(line: bytes, record: object) -> bool:
    """Whether the line's nulls are all None at the top of the record; False may mean unsure."""
    if type(record) is not dict:
        return False
    try:
        return line.count(b"null") == [*record.values()].count(None)
    except ValueError:
        return False  # An array among the values compares element by element.


def _convert(value: object) -> object:
    """Return what orjson can write for a value that it does not know."""
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, msgspec.Struct):
        return _struct_value(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if _is_numpy(value):
        return _numpy_value(value)
    if isinstance(value, dt.date):
        text = value.isoformat()  # Of a subclass: pandas has nanoseconds, and NaT for null.
        return None if text == "NaT" else text
    raise TypeError


_pack = msgspec.msgpack.Encoder(enc_hook=_convert).encode
# A double is 0xcb and its eight bytes; of NaN and infinities all bits of the exponent are set.
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def _is_finite(record: object) -> bool:
    """Whether a record holds no NaN or infinity; False may mean unsure.

    Looked for in MessagePack, which has them as bytes that no text contains: twenty times as
    fast as a walk through the record. Defaults that a struct omits are not seen.
    """
    try:
        return _NOT_FINITE.search(_pack(record)) is None
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def _struct_value(struct: msgspec.Struct) -> object:
    """Return a struct under the names, and with the tag, that msgspec itself would write."""
    tag_field, tag = struct.__struct_config__.tag_field, struct.__struct_config__.tag
    named = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    fields = {written: getattr(struct, name) for written, name in named}
    if tag_field is not None:
        fields = {tag_field: tag, **fields}
    if struct.__struct_config__.array_like:
        return list(fields.values())
    return {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def _numpy_value(value: Any) -> object:  # noqa: ANN401 (numpy is not imported here)
    if value.dtype.kind == "M":
        # As orjson writes them; nanoseconds would become plain integers.
        value = value.astype("datetime64[us]")
    plain: object = value.tolist()
    if value.dtype.kind == "m" or _is_numpy(plain):  # A longdouble stays what it is.
        raise TypeError
    return plain


def _is_numpy(value: object) -> bool:
    # Looked up, not imported: where numpy is not loaded there is no array.
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray | numpy.generic)


class _Plain:
    """A record as dicts, lists and scalars; names the place of what JSON cannot express."""

    def __init__(self, *, allow_nan: bool) -> None:
        self._allow_nan = allow_nan
        self.not_finite = 0

    def value(self, value: object, path: str) -> object:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, enum.Enum):
            return self.value(value.value, path)
        if isinstance(value, str):
            return str(value)
        if isinstance(value, float):
            return self._number(float(value))
        if isinstance(value, int):
            return _integer(int(value), path)
        if isinstance(value, dict):
            return {_key(k, path): self.value(v, f"{path}.{k}") for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(v, f"{path}[{i}]") for i, v in enumerate(value)]
        return self._other(value, path)

    def _number(self, value: float) -> float | None:
        if math.isfinite(value):
            return value
        self.not_finite += 1
        return value if self._allow_nan else None

    def _other(self, value: object, path: str) -> object:
        try:
            converted = _convert(value)
        except TypeError:
            pass
        else:
            return self.value(converted, path)
        try:
            return orjson.loads(orjson.dumps(value))  # Datetimes, UUIDs: as on the fast way.
        except TypeError:
            kind = type(value).__qualname__
            why = f"JSON has no {kind} ({_short(value)}). Convert it first."
            raise _unserializable(path, why) from None


def _integer(value: int, path: str) -> int:
    try:
        str(value)
    except ValueError:  # More digits than sys.set_int_max_str_digits allows, by default 4,300.
        bits = f"Python writes no integer of {value.bit_length():,} bits as text."
        raise _unserializable(path, f"{bits} Write it as a string.") from None
    return value


def _key(key: object, path: str) -> str:
    if isinstance(key, str):
        return str(key)
    kind = type(key).__qualname__
    raise _unserializable(path, f"its key {_short(key)} is {kind}, and JSON keys are strings.")


def _unserializable(path: str, why: str) -> UnserializableRecordError:
    field = path.lstrip(".")
    return UnserializableRecordError(f"cannot write {field or 'the record'}: {why}", field=field)


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]} …"  # noqa: PLR2004 (one line of text)
