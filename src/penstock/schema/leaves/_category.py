"""Labels: one of a vocabulary, several of it, or the same thing again within a batch."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from penstock.errors import OptionError
from penstock.schema._nodes import Leaf, check_count, check_share
from penstock.schema._placement import items_of
from penstock.schema._values import (
    BadSlotError,
    Labels,
    SlotValues,
    in_order_of_appearance,
    numbered,
)
from penstock.schema._vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.schema._arrays import LeafArrays

_PLAIN = (is_.is_string, is_.is_large_string, is_.is_integer, is_.is_floating, is_.is_boolean)
_AS_TEXT = (
    dt.date,
    dt.time,
    dt.timedelta,
    decimal.Decimal,
    uuid.UUID,
    np.datetime64,
    np.timedelta64,
)


class _Labelled(Leaf):
    """Values that are labels."""

    guess = pa.string()

    def wanted(self, found: pa.DataType) -> pa.DataType | None:
        plain = found.value_type if is_.is_dictionary(found) else found
        return found if any(is_plain(plain) for is_plain in _PLAIN) else None

    def from_values(self, values: Sequence[Any]) -> SlotValues:
        return _coded(*numbered([_label(slot, value) for slot, value in enumerate(values)]))

    def from_arrow(self, values: pa.Array) -> SlotValues:
        return _coded(*coded_column(values))

    def empty(self, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        return {"": np.zeros(shape, np.int64)}


class Category(_Labelled):
    """One label of a vocabulary that grows while training: its number, or `max_vocab_size`.

    Args:
        name: As for every leaf.
        max_vocab_size: Labels that the vocabulary holds. A label that it does not hold has this
            number.
        p_unavailable: The probability that a known label is taken for an unknown one in training,
            so that the model learns what that means.
        topk: For the model.
    """

    kind = "category"
    max_vocab_size: int
    p_unavailable: float

    def __init__(
        self,
        name: str,
        *,
        max_vocab_size: int = 10_000,
        p_unavailable: float = 0.01,
        topk: int | Sequence[int] | None = None,
        **shared: Any,
    ) -> None:
        label = f"Category {name!r}"
        check_vocabulary(label, max_vocab_size, p_unavailable)
        if "n_bands" in shared:
            raise OptionError(f"{label}: n_bands is no option of a category.")
        own: dict[str, Any] = {"max_vocab_size": max_vocab_size, "p_unavailable": p_unavailable}
        super().__init__(name, **own, topk=checked_topk(label, topk, max_vocab_size), **shared)

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.max_vocab_size)

    def classes(self) -> dict[str, int]:
        return {**super().classes(), "content": self.max_vocab_size + 1}

    def finished(
        self,
        arrays: LeafArrays,
        words: Vocabulary | None,
        *,
        learn: bool,
        valid: NDArray[np.bool_] | None,
    ) -> dict[str, NDArray[Any]]:
        assert words is not None  # noqa: S101 (made by `vocabulary`)
        codes = arrays.content["codes"]
        taught = None if valid is None or not learn else codes[valid]
        content = words.coded(arrays.labels, codes, taught, learn=learn)
        if arrays.unavailable is not None:
            content[arrays.unavailable & (codes >= 0)] = self.max_vocab_size
        return {"": content}


class Entity(_Labelled):
    """Which slots of a batch hold the same thing: numbers from 0 on, in the order of appearance.

    Args:
        name: As for every leaf.
        topk: For the model.
    """

    kind = "entity"

    def __init__(
        self,
        name: str,
        *,
        topk: int | Sequence[int] | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(name, topk=checked_topk(f"Entity {name!r}", topk), **shared)

    def check_shape(self, address: str, shape: tuple[int, ...]) -> None:
        if math.prod(shape) < 2:  # noqa: PLR2004 (one slot has nothing to be compared with)
            raise OptionError(
                f"Entity {address!r} has one slot a record, and tells slots apart. Put it below "
                "an Array, or use a Category."
            )

    def finished(
        self,
        arrays: LeafArrays,
        words: Vocabulary | None,
        *,
        learn: bool,
        valid: NDArray[np.bool_] | None,
    ) -> dict[str, NDArray[Any]]:
        codes = arrays.content["codes"]
        seen = in_order_of_appearance(codes, len(arrays.labels))
        numbers = np.zeros(len(arrays.labels) + 1, np.int64)
        numbers[seen] = np.arange(len(seen))
        return {"": numbers[codes]}


class Set(Leaf):
    """Any number of labels of a vocabulary: 1.0 for each that is there, float32[V + 1].

    Args:
        name: As for every leaf.
        max_vocab_size: Labels that the vocabulary holds. The last number stands for all others.
        p_unavailable: As for `Category`, for each label of a set.
        threshold: For the model.
    """

    kind = "set"
    takes_lists = True
    guess = pa.list_(pa.string())
    max_vocab_size: int
    p_unavailable: float

    def __init__(
        self,
        name: str,
        *,
        max_vocab_size: int = 10_000,
        p_unavailable: float = 0.01,
        threshold: float | None = None,
        **shared: Any,
    ) -> None:
        check_vocabulary(f"Set {name!r}", max_vocab_size, p_unavailable)
        own: dict[str, Any] = {"max_vocab_size": max_vocab_size, "p_unavailable": p_unavailable}
        super().__init__(name, **own, threshold=threshold, **shared)

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.max_vocab_size)

    def wanted(self, found: pa.DataType) -> pa.DataType | None:
        item = found.value_type if is_.is_list(found) or is_.is_large_list(found) else found
        return found if any(is_plain(item) for is_plain in _PLAIN) else None

    def from_values(self, values: Sequence[Any]) -> SlotValues:
        sets = [_items(slot, value) for slot, value in enumerate(values)]
        labels, codes = numbered([one for items in sets for one in items or ()])
        counts = np.array([len(items or ()) for items in sets], np.int64)
        valued = np.array([items is not None for items in sets], np.bool_)
        return SlotValues(valued, {"codes": codes}, labels, counts)

    def from_arrow(self, values: pa.Array) -> SlotValues:
        valued = values.is_valid().to_numpy(zero_copy_only=False)
        if is_.is_list(values.type) or is_.is_large_list(values.type):
            counts = pc.list_value_length(values).fill_null(0).to_numpy().astype(np.int64)
            labels, codes = coded_column(values.flatten())
            owner = np.repeat(np.arange(len(valued)), counts)[codes >= 0]
            counts = np.bincount(owner, minlength=len(valued))
        else:
            labels, codes = coded_column(values)
            valued = codes >= 0
            counts = valued.astype(np.int64)
        return SlotValues(valued, {"codes": codes[codes >= 0]}, labels, counts)

    def finished(
        self,
        arrays: LeafArrays,
        words: Vocabulary | None,
        *,
        learn: bool,
        valid: NDArray[np.bool_] | None,
    ) -> dict[str, NDArray[Any]]:
        assert words is not None  # noqa: S101 (made by `vocabulary`)
        assert arrays.offsets is not None  # noqa: S101 (of a set)
        codes, size = arrays.content["codes"], self.max_vocab_size
        rows = np.repeat(np.arange(len(arrays.state)), np.diff(arrays.offsets))
        taught = None if valid is None or not learn else codes[valid[rows]]
        numbers = words.coded(arrays.labels, codes, taught, learn=learn)
        if arrays.unavailable is not None:
            numbers = np.where(arrays.unavailable, size, numbers)
        content = self.empty(arrays.state.shape)
        shape = (len(arrays.state), math.prod(arrays.state.shape[1:]), size + 1)
        content[""].reshape(shape)[rows, arrays.content["slots"], numbers] = 1
        return content

    def empty(self, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        return {"": np.zeros((*shape, self.max_vocab_size + 1), np.float32)}


def coded_column(values: pa.Array) -> tuple[Labels, NDArray[np.int32]]:
    """Return the keys of a column's labels, and the number of each value; -1 for null."""
    coded = values
    if is_.is_dictionary(values.type) and (
        # A few rows must not cost as much as all labels, and each label has one number.
        len(values.dictionary) > len(values)
        or pc.count_distinct(values.dictionary, "all").as_py() < len(values.dictionary)
    ):
        coded = values.dictionary_decode()
    if not is_.is_dictionary(coded.type):
        coded = coded.dictionary_encode()
    labels = Labels(coded.dictionary.to_pylist())
    codes = coded.indices.cast(pa.int32())
    codes = (codes.fill_null(-1) if codes.null_count else codes).to_numpy()
    is_odd = is_.is_floating(coded.dictionary.type) or is_.is_boolean(coded.dictionary.type)
    if is_odd or coded.dictionary.null_count:
        # NaN and infinities are no labels, 1.0 is that of 1, and True is not.
        again, numbers = numbered([_label(0, one) for one in labels])
        return again, np.append(numbers, np.int32(-1))[codes]
    return labels, codes


