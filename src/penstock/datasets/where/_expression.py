"""A small language of comparisons: text in, a tree of what is compared out; nothing is executed.

    age >= 18 and (country in ('de', 'fr') or not user.name starts with 'test')

Fields are named as they are, dotted paths included; other names stand in backquotes. Values are
numbers, 'texts' or "texts" (with the escapes of JSON), true and false. As in SQL, null matches no
comparison, whichever way round: ask with `is null` and `is not null`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEEPEST = 100
"""How far parentheses and `not` may be nested."""

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FOREIGN = {"=": "==", "<>": "!=", "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not"}
_VALUES = {"true": True, "false": False, "null": None}
_WORDS = {"and", "or", "not", "in", "is", "contains", "starts", "with", *_VALUES}

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?!\w)
    | (?P<word>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
    | `(?P<name>[^`]+)`
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<sign>==|!=|<=|>=|<>|&&|\|\||[<>=(),&|!])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {'"': '\\"', "\\'": "'"}

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field beside a value; `in` beside several."""

    name: str
    how: str
    """One of == != < <= > >= in contains starts."""
    values: tuple[Value, ...]
    at: tuple[int, ...] = field(repr=False, compare=False)
    """Where in the text the values stand."""


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a field is null or missing."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; of null it is null."""

    inner: Node


@dataclass(frozen=True, slots=True)
class Several:
    """Conditions that must all hold, or (without `all`) at least one."""

    all: bool
    parts: tuple[Node, ...]


Node = Comparison | IsNull | Not | Several


def parse(text: str) -> Node:
    """Return the tree of an expression, or raise an error that points at what is wrong.

    >>> parse("age >= 18")
    Comparison(name='age', how='>=', values=(18,))
    >>> parse("18 <= age") == parse("age >= 18")
    True
    """
    return _ConditionParser(text).whole()


def names_in(node: Node) -> list[str]:
    """Return the fields that an expression is about, each once.

    >>> names_in(parse("a > 1 or not (b.c is null and a < 0)"))
    ['a', 'b.c']
    """
    return list(dict.fromkeys(_names(node)))


def _names(node: Node) -> Iterator[str]:
    if isinstance(node, Several):
        for part in node.parts:
            yield from _names(part)
    elif isinstance(node, Not):
        yield from _names(node.inner)
    else:
        yield node.name


class Token(NamedTuple):
    """A word, a name in backquotes, a number, a text, a sign, or the end."""

    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


def tokens_of(text: str) -> Iterator[Token]:
    """Yield the tokens of an expression, the end as the last one.

    >>> [token.text for token in tokens_of("age >= 18 and `odd name` in ('a')")]
    ['age', '>=', '18', 'and', 'odd name', 'in', '(', "'a'", ')', '']
    """
    at, kind = 0, ""
    while kind != "end":
        found = _TOKEN.match(text, at)
        if found is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            why = f"{text[at]!r} means nothing here. A name with this sign stands in backquotes."
            if text[at] in "'\"`":
                why = f"this {text[at]} is never closed."
            raise unreadable(text, at, why)
        kind = found.lastgroup or ""
        yield Token(kind, found[kind], found.start(kind))
        at = found.end()


def unreadable(text: str, at: int, problem: str) -> OptionError:
    """Return the error for an expression that is no expression."""
    return point_at(text, at, f"this expression cannot be read: {problem}")


def point_at(text: str, at: int, problem: str) -> OptionError:
    """Return an error that shows a place in an expression."""
    start = text.rfind("\n", 0, at) + 1
    line = text[start:].partition("\n")[0]
    return OptionError(f"{problem}\n  {line}\n  {' ' * (at - start)}^")


