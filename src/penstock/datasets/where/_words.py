"""The words, signs and values that an expression is made of."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
            raise unreadable(text, at, _why(text[at]))
        kind = found.lastgroup or ""
        yield Token(kind, found[kind], found.start(kind))
        at = found.end()


def number_in(token: Token, text: str) -> int | float:
    """Return the value of a number."""
    try:
        return int(token.text)
    except ValueError:
        number = float(token.text)
    if not math.isfinite(number):
        raise unreadable(text, token.at, "this number is beyond the range of floats.")
    return number


def text_in(token: Token, text: str) -> str:
    """Return the value of a text in quotes."""
    # Inside single quotes a double one needs no escape, and JSON knows no escaped single one.
    inner = re.sub(
        r'\\.|"', lambda met: _ESCAPES.get(met[0], met[0]), token.text[1:-1], flags=re.DOTALL
    )
    try:
        value: str = json.loads(f'"{inner}"', strict=False)
        value.encode()  # Half of a surrogate pair is no text that a column could hold.
    except ValueError:
        problem = "this text has an escape that JSON does not know; a backslash itself is \\\\."
        raise unreadable(text, token.at, problem) from None
    return value


def unreadable(text: str, at: int, problem: str) -> OptionError:
    """Return the error for an expression that is no expression."""
    return point_at(text, at, f"this expression cannot be read: {problem}")


def point_at(text: str, at: int, problem: str) -> OptionError:
    """Return an error that shows a place in an expression."""
    start = text.rfind("\n", 0, at) + 1
    line = text[start:].partition("\n")[0]
    return OptionError(f"{problem}\n  {line}\n  {' ' * (at - start)}^")


def _why(sign: str) -> str:
    if sign in "'\"`":
        return f"this {sign} is never closed."
    return f"{sign!r} means nothing here. A name with this sign stands in backquotes."
