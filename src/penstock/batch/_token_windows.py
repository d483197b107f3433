"""`Tokens` over a token source, as an encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.batch._batch import Batch
    from penstock.batch._encoder import BatchPosition
    from penstock.batch._token_arrays import TokenRows
    from penstock.batch._tokens import Tokens
    from penstock.datasets import TokenSource


class TokenDocuments:
    """`Tokens` over a token source: rows are read as tokens; the batch says where documents are."""

    has_even_rows = True
    fields: ClassVar[dict[str, pa.DataType]] = {}

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def read(self, source: TokenSource, ids: NDArray[np.int64]) -> TokenRows:
        """Return the rows of the source that `Tokens.bind` returned."""
        return self._tokens.rows(source, ids)

    def arrays(self, rows: TokenRows, where: BatchPosition) -> dict[str, Any]:
        """Return plain arrays, owned and writable."""
        del where
        return self._tokens.arrays_of(rows)

    def batch(
        self,
        arrays: Mapping[str, Any],
        where: BatchPosition,
        valid: NDArray[np.bool_] | None = None,
    ) -> Batch:
        """Return the batch of arrays."""
        return self._tokens.batch(arrays, where, valid)

    def describe(self) -> str:
        """Return what a batch is."""
        return self._tokens.describe()


class TokenWindows(TokenDocuments):
    """The same without documents: every array has a row for each record, so that it can be cut."""

    def part(self, arrays: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
        """Return some rows of what `arrays` made, without a copy."""
        return {name: array[start:stop] for name, array in arrays.items()}