class _ConditionParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(tokens_of(text))
        self.depth = 0

    def _wrong(self, at: int, problem: str) -> OptionError:
        return unreadable(self.text, at, problem)

    def _take(self) -> Token:
        # The end token stays for the next caller.
        return self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]

    def _is_next(self, *words: str) -> bool:
        token = self.tokens[0]
        return token.kind in ("word", "sign") and token.text.lower() in words

    def _skip(self, *words: str) -> bool:
        found = self._is_next(*words)
        if found:
            self._take()
        return found

    def _expect(self, word: str, after: str) -> None:
        if not self._skip(word):
            token = self.tokens[0]
            raise self._wrong(token.at, f"after {after} comes {word!r}, not {token}.")

    def whole(self) -> Node:
        node = self._several("or")
        token = self.tokens[0]
        if token.kind != "end":
            raise self._wrong(token.at, _why_not(token))
        return node

    def _several(self, word: str) -> Node:
        parts: list[Node] = []
        while not parts or self._skip(word):
            parts.append(self._several("and") if word == "or" else self._one())
        return parts[0] if len(parts) == 1 else Several(word == "and", tuple(parts))

    def _one(self) -> Node:
        if not self._is_next("not", "("):
            return self._comparison()
        token = self._take()
        self.depth += 1
        if self.depth > DEEPEST:
            raise self._wrong(token.at, f"it is nested more than {DEEPEST} levels deep.")
        if token.text == "(":
            node = self._several("or")
            if not self._skip(")"):
                raise self._wrong(token.at, "this parenthesis is never closed.")
        else:
            node = Not(self._one())
        self.depth -= 1
        return node

    def _comparison(self) -> Node:
        first = self._take()
        if first.kind in ("number", "text") or first.text.lower() in _VALUES:
            return self._turned_round(first)
        name = self._field(first)
        if self._skip("is"):
            is_not = self._skip("not")
            self._expect("null", "'is not'" if is_not else "'is'")
            return Not(IsNull(name)) if is_not else IsNull(name)
        sign = self._take()
        is_not = sign.text.lower() == "not" and self._is_next("in", "contains", "starts")
        node = self._beside(name, self._take() if is_not else sign)
        return Not(node) if is_not else node

    def _beside(self, name: str, sign: Token) -> Node:
        how = sign.text.lower() if sign.kind in ("sign", "word") else ""
        if how == "in":
            return self._among(name)
        if how == "starts":
            self._expect("with", "'starts'")
        elif how != "contains" and how not in _COMPARISONS:
            hint = f"write {_FOREIGN[how]!r} for {how!r}." if how in _FOREIGN else _AFTER_FIELD
            raise self._wrong(sign.at, f"after the field {name!r}: {hint}")
        token = self._take()
        value = self._value(token)
        if how in ("contains", "starts") and not isinstance(value, str):
            raise self._wrong(token.at, f"a text in quotes is expected, not {token}.")
        return Comparison(name, how, (value,), (token.at,))

    def _turned_round(self, token: Token) -> Node:
        value = self._value(token)
        sign = self._take()
        if sign.text not in _COMPARISONS:
            raise self._wrong(sign.at, f"after a value comes a comparison, not {sign}.")
        other = self._take()
        if other.kind in ("number", "text") or other.text.lower() in _VALUES:
            raise self._wrong(token.at, "two values are compared here: one side names a field.")
        how = _FLIPPED.get(sign.text, sign.text)
        return Comparison(self._field(other), how, (value,), (token.at,))

    def _among(self, name: str) -> Node:
        self._expect("(", "'in'")
        tokens = [self._take()]
        values = [self._value(tokens[0])]
        while self._skip(",") and not self._is_next(")"):
            tokens.append(self._take())
            values.append(self._value(tokens[-1]))
        self._expect(")", "the values")
        return Comparison(name, "in", tuple(values), tuple(token.at for token in tokens))

    def _field(self, token: Token) -> str:
        if token.kind == "name" or (token.kind == "word" and token.text.lower() not in _WORDS):
            return token.text
        problem = f"a field name is expected, not {token}."
        if token.kind == "word":
            problem += f" A field of that name stands in backquotes: `{token.text}`"
        raise self._wrong(token.at, problem)

    def _value(self, token: Token) -> Value:
        if token.kind == "number":
            return self._number(token)
        if token.kind == "text":
            return self._text(token)
        word = token.text.lower()
        if token.kind == "word" and word in _VALUES:
            value = _VALUES[word]
            if value is None:
                raise self._wrong(token.at, "null matches no comparison: write 'is null'.")
            return value
        problem = f"a number, a text in quotes, true or false is expected, not {token}."
        if token.kind in ("word", "name"):
            problem += " Two fields are compared by a pyarrow expression."
        raise self._wrong(token.at, problem)

    def _number(self, token: Token) -> int | float:
        try:
            return int(token.text)
        except ValueError:
            number = float(token.text)
        if not math.isfinite(number):
            raise self._wrong(token.at, "this number is beyond the range of floats.")
        return number

    def _text(self, token: Token) -> str:
        # Inside single quotes a double one needs no escape, and JSON knows no escaped single one.
        inner = re.sub(
            r'\\.|"', lambda met: _ESCAPES.get(met[0], met[0]), token.text[1:-1], flags=re.DOTALL
        )
        try:
            value: str = json.loads(f'"{inner}"', strict=False)
            value.encode()  # Half of a surrogate pair is no text that a column could hold.
        except ValueError:
            problem = "this text has an escape that JSON does not know; a backslash itself is \\\\."
            raise self._wrong(token.at, problem) from None
        return value


_AFTER_FIELD = (
    "a comparison is expected (== != < <= > >=, in, not in, is null, is not null, contains, "
    "starts with). A name with other signs than letters, digits, _ and dots stands in backquotes."
)


def _why_not(token: Token) -> str:
    """Return why the expression cannot go on with this token after a whole condition."""
    if token.text in _COMPARISONS:
        return "one comparison at a time: write 1 < a and a < 5."
    if token.text in _FOREIGN:
        return f"write {_FOREIGN[token.text]!r} for {token.text!r}."
    return f"'and', 'or' or the end is expected, not {token}."
