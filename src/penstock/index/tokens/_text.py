"""The text of a document out of its line."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decode import decode_line
from penstock.index.checked._line_check import JSON_NAMES
from penstock.jsonl import BOM, reason_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class BadText(Exception):  # noqa: N818 (told to the user where file and line are known)
    """A line has no text: which of the lines that were given, counted from 0, and why."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(number, reason)
        self.number = number
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TextField:
    r"""Takes the text of JSON lines from a field.

    >>> TextField("meta.body").texts([b'{"meta": {"body": "one"}}', b'{"meta.body": "two\\n"}'])
    ['one', 'two\n']
    """

    path: str = "text"
    """Name of the field, or the way to it; a field that has the whole path as its name wins."""

    def texts(self, lines: Sequence[bytes]) -> list[str]:
        """Return the text of each line; raise `BadText` for the first one without."""
        texts: list[str] = []
        for line in lines:
            try:
                value = _found(_object(line), self.path)
            except KeyError:
                raise BadText(len(texts), f"no field {self.path!r}") from None
            except ValueError as why:
                raise BadText(len(texts), reason_text(why)) from None
            if not isinstance(value, str):
                what = JSON_NAMES.get(type(value), "an object")
                raise BadText(len(texts), f"field {self.path!r} is {what}, not a string")
            texts.append(value)
        return texts


@dataclass(frozen=True, slots=True)
class TextCall:
    """Takes the text of lines from a function; it can be sent to processes if the function can.

    >>> TextCall(bytes.decode).texts([b"one", b"two"])
    ['one', 'two']
    """

    function: Callable[[bytes], str]

    def texts(self, lines: Sequence[bytes]) -> list[str]:
        """Return the text of each line; raise `BadText` for the first that the function refuses."""
        texts: list[str] = []
        for line in lines:
            try:
                text: object = self.function(line)
            except Exception as why:
                # A `KeyError` alone says just a name.
                said = f"{type(why).__name__}: {why}".removesuffix(": ")
                raise BadText(len(texts), said) from why
            if not isinstance(text, str):
                name = getattr(self.function, "__name__", type(self.function).__name__)
                said = f"{name} returned {reprlib.repr(text)}, not a string"
                raise BadText(len(texts), said)
            texts.append(text)
        return texts


def get_text_from_jsonl(
    jsonl_bytes: bytes, text_key: str = "text", text_encoding: str = "utf-8"
) -> str:
    r"""Return the text of one line of JSON.

    Raises `KeyError` where the field is missing, and `ValueError` for what is no JSON object, or no
    string.

    >>> get_text_from_jsonl(b'{"title": "caf\\u00e9"}', text_key="title")
    'café'
    """
    if text_encoding.casefold() not in {"utf-8", "utf8"}:
        jsonl_bytes = jsonl_bytes.decode(text_encoding).encode("utf-8", "surrogatepass")
    record = _object(jsonl_bytes)
    try:
        value = _found(record, text_key)
    except KeyError:
        raise KeyError(f"no field {text_key!r} among {', '.join(map(repr, record))}") from None
    if not isinstance(value, str):
        what = JSON_NAMES.get(type(value), "an object")
        raise ValueError(f"field {text_key!r} is {what}, not a string")  # noqa: TRY004 (bad data)
    return value


def _object(line: bytes) -> dict[str, object]:
    """Return the object of a line; raise `ValueError` for anything else."""
    try:
        # All of it, though one field is needed: leaving out the others would save a tenth of the
        # time, itself some hundredths of what tokenising takes, and bad UTF-8 would pass in them.
        record = decode_line(line)
    except ValueError:
        # Python's `json` reads bytes with a mark, and only text without.
        if not line.startswith(BOM):
            raise
        record = decode_line(line.removeprefix(BOM))
    if not isinstance(record, dict):
        raise ValueError(f"{JSON_NAMES[type(record)]}, not an object")  # noqa: TRY004 (bad data)
    return record


def _found(record: dict[str, object], path: str) -> object:
    """Return what is at a path in a record; raise `KeyError` where nothing is."""
    if path in record:
        return record[path]
    value: object = record
    for name in path.split("."):
        if not isinstance(value, dict):
            raise KeyError(name)
        value = value[name]
    return value
