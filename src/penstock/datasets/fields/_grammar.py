"""Field types, and the Arrow types that hold them, as text: `int64 = -1`, `float32[768]`."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import replace
from functools import lru_cache
from typing import NoReturn, TypeGuard

import numpy as np
import pyarrow as pa

from penstock.datasets.fields._tensor_types import (
    CategoryType,
    Dense,
    FieldType,
    Json,
    ListOf,
    NumberType,
    Optional,
    TextsType,
    UpTo,
    may_be_missing,
    number_in,
)
from penstock.decode import TEXT
from penstock.errors import OptionError

GRAMMAR = """\
    int64           float16 float32 float64, int8 … int64, uint8 … uint64, bool,
                    date32, timestamp[us], duration[ms] …: a tensor
    int64 = -1      the same with -1 for null
    int64?          values and a mask
    float32[768]    exactly 768 values; float32[768]? and float32[768] = 0 where it may be null
    int64[:50]      at most 50 values, filled up with 0; int64[:50] = -1 with -1
    list<int64>     any number of values; list<int64 = -1>, list<list<int64>>, list<float32[3]>
    string          a list of texts; string = "" for null; binary, list<string>
    text            a list of texts: strings as they are, other scalars as JSON text
    json            a list of values of any kind, as Python has them
    category        codes and a vocabulary
    string?         as string, and the field may be missing in all records; so with every type"""

_SCALARS = {
    "bool": pa.bool_(),
    **{f"float{bits}": getattr(pa, f"float{bits}")() for bits in (16, 32, 64)},
    **{f"int{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)},
    **{f"date{bits}": getattr(pa, f"date{bits}")() for bits in (32, 64)},
}
_WITH_UNIT = {name: getattr(pa, name) for name in ("timestamp", "duration", "time32", "time64")}
_TEXTS = {
    name: getattr(pa, name)() for name in ("string", "large_string", "binary", "large_binary")
}
_TEXTS["text"] = TEXT
_OF_NULLS = {"null": pa.null(), "list<null>": pa.list_(pa.null())}
"""Types of columns without a value, which no tensor has."""
_KNOWN = [*_SCALARS, *_WITH_UNIT, *_TEXTS, "json", "category", "list"]
_MEANT = {
    "int": "int64", "integer": "int64", "long": "int64", "bigint": "int64", "short": "int16",
    "byte": "int8", "float": "float32", "double": "float64", "half": "float16",
    "number": "float64", "decimal": "float64", "str": "string", "utf8": "string",
    "varchar": "string", "char": "string", "boolean": "bool", "bytes": "binary",
    "datetime": "timestamp[us]", "date": "date32", "time": "time64[us]",
    "timedelta": "duration[us]", "dict": "json", "object": "json", "any": "json",
    "struct": "json", "map": "json", "enum": "category", "categorical": "category",
    "array": "list", "sequence": "list", "tuple": "list",
}  # fmt: skip
"""Names that types have elsewhere."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_UNIT = re.compile(r"\[\s*(\w+)\s*(?:,\s*(?:tz\s*=\s*)?([^\]\s]+)\s*)?\]")
_SIZE = re.compile(r"\[\s*(:?)\s*([0-9]+)\s*\]")
_WORD = re.compile(r"""[^\s<>?\[\]"']+""")
_ELSEWHERE = re.compile(r"\b(?:torch|np|numpy|pa|pyarrow|typing|datetime)\.(?=\w)")
_REWRITTEN = (
    (re.compile(r"\s*\|\s*none\b|\s+or\s+(?:none|null)\b"), "?"),
    (re.compile(r"\boptional\s*\[(.+)\]$"), r"\1?"),
    (re.compile(r"\blist\s*\[([^\[\]]*(?:\[[^\[\]]*\])?)\]"), r"list<\1>"),
    (re.compile(r"\b(\w+)\[\]"), r"list<\1>"),
    (re.compile(r"\blist\b(?!\s*<)"), "list<int64>"),
)
"""Types as Python and other languages write them."""
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*")|'([^']*)'""", re.DOTALL)


@lru_cache(1024)
def parsed(text: str) -> FieldType:
    """Return the field type that a text names; spaces are free."""
    return _TypeParser(text).whole()


def arrow_type(type_: str | pa.DataType) -> pa.DataType:
    """Return the Arrow type of the values that a text names; a type stands for itself.

    >>> arrow_type("list<list<float32>>")
    ListType(list<item: list<item: float>>)
    >>> arrow_type("timestamp[us, UTC]"), arrow_type("int64[:50] = -1")
    (TimestampType(timestamp[us, tz=UTC]), ListType(list<item: int64>))
    """
    if isinstance(type_, pa.DataType):
        return type_
    if isinstance(type_, str):
        return _OF_NULLS.get(type_) or parsed(type_).arrow
    hint = f"; did you mean {near!r}?" if (near := meant(type_)) else ""
    raise OptionError(
        f"a field's type is a text such as 'int64' or a pyarrow.DataType, not {type_!r}{hint}"
    )


def meant(type_: object) -> str | None:
    """Return the field type that another language's type, or a Python type, stands for.

    >>> meant("int"), meant("list[str]"), meant(float), meant("Optional[int]"), meant("flaot32")
    ('int64', 'list<string>', 'float32', 'int64?', None)
    """
    text = _ELSEWHERE.sub("", type_.__name__ if isinstance(type_, type) else str(type_)).lower()
    text = _NAME.sub(lambda name: _MEANT.get(name[0], name[0]), text)
    for pattern, other in _REWRITTEN:
        while (changed := pattern.sub(other, text)) != text:
            text = changed
    try:
        return str(_TypeParser(text, hints=False).whole())
    except OptionError:
        return None


