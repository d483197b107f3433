"""Three small encoders that show all that the contract of `Encoder` allows; workers import them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.batch import BatchPosition


def tensors(arrays: Mapping[str, Any]) -> Batch:
    import torch  # As in the contract: only in the user's process.

    return Batch({name: torch.from_numpy(values) for name, values in arrays.items()})


class GrowingVocabulary:
    """Gives each word the number that it had when it was first handed over."""

    fields: ClassVar[dict[str, pa.DataType]] = {"word": pa.string()}

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def arrays(self, columns: pa.RecordBatch, where: BatchPosition) -> dict[str, Any]:
        """Return provisional codes: numbers of the batch's own words, in order of appearance."""
        coded = columns["word"].dictionary_encode()
        return {"words": coded.dictionary.to_pylist(), "rows": coded.indices.to_numpy().copy()}

    def batch(
        self, arrays: dict[str, Any], where: BatchPosition, valid: NDArray[np.bool_] | None = None
    ) -> Batch:
        known = [self.codes.setdefault(word, len(self.codes)) for word in arrays["words"]]
        return tensors({"code": np.array(known, np.int64)[arrays["rows"]]})

    def state_dict(self) -> dict[str, Any]:
        return {"words": list(self.codes)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.codes = {word: code for code, word in enumerate(state["words"])}

    def describe(self) -> str:
        return f"codes of {len(self.codes)} words so far"


class HashedMask:
    """Hides a third of the numbers: by a hash of where a row stands, so always the same ones."""

    fields: ClassVar[dict[str, pa.DataType]] = {"n": pa.int64()}

    def arrays(self, columns: pa.RecordBatch, where: BatchPosition) -> dict[str, Any]:
        is_masked = where.draw("mask")[:, 0] % np.uint64(3) == 0
        n = columns["n"].to_numpy()
        return {"n": np.where(is_masked, -1, n), "target": n.copy(), "is_masked": is_masked}

    def part(self, arrays: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
        return {name: values[start:stop] for name, values in arrays.items()}

    def batch(
        self, arrays: dict[str, Any], where: BatchPosition, valid: NDArray[np.bool_] | None = None
    ) -> Batch:
        return tensors(arrays)


class WithNegatives:
    """Adds two drawn numbers to each record: rows of `candidate` beside those of the records."""

    fields: ClassVar[dict[str, pa.DataType]] = {"n": pa.int64()}
    drawn = 2

    def arrays(self, columns: pa.RecordBatch, where: BatchPosition) -> dict[str, Any]:
        own = columns["n"].to_numpy()
        drawn = (where.draw("negatives", self.drawn) % np.uint64(1000)).reshape(-1)
        return {"n": own.copy(), "candidate": np.concatenate([own, drawn.astype(np.int64)])}

    def batch(
        self, arrays: dict[str, Any], where: BatchPosition, valid: NDArray[np.bool_] | None = None
    ) -> Batch:
        return tensors(arrays)

    def describe(self) -> str:
        return f"numbers with {self.drawn} negatives each"