def check_vocabulary(label: str, size: int, p_unavailable: float) -> None:
    check_count(label, "max_vocab_size", size)
    check_share(label, "p_unavailable", p_unavailable)


def checked_topk(
    label: str, topk: int | Sequence[int] | None, size: int | None = None
) -> tuple[int, ...] | None:
    """Return the ranks that a model reports, sorted; raise for impossible ones."""
    if topk is None:
        return None
    ranks = sorted({topk} if isinstance(topk, int) else set(topk))
    for rank in ranks:
        check_count(label, "topk", rank, 2)
        if size is not None and rank >= size:
            raise OptionError(f"{label}: topk={rank}: expected less than max_vocab_size={size}.")
    return tuple(ranks)


def _coded(labels: Labels, codes: NDArray[np.int32]) -> SlotValues:
    return SlotValues(codes >= 0, {"codes": codes}, labels)


def _label(slot: int, value: Any) -> Any:
    """Return the label of a value; None for null."""
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() else value
    if isinstance(value, _AS_TEXT):
        if value != value:  # noqa: PLR0124 (no time, or no number)
            return None
        return value.isoformat() if isinstance(value, dt.date) else str(value)
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
    raise BadSlotError(
        slot, f"{value!r} is no label: labels are hashable: texts, numbers and booleans"
    )


def _items(slot: int, value: Any) -> list[Any] | None:
    items = sorted(value, key=repr) if isinstance(value, set | frozenset) else items_of(value)
    if items is None:
        label = _label(slot, value)
        return None if label is None else [label]
    return [label for one in items if (label := _label(slot, one)) is not None]
