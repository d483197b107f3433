"""Fields of CSV text as values, each by its own text alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock.index.csv._types import convert_options, read_options, whole_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.index.csv._types import Dialect

_INTEGER = r"^[ \t]*-?[0-9]+[ \t]*$"
_NUMBER = (
    r"^[ \t]*-?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+"
    r"|(?i:nan|inf|infinity))[ \t]*$"
)
_TRUTH = r"^(true|True|TRUE|false|False|FALSE)$"


def typed_columns(text: bytes, names: Sequence[str], dialect: Dialect) -> dict[str, list[object]]:
    r"""Return the columns of whole rows: int, float, bool, text, or None for an empty field.

    What a field holds depends on nothing but itself, unlike the type of its column.

    >>> from penstock.index.csv._types import Dialect
    >>> typed_columns(b'1,x\n"",2.5\n,true\n', ["a", "b"], Dialect())
    {'a': [1, '', None], 'b': ['x', 2.5, True]}
    """
    text = whole_rows(text)
    types = dict.fromkeys(names, pa.string())
    table = csv.read_csv(
        pa.py_buffer(text),
        read_options(text, names),
        dialect.parse_options(),
        convert_options(types, names),
    )
    return {name: _values(table[name]) for name in names}


def _values(texts: pa.ChunkedArray) -> list[object]:
    values: list[object] = texts.to_pylist()
    for pattern, convert in _READERS:
        matching = pc.match_substring_regex(texts, pattern).fill_null(False).to_numpy()  # noqa: FBT003 (Arrow's own)
        for at in np.flatnonzero(matching).tolist():
            values[at] = convert(str(values[at]))
    return values


def _integer(text: str) -> object:
    try:
        return int(text)
    except ValueError:  # More digits than Python turns into a number.
        return text


_READERS: tuple[tuple[str, Callable[[str], object]], ...] = (
    (_INTEGER, _integer),
    (_NUMBER, float),
    (_TRUTH, lambda text: text.lower() == "true"),
)
