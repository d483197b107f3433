"""Of what type the tokens of an index are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import CorruptIndexError, OptionError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from penstock.index import Meta

_KINDS = ("tokens", "samples")
"""Of indexes that may be of tokens; the second is what a custom indexer writes."""


def dtype_of(meta: Meta | None, asked: DTypeLike | None) -> np.dtype[Any]:
    """Return the dtype that an index tells, or else the one that was asked for."""
    if meta is not None and meta.kind not in _KINDS:
        raise CorruptIndexError(
            f"this is an index of {meta.kind}, not of tokens. Open it with penstock.open(), or "
            "tokenise first: penstock tokenize SRC DST"
        )
    if meta is not None and meta.kind == "tokens" and meta.tokens is None:
        raise CorruptIndexError(
            "meta.json is one of tokens, and does not say of which type they are: it is damaged. "
            "Tokenise again: penstock tokenize SRC DST --overwrite"
        )
    wanted = np.dtype(np.uint16 if asked is None else asked).newbyteorder("<")
    if not np.issubdtype(wanted, np.integer):
        raise OptionError(
            f"token_dtype={wanted.name}: tokens are integers, as of uint16 or uint32."
        )
    if meta is None or meta.tokens is None:
        return wanted
    known = np.dtype(meta.tokens.dtype).newbyteorder("<")
    if asked is not None and wanted != known:
        raise OptionError(
            f"token_dtype={wanted.name}, but meta.json says that these tokens are {known.name}. "
            "Leave the argument out."
        )
    return known
