"""A small language of comparisons: text in, a tree of what is compared out; nothing is executed.

    age >= 18 and (country in ('de', 'fr') or not user.name starts with 'test')

Fields are named as they are, dotted paths included; other names stand in backquotes. `len(field)`
is the number of characters of a text, or of items of a list. Values are numbers, 'texts' or "texts"
(with the escapes of JSON), true and false. As in SQL, null matches no comparison, whichever way
round: ask with `is null` and `is not null`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import OptionError

DEEPEST = 100
"""How far parentheses and `not` may be nested."""

LENGTH = "len "
"""In front of how a length is compared."""
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BOOLEANS = {"true": True, "false": False}
_WORDS = {"and", "or", "not", "in", "is", "contains", "starts", "with", "null", *_BOOLEANS}
_INSTEAD = {
    "=": "==",
    "<>": "!=",
    "&&": "and",
    "&": "and",
    "||": "or",
    "|": "or",
    "!": "not",
    "null": "is null",
}
"""What stands here for a sign or word that other languages have."""

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
    """One of == != < <= > >= in contains starts; behind "len " that of the field's length."""
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


def names_in(node: Node, *, null_tests: bool = False) -> list[str]:
    """Return the fields that an expression is about, each once; or only those of `is null`."""
    if isinstance(node, Comparison | IsNull):
        return [node.name] if isinstance(node, IsNull) or not null_tests else []
    parts = node.parts if isinstance(node, Several) else (node.inner,)
    names = (name for part in parts for name in names_in(part, null_tests=null_tests))
    return list(dict.fromkeys(names))


class Token(NamedTuple):
    """A word, a name in backquotes, a number, a text, a sign, or the end."""

    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


def point_at(text: str, at: int, problem: str) -> OptionError:
    """Return an error that shows a place in an expression."""
    start = text.rfind("\n", 0, at) + 1
    line = text[start:].partition("\n")[0]
    return OptionError(f"{problem}\n  {line}\n  {' ' * (at - start)}^")


class _ConditionParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._tokens())
        self.depth = 0

    def _tokens(self) -> Iterator[Token]:
        """Yield the tokens, the end as the last one."""
        at, kind = 0, ""
        while kind != "end":
            found = _TOKEN.match(self.text, at)
            if found is None:
                sign = self.text[at:].lstrip()[0]
                why = f"{sign!r} means nothing here. A name with this sign stands in backquotes."
                if sign in "'\"`":
                    why = f"this {sign} is never closed."
                raise self._wrong(self.text.index(sign, at), why)
            kind = found.lastgroup or ""
            yield Token(kind, found[kind], found.start(kind))
            at = found.end()

    def _wrong(self, at: int, problem: str) -> OptionError:
        return point_at(self.text, at, f"this expression cannot be read: {problem}")

    def _expected(self, what: str, token: Token) -> OptionError:
        """Return the error about a token that stands in the place of something else."""
        problem, word = f"{what} is expected, not {token}", token.text.lower()
        if token.kind in ("word", "sign") and word in _INSTEAD:
            problem += f": write {_INSTEAD[word]!r} for {token}"
        elif token.kind == "word" and word in _WORDS:
            problem += f"; a field of that name stands in backquotes: `{token.text}`"
        return self._wrong(token.at, f"{problem}.")

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

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            raise self._expected(repr(word), self.tokens[0])

    def whole(self) -> Node:
        node = self._several("or")
        if self.tokens[0].kind != "end":
            raise self._expected("'and', 'or' or the end", self.tokens[0])
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
        is_word = first.kind == "word" and first.text.lower() in (*_BOOLEANS, "null")
        if is_word or first.kind in ("number", "text"):
            value, sign = self._value(first), self._take()
            if sign.text not in _COMPARISONS:
                raise self._expected("a comparison", sign)
            how = _FLIPPED.get(sign.text, sign.text)
            name, of = self._operand(self._take())
            return Comparison(name, of + how, (value,), (first.at,))
        name, of = self._operand(first)
        if not of and self._skip("is"):
            is_not = self._skip("not")
            self._expect("null")
            return Not(IsNull(name)) if is_not else IsNull(name)
        sign = self._take()
        is_not = sign.text.lower() == "not" and self._is_next("in", "contains", "starts")
        node = self._beside(name, of, self._take() if is_not else sign)
        return Not(node) if is_not else node

    def _beside(self, name: str, of: str, sign: Token) -> Node:
        how = sign.text.lower() if sign.kind in ("sign", "word") else ""
        if how == "in":
            return self._among(name, of)
        is_of_text = how in ("contains", "starts") and not of
        if not is_of_text and how not in _COMPARISONS:
            shown = f"len({name})" if of else f"the field {name!r}"
            raise self._expected(f"after {shown}: a comparison", sign)
        if how == "starts":
            self._expect("with")
        token = self._take()
        if is_of_text and token.kind != "text":
            raise self._expected("a text in quotes", token)
        return Comparison(name, of + how, (self._value(token),), (token.at,))

    def _among(self, name: str, of: str) -> Node:
        self._expect("(")
        tokens = [self._take()]
        values = [self._value(tokens[0])]
        while self._skip(",") and not self._is_next(")"):
            tokens.append(self._take())
            values.append(self._value(tokens[-1]))
        self._expect(")")
        return Comparison(name, f"{of}in", tuple(values), tuple(token.at for token in tokens))

    def _operand(self, token: Token) -> tuple[str, str]:
        """Return the field that is compared, and LENGTH where its length is."""
        if token.kind != "word" or token.text.lower() != "len" or not self._skip("("):
            return self._field(token), ""
        name = self._field(self._take())
        self._expect(")")
        return name, LENGTH

    def _field(self, token: Token) -> str:
        if token.kind == "name" or (token.kind == "word" and token.text.lower() not in _WORDS):
            return token.text
        raise self._expected("a field name", token)

    def _value(self, token: Token) -> Value:
        if token.kind == "number":
            return self._number(token)
        if token.kind == "text":
            return self._text(token)
        if token.kind == "word" and token.text.lower() in _BOOLEANS:
            return _BOOLEANS[token.text.lower()]
        raise self._expected("a number, a text in quotes, true or false", token)

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
