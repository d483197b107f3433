"""The text of a document: out of a line or a record, by a field, a template or a function."""

from __future__ import annotations

import json
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, ClassVar, TypeAlias

import numpy as np

from penstock.decode import JSON_NAMES, decode_line
from penstock.errors import OptionError
from penstock.jsonl import BOM, reason_text

Part: TypeAlias = "tuple[str, bool]"
"""Text, and whether its tokens are trained."""
Document: TypeAlias = "str | list[Part]"
"""A text; or its parts, of which the last says whether the token that ends a document is trained.

It is a text for all makers of documents that are not `is_masked`, and parts for the others.
"""
TEXT = "text"
"""The field of the text, unless another is named."""
CHAT_TURN = "<|im_start|>{role}\n{content}<|im_end|>\n"
"""A turn of a chat, unless a template is given: ChatML."""
CHAT_ROLES = ("assistant", "gpt")
"""Roles whose turns are answers, unless others are named."""
_ROLE_FIELDS = ("role", "from")


ProcessTextLineFunc: TypeAlias = Callable[[bytes], str]
"""A function from a line to its text."""


class BadText(Exception):  # noqa: N818 (reported where file and line are known)
    """A line or a record has no text, for this reason."""


class DocumentText(ABC):
    """Makes the document of a record; of a line by way of its record."""

    is_masked: ClassVar[bool] = False
    """Whether documents are in parts, not all of which are trained."""

    @property
    def fields(self) -> tuple[str, ...] | None:
        """Names or paths of the fields that are read; None for all."""
        return None

    def __call__(self, line: bytes) -> Document:
        try:
            record = _object(line)
        except ValueError as why:
            raise BadText(reason_text(why)) from None
        return self.of(record)

    @abstractmethod
    def of(self, record: Mapping[str, object]) -> Document:
        """Return the document of a record, or raise `BadText`."""


@dataclass(frozen=True, slots=True)
class TextField(DocumentText):
    """The text of a field."""

    path: str = TEXT
    """Name or path of the field; a field whose name is the whole path comes first."""

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.path,)

    def of(self, record: Mapping[str, object]) -> str:
        try:
            return _text_in(record, self.path)
        except KeyError:
            raise BadText(f"no field {self.path!r}") from None
        except ValueError as why:
            raise BadText(reason_text(why)) from None


@dataclass(frozen=True, slots=True)
class TextCall(DocumentText):
    """Takes the text of a line from a function; it can be sent to processes if the function can."""

    function: ProcessTextLineFunc

    def __call__(self, line: bytes) -> str:
        text = _called(self.function, line)
        if not isinstance(text, str):
            raise BadText(f"{_name(self.function)} returned {reprlib.repr(text)}, not a string")
        return text

    def of(self, record: Mapping[str, object]) -> str:
        raise OptionError(
            "process_text_line_func= takes lines of JSON, and these are the records of a source. "
            "Give template=, a function that takes a record."
        )


