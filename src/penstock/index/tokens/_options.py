"""Checks the options of tokens and samples, before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from penstock.errors import OptionError
from penstock.index.tokens._pack import PackingName, PackOptions, Remainder
from penstock.order import whole_number

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_LONGEST_SAMPLE = 2**32 - 1
"""Tokens: `document_ends.bin` holds uint32."""


def token_type(dtype: DTypeLike) -> np.dtype[np.integer[Any]]:
    """Return the dtype of tokens, always little-endian.

    >>> token_type("uint16").str, token_type(">u4").str
    ('<u2', '<u4')
    """
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = np.dtype(object)
    if found.kind not in "iu":
        raise OptionError(
            f"token_dtype={dtype!r}: expected a NumPy type of integers, as np.uint16 or np.uint32."
        )
    return cast("np.dtype[np.integer[Any]]", found.newbyteorder("<"))


def token_id(name: str, value: int, dtype: np.dtype[np.integer[Any]]) -> int:
    """Return a token, or raise if the dtype does not hold it."""
    token = whole_number(name, value, 0)
    most = int(np.iinfo(dtype).max)
    if token > most:
        raise OptionError(
            f"{name}={token} does not fit token_dtype={dtype.name} (0 to {most}). Give "
            f"token_dtype=np.{holding(token)}."
        )
    return token


def holding(token: int) -> str:
    """Return the name of the smallest common dtype that holds a token.

    >>> holding(65_535), holding(65_536)
    ('uint16', 'uint32')
    """
    names = ("uint16", "uint32", "uint64")
    return next((name for name in names if token <= int(np.iinfo(name).max)), names[-1])


def first_misfit(ids: NDArray[Any], dtype: np.dtype[np.integer[Any]]) -> int | None:
    """Return the position of the first token that the dtype does not hold; None: it holds all."""
    most = int(np.iinfo(dtype).max)
    if not len(ids) or (int(ids.min()) >= 0 and int(ids.max()) <= most):
        return None
    return int(np.flatnonzero((ids < 0) | (ids > most))[0])


def misfit(
    ids: NDArray[Any], at: int, dtype: np.dtype[np.integer[Any]], where: str, **details: object
) -> OptionError:
    """Return the error for a token that the dtype does not hold."""
    remedy = f"Give token_dtype=np.{holding(int(ids.max()))}."
    if int(ids[at]) < 0:
        remedy = "Tokens are numbers from 0 on: look at what the tokenizer returns."
    most = int(np.iinfo(dtype).max)
    fact = f"token {int(ids[at])} does not fit {dtype.name} (0 to {most}): {where}."
    return OptionError(fact, remedy=remedy, **details)


def pack_options(  # noqa: PLR0913, PLR0917 (as they are given)
    size: int | None,
    packing: str,
    remainder: str,
    eos: int | None,
    pad: int | None,
    dtype: np.dtype[np.integer[Any]],
) -> PackOptions:
    """Return the options of samples, or raise for invalid ones."""
    for name, value, kind in (
        ("packing", packing, PackingName),
        ("keep_remainder", remainder, Remainder),
    ):
        if value not in get_args(kind):
            known = " or ".join(f'"{one}"' for one in get_args(kind))
            raise OptionError(f"{name}={value!r}: expected {known}.")
    if size is None:
        for name, value in (("packing", packing), ("keep_remainder", remainder)):
            if value in ("best_fit", "pad"):
                raise OptionError(
                    f"{name}={value!r} packs documents into samples of one size. Give sample_size="
                )
    elif whole_number("sample_size", size, 1) > _LONGEST_SAMPLE:
        raise OptionError(f"sample_size={size}: expected at most {_LONGEST_SAMPLE:,} tokens.")
    elif eos is None:
        raise OptionError(
            "eos_idx=None: with sample_size= a token ends every document. Give its number."
        )
    filling = eos if pad is None else token_id("pad_idx", pad, dtype)
    return PackOptions(None if size is None else int(size), packing, remainder, filling)  # type: ignore[arg-type]