class _TypeParser:
    """One pass over a text, from left to right."""

    def __init__(self, text: str, *, hints: bool = True) -> None:
        self.text = text
        self._hints = hints
        self.at = 0

    def whole(self) -> FieldType:
        type_ = self._type()
        if self._peek("?") and _takes_sign(type_):
            self.at += 1
            type_ = Optional(type_)
        if self._skip() < len(self.text):
            self._fault("nothing more was expected here")
        return type_

    def _type(self) -> FieldType:
        start = self._skip()
        name = self._take(_NAME)
        if name is None:
            self._fault("a type was expected here")
        if name[0] in ("list", "large_list"):
            return self._list(is_large=name[0] == "large_list")
        if name[0] in _TEXTS:
            return self._text(_TEXTS[name[0]])
        if name[0] == "json":
            return Json()
        if name[0] == "category":
            return CategoryType(pa.string())
        return self._number(name[0], start)

    def _list(self, *, is_large: bool) -> ListOf:
        self._expect("<")
        start = self._skip()
        item = self._type()
        if isinstance(item, CategoryType | Optional | UpTo):
            self._fault(f"{item} cannot stand inside of lists", start)
        self._expect(">")
        return ListOf(item, is_large)

    def _text(self, arrow: pa.DataType) -> TextsType:
        if not self._peek("="):
            return TextsType(arrow)
        self.at += 1
        start = self._skip()
        quoted = self._take(_QUOTED)
        if quoted is None:
            self._fault('a text in quotes was expected here, as in "" or "none"', start)
        try:
            value = json.loads(quoted[1], strict=False) if quoted[1] else quoted[2]
            encoded = value.encode()  # A lone surrogate raises: Arrow cannot hold it.
            is_bytes = pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow)
            return TextsType(arrow, encoded if is_bytes else value)
        except ValueError as why:
            self._fault(f"this is no text: {why}", start)

    def _number(self, name: str, start: int) -> FieldType:
        item: NumberType | Dense = NumberType(self._scalar(name, start))
        while self._peek("["):
            where = self.at
            size = self._take(_SIZE)
            if size is None:
                self._fault("a size was expected here, as in [768] or [:50]", where)
            count = int(size[2])
            if not count or count >= 2**31:
                self._fault("a size is at least 1 and fits int32", where)
            if size[1]:
                return UpTo(self._with_default(item), count)
            item = Dense(item, count)
        if self._peek("?"):
            self.at += 1
            return Optional(item)
        return self._with_default(item)

    def _scalar(self, name: str, start: int) -> pa.DataType:
        if name in _SCALARS:
            return _SCALARS[name]
        if name not in _WITH_UNIT:
            near = difflib.get_close_matches(name, _KNOWN, 1)
            self._fault(f"no type is called {name}", start, *near)
        self._skip()
        unit = self._take(_UNIT)
        arguments = [] if unit is None else [part for part in unit.groups() if part]
        try:
            return _WITH_UNIT[name](*arguments)
        except (TypeError, ValueError, pa.ArrowException):
            example = f"{name}[{'s' if name == 'time32' else 'us'}]"
            self._fault(f"{name} has a unit, as in {example}", start)

    def _with_default(self, item: NumberType | Dense) -> NumberType | Dense:
        if not self._peek("="):
            return item
        self.at += 1
        start = self._skip()
        number = number_in(item)
        word = self._take(_WORD)
        default = None if word is None else _value(word[0], number)
        if default is None:
            self._fault(f"this is no {number.name} that could stand for null", start)
        return _with(item, default)

    def _skip(self) -> int:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        return self.at

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def _peek(self, sign: str) -> bool:
        self._skip()
        return self.text.startswith(sign, self.at)

    def _expect(self, sign: str) -> None:
        if not self._peek(sign):
            self._fault(f"{sign!r} was expected here")
        self.at += 1

    def _fault(self, what: str, at: int | None = None, near: str = "") -> NoReturn:
        at = self.at if at is None else at
        near = (self._hints and meant(self.text)) or near
        hint = f"; did you mean {repr(near) if near.endswith('?') else near}?" if near else ""
        raise OptionError(
            f"this is no field type:\n    {self.text}\n    {' ' * at}^ {what}{hint}\n"
            f"Field types are\n{GRAMMAR}"
        )


def _takes_sign(type_: FieldType) -> TypeGuard[UpTo | TextsType | Json | CategoryType | ListOf]:
    """Whether `?` may follow: it says the same as a default. Numbers take it by themselves."""
    is_other = isinstance(type_, UpTo | TextsType | Json | CategoryType | ListOf)
    return is_other and not may_be_missing(type_)


def _value(word: str, number: NumberType) -> float | None:
    """Return the value that a word stands for, or None where it is none of the type."""
    if pa.types.is_boolean(number.arrow):
        return {"true": True, "false": False}.get(word.lower())
    try:
        if pa.types.is_floating(number.arrow):
            value = float(word)
            with np.errstate(over="ignore"):
                fits = np.isinf(np.array(value).astype(number.dtype)) == np.isinf(value)
            return value if fits else None
        whole = int(word)
    except ValueError:
        return None
    bounds = np.iinfo(number.dtype)
    return whole if bounds.min <= whole <= bounds.max else None


def _with(item: NumberType | Dense, default: float) -> NumberType | Dense:
    if isinstance(item, Dense):
        return replace(item, item=_with(item.item, default))
    return replace(item, default=default)
