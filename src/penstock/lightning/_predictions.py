"""Predictions as Arrow columns: one value for each row, with the types that a schema says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from penstock._words import counted
from penstock.decode import fit_batch, inferred_batch, typed_batch
from penstock.errors import SchemaMismatchError
from penstock.schema import Category, Number, Set, ValueState, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

is_ = pa.types

Key = tuple[str, str]
"""An address, and a key of its payload."""
Columns = Mapping[Key, pa.Array]

_NUMBERS = "biuf"
"""The kinds of NumPy's types that Arrow takes as they are."""


class PredictionTypes:
    """The types of predictions, by address and key: of the tree, or of the first values."""

    def __init__(self, tree: Any = None) -> None:
        self._known = {} if tree is None else known_types(tree)
        self._met: dict[Key, pa.DataType] = {}
        """Those of the payloads so far."""

    def columns(
        self, payload: Mapping[str, Mapping[str, Any]], numbers: NDArray[np.int64]
    ) -> Columns:
        """Return the columns of a payload.

        `numbers` are the record numbers, int64[rows], for the error about a value that does not
        fit.
        """
        found = {}
        for address, parts in payload.items():
            for key, values in parts.items():
                at, name = (str(address), str(key)), f"{address}.{key}"
                try:
                    array = column(values, self._known.get(at), numbers, name)
                    found[at] = self._settled(at, array, numbers, name)
                except SchemaMismatchError as why:
                    raise SchemaMismatchError(
                        f"predictions of {address!r}, key {key!r}: {why.fact}",
                        remedy="Correct it in predict_step, write= or the postprocessor.",
                        address=address,
                        key=key,
                    ) from None
        return found

    def _settled(self, at: Key, array: pa.Array, numbers: NDArray[np.int64], name: str) -> pa.Array:
        """Return a column under the type of those before; only what was null there gets another."""
        met = self._met.get(at, array.type)
        try:
            both = [pa.schema([("", met)]), pa.schema([("", array.type)])]
            self._met[at] = pa.unify_schemas(both).field(0).type
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            return _fitted(array, met, numbers, name)
        return array

    def struct(self, columns: Columns, rows: int) -> pa.Array:
        """Return columns as one struct by address and key, with all keys that were met so far.

        It is null for rows without predictions.
        """
        numbers = np.arange(rows)
        addresses: dict[str, dict[str, pa.Array]] = {}
        for at, type_ in self._met.items():
            array = columns.get(at)
            whole = pa.nulls(rows, type_) if array is None else _fitted(array, type_, numbers, "")
            addresses.setdefault(at[0], {})[at[1]] = whole
        made = _struct(
            {address: _struct(parts, rows) for address, parts in addresses.items()}, rows
        )
        return made if columns else pa.nulls(rows, made.type)


def known_types(tree: Any) -> dict[Key, pa.DataType]:
    """Return the types of the predictions for a tree, by address and key.

    Arrays with more than one slot make lists of the values below them.
    """
    found: dict[Key, pa.DataType] = {}
    for address, node in tree.nodes.items():
        axes = sum(array.max_length > 1 for array in tree.above(address))
        number, text = _lists_of(pa.float64(), axes), _lists_of(pa.string(), axes)
        vector = _lists_of(pa.list_(pa.float32()), axes)
        content = None
        if isinstance(node, Number):
            content = number
        elif isinstance(node, Vector):
            content = vector
        elif isinstance(node, Category):
            best = pa.struct([("label", pa.string()), ("probability", pa.float64())])
            topk = _lists_of(pa.list_(best), axes)
            content = pa.struct([("value", text), ("probability", number), ("topk", topk)])
        elif isinstance(node, Set):
            is_decided = vars(node)["threshold"] is not None
            content = pa.map_(pa.string(), _lists_of(pa.bool_(), axes) if is_decided else number)
        if content is not None:
            found[address, "state"] = pa.struct([(state.name, number) for state in ValueState])
            found[address, "content"] = content
        found[address, "embedding"] = vector
    return found


def _lists_of(type_: pa.DataType, axes: int) -> pa.DataType:
    for _ in range(axes):
        type_ = pa.list_(type_)
    return type_


def column(
    values: Any, type_: pa.DataType | None, numbers: NDArray[np.int64], name: str
) -> pa.Array:
    """Return values as a column of a type, or of their own one.

    Values are a tensor, an array or a list with the rows as first axis, or a dict of those; other
    axes of size 1 vanish, as far as the type does not need them.

    >>> column(
    ...     {"red": [0.1, 0.2]}, pa.map_(pa.string(), pa.float64()), np.arange(2), ""
    ... ).to_pylist()
    [[('red', 0.1)], [('red', 0.2)]]
    """
    if isinstance(values, list) and all(isinstance(one, str) for one in values):
        # Labels of a category alone.
        values = {"value": values} if type_ is not None and is_.is_struct(type_) else values
    if isinstance(values, Mapping):
        return _by_name(values, type_, numbers, name)
    here = _on_host(values, len(numbers))
    has_texts = type_ is not None and _holds_text(type_)
    here = here if has_texts else _as_array(here)
    if isinstance(here, np.ndarray):
        here = _squeezed(here, type_)
        if not has_texts:
            array = _nested(here)
            return array if type_ is None else _fitted(array, type_, numbers, name)
        here = here.tolist()
    if type_ is None:
        return inferred_batch([{name: one} for one in here]).column(0)
    rows = [{name: _with_texts(one, type_)} for one in here]
    return typed_batch(rows, pa.schema([(name, type_)]), numbers).column(0)