@dataclass(frozen=True, slots=True)
class Template(DocumentText):
    r"""Text with fields in braces; only the answers among them are trained.

    What follows an answer in its line is trained with it: a marker such as `<|im_end|>`.

    >>> Template.parsed("Q: {q}\nA: {a}</s>\n").of({"q": "1 + 1?", "a": 2})
    [('Q: 1 + 1?\nA: ', False), ('2</s>', True), ('\n', False), ('', True)]
    """

    pieces: tuple[tuple[str, str | None], ...]
    """Text, and the field behind it."""
    answers: frozenset[str]

    is_masked: ClassVar[bool] = True

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field for _, field in self.pieces if field is not None)

    @classmethod
    def parsed(cls, text: str, answers: Iterable[str] | None = None) -> Template:
        """Return the template of a text; the last field is the answer unless others are named."""
        try:
            found = [*Formatter().parse(text)]
        except ValueError as why:
            raise OptionError(
                f"template={text!r}: {why}. Name fields in braces; {{{{ and }}}} are braces."
            ) from None
        fields = [field for _, field, _, _ in found if field is not None]
        if not all(fields) or any(spec or conversion for _, _, spec, conversion in found):
            raise OptionError(
                f"template={text!r}: expected no more than the name or path of a field in each "
                "pair of braces, as in {question} or {meta.title}."
            )
        if not fields:
            raise OptionError(f"template={text!r} names no field in braces, as in {{question}}.")
        chosen = frozenset(fields[-1:] if answers is None else answers)
        if unknown := sorted(chosen.difference(fields)):
            raise OptionError(
                f"answers={unknown[0]!r} is no field of the template, which has "
                f"{', '.join(dict.fromkeys(fields))}."
            )
        pieces: list[tuple[str, str | None]] = []
        for literal, field, _, _ in found:
            if pieces and pieces[-1][1] is None:  # Doubled braces divide a text.
                pieces[-1] = (pieces[-1][0] + literal, field)
            else:
                pieces.append((literal, field))
        return cls(tuple(pieces), chosen)

    def of(self, record: Mapping[str, object]) -> list[Part]:
        return self.parts(record, is_answer=True)

    def parts(self, record: Mapping[str, object], *, is_answer: bool) -> list[Part]:
        """Return the parts of a record or a turn; none is trained unless it `is_answer`."""
        parts: list[Part] = []
        is_trained = False
        for text, field in self.pieces:
            line, end, rest = text.partition("\n")
            parts += [(line, is_trained), (end + rest, False)]
            if field is not None:
                is_trained = is_answer and field in self.answers
                parts.append((_scalar_in(record, field), is_trained))
        return [*_together(parts), ("", is_trained)]


@dataclass(frozen=True, slots=True)
class ChatTurns(DocumentText):
    """Messages in turns, each by a template; the turns of some roles are answers."""

    field: str
    turn: Template
    roles: frozenset[str]

    is_masked: ClassVar[bool] = True

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)

    def of(self, record: Mapping[str, object]) -> list[Part]:
        messages = _value_of(record, self.field)
        if not isinstance(messages, list | tuple):
            raise BadText(f"field {self.field!r} is {_kind(messages)}, not a list of messages")
        parts: list[Part] = []
        for number, message in enumerate(messages):
            known = message if isinstance(message, Mapping) else {}
            role = next((known[name] for name in _ROLE_FIELDS if name in known), None)
            if not isinstance(role, str):
                raise BadText(f"message {number} of {self.field!r} has no role")
            try:
                parts += self.turn.parts(known, is_answer=role in self.roles)
            except BadText as why:
                raise BadText(f"message {number} of {self.field!r}: {why}") from None
        return [*_together(parts), *parts[-1:]]


@dataclass(frozen=True, slots=True)
class RecordCall(DocumentText):
    """Takes the text of a record, or its parts, from a function."""

    function: Callable[[dict[str, object]], object]

    is_masked: ClassVar[bool] = True

    def of(self, record: Mapping[str, object]) -> list[Part]:
        made = _called(self.function, record)
        if isinstance(made, str):
            return [(made, True)]
        pairs: list[Any] = [*made] if isinstance(made, Sequence) else [None]
        if not all(_is_part(pair) for pair in pairs):
            raise BadText(
                f"{_name(self.function)} returned {reprlib.repr(made)}, neither a text nor a list "
                "of pairs (text, whether it is trained)"
            )
        return pairs


def text_of(
    text_key: str,
    line_func: Callable[[bytes], str] | None,
    template: str | Callable[[dict[str, object]], object] | None,
    messages: str | None,
    answers: str | Sequence[str] | None,
) -> DocumentText:
    """Return what makes documents, from the arguments of a user."""
    named = [answers] if isinstance(answers, str) else answers
    if line_func is not None:
        key = None if text_key == TEXT else text_key
        given = {"text_key": key, "template": template, "messages": messages}
        if other := next((name for name, value in given.items() if value is not None), None):
            raise OptionError(
                f"{other}={given[other]!r} and process_text_line_func both say what the text of a "
                "line is. Give one of them."
            )
    if template is None and messages is None:
        if named is not None:
            raise OptionError("answers= belongs to a template: give template= or messages=, too.")
        return TextField(text_key) if line_func is None else TextCall(line_func)
    if text_key != TEXT:
        raise OptionError(f"text_key={text_key!r}: a template names its fields itself.")
    if callable(template):
        if messages is not None or named is not None:
            raise OptionError(
                "template= is a function, which makes the whole document: leave out messages= and "
                "answers=."
            )
        return RecordCall(template)
    if messages is None:
        return Template.parsed(template or "", named)
    turn = Template.parsed(CHAT_TURN if template is None else template)
    return ChatTurns(messages, turn, frozenset(CHAT_ROLES if named is None else named))


