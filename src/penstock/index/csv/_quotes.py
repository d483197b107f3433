"""Finds rows whose quotes are no quotes of the dialect, so that their values would be wrong."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.index.csv._types import Dialect

MISQUOTED = "its quotes do not enclose whole fields"
_MOST_REPEATED = 1000
"""Of the library of expressions."""


def find_misquoted(
    text: bytes, rows: Sequence[bytes] | NDArray[np.int64], dialect: Dialect
) -> list[int]:
    r"""Return the rows of a text in which text follows the quote that closes a field.

    `rows` are the rows, or where they begin.

    >>> from penstock.index.csv._types import Dialect
    >>> find_misquoted(b'1,"a, b"\n2,"a" b\n3,5"\n', np.array([0, 9, 17]), Dialect())
    [1]
    """
    if dialect.quote is None or dialect.quote.encode() not in text:
        return []
    pattern = _misquoted(dialect.quote, dialect.delimiter, dialect.escape)
    return _matching(pattern, text, rows)


def find_merged(
    text: bytes, rows: Sequence[bytes] | NDArray[np.int64], dialect: Dialect, columns: int
) -> list[int]:
    r"""Return the rows between quotes of which lines end that have all fields by themselves.

    Their quotes may be text. Only tabs, which few texts hold, are enough of a sign for that.

    >>> from penstock.index.csv._types import Dialect
    >>> rows = [b'1\t"a\tx\n2\tb"\ty\n', b'1\t"a\nb"\ty\n']
    >>> find_merged(b"".join(rows), rows, Dialect("\t"), 3)
    [0]
    """
    is_rare = dialect.delimiter == "\t" and 1 < columns <= _MOST_REPEATED
    if dialect.quote is None or not is_rare or dialect.quote.encode() not in text:
        return []
    line = f"(?:[^\\t\\r\\n]*\\t){{{columns - 1}}}[^\\t\\r\\n]*"
    return _matching(f"^{line}\\r?\\n(?s:.*\\n)?{line}\\s*$", text, rows)


def _matching(pattern: str, text: bytes, rows: Sequence[bytes] | NDArray[np.int64]) -> list[int]:
    if isinstance(rows, np.ndarray):  # Without copies; a blank line belongs to the row before it.
        offsets = np.append(rows, len(text)).astype(np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        texts = pa.Array.from_buffers(pa.large_binary(), len(rows), buffers)
    else:
        texts = pa.array(rows, pa.large_binary())
    matching: list[int] = pc.indices_nonzero(pc.match_substring_regex(texts, pattern)).to_pylist()
    return matching


@lru_cache(16)
def _misquoted(quote: str, delimiter: str, escape: str | None) -> str:
    q, d, e = (f"\\x{ord(sign):02x}" if sign else "" for sign in (quote, delimiter, escape))
    escaped = f"|{e}(?s:.)" if e else ""
    enclosed = f"{q}(?:[^{q}{e}]|{q}{q}{escaped})*{q}"
    plain = f"(?:[^{q}{d}{e}\\r\\n]{escaped})(?:[^{d}{e}\\r\\n]{escaped})*"
    # Spaces behind the quote do no harm.
    return f"^(?:(?:{enclosed} *|{plain})?{d})*{enclosed}(?: *[^{q} {d}\\r\\n]| +{q})"