def _by_name(
    values: Mapping[Any, Any], type_: pa.DataType | None, numbers: NDArray[np.int64], name: str
) -> pa.Array:
    if type_ is None:
        inner = {
            str(key): column(one, None, numbers, f"{name}.{key}") for key, one in values.items()
        }
        return _struct(inner, len(numbers))
    if is_.is_map(type_):
        return _map(values, type_, numbers, name)
    fields = {field.name: field.type for field in type_} if is_.is_struct(type_) else {}
    if extra := [key for key in values if key not in fields]:
        raise SchemaMismatchError(f"it has {extra[0]!r}, and is of type {type_}.")
    return _struct(
        {
            key: column(values[key], inner, numbers, f"{name}.{key}")
            if key in values
            else pa.nulls(len(numbers), inner)
            for key, inner in fields.items()
        },
        len(numbers),
    )


def _map(
    values: Mapping[Any, Any], type_: pa.DataType, numbers: NDArray[np.int64], name: str
) -> pa.Array:
    """Return a map of all labels for each row."""
    rows, labels = len(numbers), [_text(label) for label in values]
    parts = [_as_array(_on_host(one, rows)) for one in values.values()]
    shapes = {getattr(part, "shape", None) for part in parts}
    if len(shapes) == 1 and None not in shapes:
        whole = np.stack(parts, axis=1)
        flat: Any = whole.reshape(-1, *whole.shape[2:])
    else:
        flat = [part[row] for row in range(rows) for part in parts]
    items = column(flat, type_.item_type, np.repeat(numbers, len(labels)), name)
    offsets = pa.array(np.arange(rows + 1) * len(labels), pa.int32())
    keys = pa.array(labels, pa.string()).take(np.tile(np.arange(len(labels)), rows))
    return pa.MapArray.from_arrays(offsets, keys, items)


def _struct(parts: Mapping[str, pa.Array], rows: int) -> pa.Array:
    if not parts:
        return pa.nulls(rows)  # Parquet has no struct without fields.
    return pa.StructArray.from_arrays([*parts.values()], [*parts])


def _on_host(values: Any, rows: int) -> NDArray[Any] | list[Any]:
    """Return values as an array of numbers or booleans, or as a list, with one for each row."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # NumPy has no bfloat16.
        values = (values.float() if "bfloat16" in str(values.dtype) else values).numpy()
    if isinstance(values, np.ndarray) and values.dtype.kind not in _NUMBERS:
        values = values.tolist()
    if isinstance(values, list | tuple):
        values = [one.tolist() if hasattr(one, "tolist") else one for one in values]
    if not isinstance(values, list | np.ndarray) or getattr(values, "ndim", 1) == 0:
        raise SchemaMismatchError(f"{values!r} has no rows: expected a tensor, an array or a list.")
    if len(values) != rows:
        raise SchemaMismatchError(f"it has {counted(len(values), 'row')}, and the batch {rows:,}.")
    return values


def _as_array(values: NDArray[Any] | list[Any]) -> NDArray[Any] | list[Any]:
    """Return a list of numbers, or of lists of them, as an array; anything else as it is."""
    if isinstance(values, list):
        with suppress(ValueError):  # Lists of several lengths are no array.
            array = np.array(values)
            return array if array.size and array.dtype.kind in _NUMBERS else values
    return values


def _squeezed(array: NDArray[Any], type_: pa.DataType | None) -> NDArray[Any]:
    """Return an array without axes of size 1, the first aside: all, or those beyond a type's."""
    axes = [axis for axis in range(1, array.ndim) if array.shape[axis] == 1]
    if type_ is not None:
        depth = 0
        while is_.is_list(type_):
            depth, type_ = depth + 1, type_.value_type
        axes = axes[: max(0, array.ndim - 1 - depth)]
    return array.squeeze(tuple(axes))


def _nested(array: NDArray[Any]) -> pa.Array:
    """Return an array of numbers as lists of lists."""
    made = pa.array(array.reshape(-1))
    for size in array.shape[:0:-1]:
        count = len(made) // size if size else array.shape[0]
        made = pa.ListArray.from_arrays(pa.array(np.arange(count + 1) * size, pa.int32()), made)
    return made


def _fitted(array: pa.Array, type_: pa.DataType, numbers: NDArray[np.int64], name: str) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([array], [name])
    return fit_batch(batch, pa.schema([(name, type_)]), numbers).column(0)


def _holds_text(type_: pa.DataType) -> bool:
    inner = [type_.field(at).type for at in range(type_.num_fields)]
    return is_.is_string(type_) or any(map(_holds_text, inner))


def _with_texts(value: Any, type_: pa.DataType) -> Any:
    """Return a value with labels as texts, where the type has texts."""
    if value is None:
        return None
    if is_.is_string(type_):
        return _text(value)
    if is_.is_list(type_) and isinstance(value, list | tuple):
        return [_with_texts(one, type_.value_type) for one in value]
    if is_.is_map(type_) and isinstance(value, Mapping):
        return {_text(key): _with_texts(one, type_.item_type) for key, one in value.items()}
    if is_.is_struct(type_) and isinstance(value, Mapping):
        types = {field.name: field.type for field in type_}
        if extra := [key for key in value if key not in types]:
            raise SchemaMismatchError(f"it has {extra[0]!r}, and is of type {type_}.")
        return {key: _with_texts(one, types[key]) for key, one in value.items()}
    return value


def _text(label: Any) -> str:
    """Return a label as a text: numbers and booleans as in JSON."""
    if isinstance(label, str):
        return label
    return orjson.dumps(label, option=orjson.OPT_SERIALIZE_NUMPY).decode()