def get_text_from_jsonl(
    jsonl_bytes: bytes, text_key: str = "text", text_encoding: str = "utf-8"
) -> str:
    r"""Return the text of one line of JSON.

    Raises `KeyError` if the field is missing, and `ValueError` if the line is no JSON object or the
    field no string.

    >>> get_text_from_jsonl(b'{"title": "caf\\u00e9"}', text_key="title")
    'café'
    """
    if text_encoding.casefold() not in {"utf-8", "utf8"}:
        jsonl_bytes = jsonl_bytes.decode(text_encoding).encode("utf-8", "surrogatepass")
    record = _object(jsonl_bytes)
    try:
        return _text_in(record, text_key)
    except KeyError:
        raise KeyError(f"no field {text_key!r} among {', '.join(map(repr, record))}") from None


def _object(line: bytes) -> dict[str, object]:
    """Return the object of a line; raise `ValueError` for anything else."""
    try:
        # All fields, though one is needed: skipping the others saves some thousandths of the time
        # of tokenising, and lets bad UTF-8 in them pass.
        record = decode_line(line)
    except ValueError:
        # Python's `json` reads bytes with a mark, and only text without.
        if not line.startswith(BOM):
            raise
        record = decode_line(line.removeprefix(BOM))
    if not isinstance(record, dict):
        raise ValueError(f"{JSON_NAMES[type(record)]}, not an object")  # noqa: TRY004 (bad data)
    return record


def _value_in(record: Mapping[str, object], path: str) -> object:
    """Return the value at a path in a record; raise `KeyError`."""
    value: object = record
    for name in [path] if path in record else path.split("."):
        if not isinstance(value, Mapping):
            raise KeyError(name)
        value = value[name]
    return value


def _text_in(record: Mapping[str, object], path: str) -> str:
    """Return the text at a path in a record; raise `KeyError`, or `ValueError` for no text."""
    value = _value_in(record, path)
    if not isinstance(value, str):
        raise ValueError(f"field {path!r} is {_kind(value)}, not a string")  # noqa: TRY004 (bad data)
    return value


def _value_of(record: Mapping[str, object], path: str) -> object:
    try:
        return _value_in(record, path)
    except KeyError:
        raise BadText(f"no field {path!r}") from None


def _scalar_in(record: Mapping[str, object], path: str) -> str:
    """Return a text as it is, and numbers as JSON has them."""
    value = _value_of(record, path)
    if isinstance(value, str):
        return value
    if isinstance(value, np.generic):  # Of a dataset of torch's kind.
        value = value.item()
    if not isinstance(value, bool | int | float):
        raise BadText(f"field {path!r} is {_kind(value)}, not a string or a number")
    return json.dumps(value)


def _kind(value: object) -> str:
    return JSON_NAMES.get(type(value), "an object")


def _together(parts: Iterable[Part]) -> list[Part]:
    """Return the parts that have text; neighbours that are both trained, or both not, as one."""
    found: list[Part] = []
    for text, is_trained in parts:
        if text and found and found[-1][1] == is_trained:
            found[-1] = (found[-1][0] + text, is_trained)
        elif text:
            found.append((text, is_trained))
    return found


def _is_part(pair: object) -> bool:
    is_pair = isinstance(pair, tuple | list) and len(pair) == 2  # noqa: PLR2004 (a pair)
    return is_pair and isinstance(pair[0], str) and isinstance(pair[1], bool)  # type: ignore[index]


def _called(function: Callable[..., object], given: object) -> object:
    try:
        return function(given)
    except Exception as why:
        # The text of a `KeyError` is just a name.
        raise BadText(f"{type(why).__name__}: {why}".removesuffix(": ")) from why


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
