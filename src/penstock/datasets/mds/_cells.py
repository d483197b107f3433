"""The bytes of MDS columns, and what every encoding of them can do."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray


class BadCell(Exception):  # noqa: N818 - says what a value is, not what went wrong
    """A value that cannot be handed out."""

    def __init__(self, row: int, why: object, *, is_damage: bool = True) -> None:
        super().__init__(row, why)
        self.row, self.why = row, why
        self.is_damage = is_damage
        """Else it is a sound value, and only no Arrow column has room for it."""


class Cells(NamedTuple):
    """The bytes of one column of some samples: text[begins[i]:ends[i]], int64[samples]."""

    text: bytes
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    def parts(self) -> list[bytes]:
        """Return each value's own bytes."""
        text = self.text
        places = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return [text[begin:end] for begin, end in places]

    def matrix(self, width: int) -> NDArray[np.uint8]:
        """Return values of one size: uint8[samples, width], contiguous."""
        if not len(self.begins):
            return np.empty((0, width), np.uint8)
        # A value begins at every byte, as one item each, which NumPy copies as a whole.
        items = np.ndarray((len(self.text) - width + 1,), f"V{width}", self.text, strides=(1,))
        return items[self.begins].view(np.uint8).reshape(-1, width)


class Encoding(ABC):
    """How the values of a column are stored."""

    size: int | None = None
    """Bytes of each; None: it differs."""
    is_typed = True
    """Whether the Arrow type is known without looking at values."""
    is_parsed = False
    """Whether values are Python objects of any shape."""

    @abstractmethod
    def values(self, cells: Cells) -> list[Any]:
        """Return the values as a record has them; raise `BadCell`."""

    @abstractmethod
    def array(self, cells: Cells, column: str, warned: set[str]) -> pa.Array:
        """Return the values as Arrow, with a type as wide as they need; raise `BadCell`.

        Warnings about a column of mixed types are given once, and remembered in `warned`.
        """


def each(parse: Callable[[bytes], Any], parts: Sequence[bytes]) -> list[Any]:
    """Return what each value's bytes mean; raise `BadCell` about one that means nothing."""
    try:
        return [parse(part) for part in parts]
    except (ValueError, ArithmeticError, LookupError, struct.error):
        for row, part in enumerate(parts):
            try:
                parse(part)
            except (ValueError, ArithmeticError, LookupError, struct.error) as why:
                raise BadCell(row, str(why) or type(why).__name__) from None
        raise
