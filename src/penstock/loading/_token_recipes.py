"""From token sources to what the user gets."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from penstock._lazy import require
from penstock.batch import Tokens
from penstock.datasets import TokenSource, type_at
from penstock.errors import OptionError
from penstock.loading._order_choice import lies_remote
from penstock.loading._recipes import BaseRecipe, Records, recipe_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    import torch
    from numpy.typing import NDArray

    from penstock.batch import Batch, BatchPosition, TokenRows
    from penstock.datasets import Source
    from penstock.loading._recipes import Ids, Recipe, Valid

    Array = NDArray[Any]


class TokenRecipe(BaseRecipe):
    """Samples of one size as they are stored: a tensor of their type, with `ids` and `valid`.

    Both are what `Records` has. A copy that its user makes does not have them.
    """

    schema = None
    is_cut_last = True
    has_even_rows = True

    def describe(self) -> str:
        return "a tensor of the tokens as they are stored, for no encode was given"

    def read(self, source: Source, ids: Ids) -> Array:
        rows: Array = source.read(ids)
        return rows

    def filled(self, read: Array, rows: Ids, source: Source) -> Array:
        found = np.zeros((len(rows), *read.shape[1:]), read.dtype)
        found[rows >= 0] = read[rows[rows >= 0]]
        return found

    def make(self, read: Array, where: BatchPosition) -> Array:
        return read

    def hand_over(self, made: Array, ids: Ids, valid: Valid) -> torch.Tensor:
        tokens: torch.Tensor = _torch().from_numpy(made)
        tokens.ids, tokens.valid = ids, valid  # type: ignore[attr-defined]
        return tokens

    def hand_over_all(self, made: Array, ids: Ids) -> Iterator[torch.Tensor]:
        from_numpy = _torch().from_numpy
        # A tensor of each, and not parts of one: whoever saves a batch saves only that.
        for rows, own in zip(made.reshape(*ids.shape, -1), ids, strict=True):
            batch: torch.Tensor = from_numpy(rows)
            batch.ids, batch.valid = own, None  # type: ignore[attr-defined]
            yield batch


class SampleRecipe(BaseRecipe):
    """Samples of different lengths as they are stored: a list of tensors."""

    schema = None

    def describe(self) -> str:
        return "a list of tensors, for samples have different lengths and no encode was given"

    def read(self, source: Source, ids: Ids) -> list[Array]:
        return list(source.read(ids))

    def filled(self, read: list[Array], rows: Ids, source: Source) -> list[Array | None]:
        return [None if row < 0 else read[row] for row in rows.tolist()]

    def size(self, read: list[Array]) -> int:
        return sum(one.nbytes for one in read)

    def make(self, read: list[Array], where: BatchPosition) -> list[Array]:
        return read

    def hand_over(self, made: list[Array | None], ids: Ids, valid: Valid) -> Records:
        from_numpy = _torch().from_numpy
        records = Records(None if one is None else from_numpy(one) for one in made)
        records.ids, records.valid = ids, valid
        return records


class WindowRecipe(BaseRecipe):
    """What `Tokens` makes of rows: arrays where batches are made, tensors where they are used."""

    schema = None
    has_even_rows = True

    def __init__(self, tokens: Tokens, source: TokenSource) -> None:
        self.tokens = tokens
        self.is_cut_last = not tokens.tells_documents(source)

    def describe(self) -> str:
        return f"input_ids and labels of {self.tokens.length:,} tokens: {self.tokens}"

    def read(self, source: Source, ids: Ids) -> TokenRows:
        return self.tokens.rows(cast("TokenSource", source), ids)

    def filled(self, read: TokenRows, rows: Ids, source: Source) -> TokenRows:
        return read.filled(rows)

    def size(self, read: TokenRows) -> int:
        return read.tokens.nbytes

    def cut(self, read: TokenRows, count: int) -> Iterable[TokenRows]:
        rows = len(read.tokens) // count
        return [read.part(start, start + rows) for start in range(0, count * rows, rows)]

    def make(self, read: TokenRows, where: BatchPosition) -> dict[str, Any]:
        return self.tokens.arrays_of(read)

    def part(self, made: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
        return {name: array[start:stop] for name, array in made.items()}

    def hand_over(self, made: dict[str, Any], ids: Ids, valid: Valid) -> Batch:
        return self.tokens.batch(made, ids, valid)


@cache
def _torch() -> ModuleType:
    return require("torch", extra="torch", purpose="a batch of tensors")


TOKEN_RECIPES = (TokenRecipe, SampleRecipe, WindowRecipe)


def rows_text(source: Source) -> str:
    """Return what the rows of a token source are; nothing for others."""
    return f" ({source._about()})" if isinstance(source, TokenSource) else ""  # noqa: SLF001


def _check_column(source: Source, tokens: Tokens) -> None:
    """Raise for records of which it is plain that they hold no such tokens."""
    if tokens.stride is not None:
        raise OptionError(
            f"stride={tokens.stride}: windows are cut out of token files only, and these are "
            "records, each a row. Leave the stride out."
        )
    if not len(source) or (lies_remote(source) and not hasattr(source, "schema_is_complete")):
        return  # Nothing is fetched before it is needed.
    type_ = type_at(source.schema, tokens.field)
    if type_ is None or type_ == pa.null():
        raise OptionError(
            f"the records have no field {tokens.field!r} with tokens. Make token files of their "
            "text: penstock tokenize SRC DST; or name the field: Tokens(…, field='input_ids')."
        )
    holds_bytes = any(
        is_kind(type_)
        for is_kind in (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_fixed_size_binary,
            pa.types.is_binary_view,
        )
    )
    if holds_bytes and tokens.token_dtype is None:
        raise OptionError(
            f"the field {tokens.field!r} holds bytes: say of which integers, as in "
            "Tokens(…, token_dtype='int64'), which LLM Foundry writes."
        )
    if not holds_bytes and tokens.token_dtype is not None:
        raise OptionError(
            f"token_dtype={tokens.token_dtype.name!r} is for tokens that are kept as bytes, and "
            f"the field {tokens.field!r} is {type_}. Leave it out."
        )


def recipe_over(
    source: Source, encode: object, output: str | None, encoder_of: Callable[[Any], Any]
) -> tuple[Source, Recipe]:
    """Return the records that a loader goes over, and how they become batches.

    Tokens are read as tokens, unless their column is asked for like any other; see `recipe_for`.
    """
    if encode is Tokens:
        raise OptionError("encode=Tokens: give it a length, as in Tokens(1024).")
    if isinstance(source, TokenSource) and output is None:
        if isinstance(encode, Tokens):
            rows = encode.over(source)
            return rows, WindowRecipe(encode, rows)
        if encode is None:
            return source, SampleRecipe() if source.sample_size is None else TokenRecipe()
    elif isinstance(encode, Tokens):
        _check_column(source, encode)
    return source, recipe_for(encode, output, encoder_of)
