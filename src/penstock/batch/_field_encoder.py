"""Field types as an encoder: `{"price": "float32", "tags": "list<int64>"}`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.batch._arrays import ValuePlace, encoded, part_of
from penstock.batch._batch import Batch
from penstock.batch._parts import decorated
from penstock.datasets import (
    GRAMMAR,
    Category,
    Dense,
    FieldType,
    ListOf,
    Number,
    Text,
    missing_fields,
    parsed,
    paths_in,
    root_of,
    type_at,
    vocabulary,
)
from penstock.decode import fit_batch
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.batch._encoder import BatchPosition
    from penstock.datasets import Source

is_ = pa.types
_STRINGS = (is_.is_string, is_.is_large_string, is_.is_string_view)
BYTES = (is_.is_binary, is_.is_large_binary, is_.is_binary_view, is_.is_fixed_size_binary)
_NUMBERS = (is_.is_boolean, is_.is_integer, is_.is_floating, is_.is_temporal)
_LISTS = (is_.is_list, is_.is_large_list, is_.is_list_view, is_.is_large_list_view)


class FieldEncoder:
    """Turns columns into tensors by field types.

    A type is a text (`int64`, `int64 = -1`, `int64?`, `float32[768]`, `int64[:50]`,
    `list<int64>`, `string`, `category`) or a `pyarrow.DataType`. It works in two steps, so that a
    worker process needs no torch: `arrays`, then `batch`.

    >>> import numpy as np
    >>> from penstock.batch import BatchPosition
    >>> encoder = FieldEncoder({"price": "float32", "tags": "list<int64>"})
    >>> columns = pa.record_batch({"price": [0.5, None], "tags": [[1, 2], []]})
    >>> where = BatchPosition(seed=0, epoch=0, positions=np.arange(2), ids=np.array([7, 3]))
    >>> batch = encoder.encode(columns, where)
    >>> batch["price"], batch["tags"].values, batch.ids
    (tensor([0.5000,    nan]), tensor([1, 2]), tensor([7, 3]))
    """

    def __init__(
        self,
        types: Mapping[str, str | pa.DataType],
        vocabularies: Mapping[str, pa.Array | Sequence[Any]] | None = None,
    ) -> None:
        """Encode the fields of `types`; a category has the codes of its vocabulary."""
        self._types = {name: _field_type(name, type_) for name, type_ in types.items()}
        self.types = {name: str(type_) for name, type_ in self._types.items()}
        """The type of each field as a text."""
        self.vocabularies = {
            name: _vocabulary(name, values) for name, values in (vocabularies or {}).items()
        }
        """The values of each category in the order of their codes."""
        for name, values in self.vocabularies.items():
            if not isinstance(self._types.get(name), Category):
                raise OptionError(
                    f"there is a vocabulary for {name!r}, which is no category: "
                    f"{self.types.get(name, 'no such field')}"
                )
            self._types[name] = Category(values.type)

    @classmethod
    def from_schema(cls, names: Sequence[str], schema: pa.Schema) -> FieldEncoder:
        """Return an encoder for names, or paths, whose types a schema knows.

        >>> schema = pa.schema({"user": pa.struct({"age": pa.int8()}), "name": pa.string()})
        >>> FieldEncoder.from_schema(["user.age", "name"], schema).types
        {'user.age': 'int8', 'name': 'string'}
        """
        if isinstance(names, str):
            raise OptionError(f"expected several names; for one write [{names!r}]")
        return cls({name: _known(schema, name) for name in names})

    @cached_property
    def fields(self) -> dict[str, pa.DataType]:
        """The columns to read, and their types."""
        return {name: type_.arrow for name, type_ in self._types.items()}

    @property
    def categories(self) -> list[str]:
        """The fields that need a vocabulary and have none yet."""
        return [
            name
            for name, type_ in self._types.items()
            if isinstance(type_, Category) and name not in self.vocabularies
        ]

    def with_vocabularies(
        self, vocabularies: Mapping[str, pa.Array | Sequence[Any]]
    ) -> FieldEncoder:
        """Return an encoder of the same fields that has these vocabularies, too."""
        return FieldEncoder(self.types, {**self.vocabularies, **vocabularies})

    def bind(self, source: Source) -> tuple[Source, FieldEncoder]:
        """Return the encoder with the vocabularies of the whole source.

        Those of a view would give other codes to the same values than the next view.
        """
        if not self.categories or type(self) is not FieldEncoder:
            return source, self  # A subclass may not be copied in this way.
        if any(missing.is_certain for missing in missing_fields(source, self.categories)):
            return source, self  # The loader refuses it, without a pass over all records.
        root = root_of(source)
        found = {name: vocabulary(root, name, len(root)) for name in self.categories}
        return source, self.with_vocabularies(found)

    def arrays(self, columns: pa.RecordBatch, where: BatchPosition) -> dict[str, Any]:
        """Return plain arrays, owned and writable, in lists and tuples: what `batch` takes."""
        if missing := self.categories:
            raise OptionError(
                f"the category {missing[0]!r} has no vocabulary: give one by "
                f"with_vocabularies({{{missing[0]!r}: […]}})"
            )
        if not columns.schema.equals(self._schema):
            columns = fit_batch(columns, self._schema, where.ids)
        arrays = {}
        for (name, type_), column in zip(self._types.items(), columns.columns, strict=True):
            place = ValuePlace(name, type_, where.ids, self._codes.get(name, {}))
            arrays[name] = encoded(type_, column, place)
        return arrays

    def part(self, arrays: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
        """Return some rows of what `arrays` made, without a copy."""
        return {
            name: part_of(type_, arrays[name], start, stop) for name, type_ in self._types.items()
        }

    def batch(
        self,
        arrays: Mapping[str, Any],
        where: BatchPosition,
        valid: NDArray[np.bool_] | None = None,
    ) -> Batch:
        """Return the batch of what `arrays` made: tensors over the same memory."""
        fields = {
            name: decorated(type_, arrays[name], self._words.get(name, ()))
            for name, type_ in self._types.items()
        }
        return Batch(fields, where.ids, valid)

    def encode(self, columns: pa.RecordBatch, where: BatchPosition) -> Batch:
        """Return the batch of these columns, a row for each of theirs."""
        return self.batch(self.arrays(columns, where), where)

    def describe(self) -> str:
        """Return one sentence for `explain()`."""
        return f"tensors of {len(self.fields)} field{'s' * (len(self.fields) != 1)}: {self}"

    @cached_property
    def _schema(self) -> pa.Schema:
        return pa.schema(list(self.fields.items()))

    @cached_property
    def _words(self) -> dict[str, list[Any]]:
        return {
            name: values.to_numpy(zero_copy_only=False).tolist()
            for name, values in self.vocabularies.items()
        }

    @cached_property
    def _codes(self) -> dict[str, dict[Any, int]]:
        words = self._words.items()
        return {name: {word: code for code, word in enumerate(own)} for name, own in words}

    def __reduce__(self) -> tuple[type[FieldEncoder], tuple[object, ...]]:
        return FieldEncoder, (self.types, self.vocabularies)

    def __repr__(self) -> str:
        return f"FieldEncoder({self.types})"


def _vocabulary(name: str, values: pa.Array | Sequence[Any]) -> pa.Array:
    try:
        array = values if isinstance(values, pa.Array) else pa.array(list(values))
    except (pa.ArrowException, TypeError) as why:
        raise OptionError(f"the vocabulary of {name!r} is no list of values: {why}") from None
    if pa.types.is_null(array.type):
        array = array.cast(pa.string())
    if array.null_count or len(array.unique()) < len(array):
        raise OptionError(
            f"the vocabulary of {name!r} holds null, or a value twice: each value has one code"
        )
    return array


def _field_type(name: str, type_: str | pa.DataType) -> FieldType:
    """Return the field type that a text or an Arrow type stands for."""
    if not isinstance(name, str):
        raise OptionError(f"a field is named by a text, not by {name!r}")
    if isinstance(type_, str):
        try:
            return parsed(type_)
        except OptionError as why:
            raise OptionError(f"field {name!r}: {why}") from None
    found = _of(type_) if isinstance(type_, pa.DataType) else None
    if found is None:
        kind = f"the Arrow type {type_}" if isinstance(type_, pa.DataType) else repr(type_)
        raise OptionError(
            f"field {name!r}: no tensor stands for {kind}. Field types are\n{GRAMMAR}"
        )
    return found


def _known(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type that a schema has for a name or path, if a tensor may stand for it."""
    type_ = type_at(schema, name)
    if type_ is None or is_.is_null(type_):
        there = ", ".join(paths_in(schema)) or "none"
        fact = (
            f"the schema has no field {name!r}; there are: {there}"
            if type_ is None
            else f"field {name!r} is null in all records that were looked at"
        )
        raise OptionError(f"{fact}. Give it a type, as in {{{name!r}: 'int64'}}")
    below = [path for path in paths_in(schema) if path.startswith((f"{name}.", f"{name}[]."))]
    if below and _of(type_) is None:
        raise OptionError(
            f"field {name!r} holds objects, and no tensor stands for those: name the fields "
            f"below it, {', '.join(map(repr, below))}"
        )
    return type_


def _of(type_: pa.DataType) -> FieldType | None:
    if isinstance(type_, pa.BaseExtensionType):
        return _of(type_.storage_type)
    if _is(type_, _NUMBERS):
        return None if is_.is_interval(type_) else Number(type_)
    if _is(type_, _STRINGS) or _is(type_, BYTES):
        return Text(pa.string() if _is(type_, _STRINGS) else pa.binary())
    if is_.is_dictionary(type_):
        return Category(pa.string())
    if is_.is_fixed_size_list(type_):
        item = _of(type_.value_type)
        return Dense(item, type_.list_size) if isinstance(item, Number | Dense) else None
    if _is(type_, _LISTS):
        item = _of(type_.value_type)
        return ListOf(item) if isinstance(item, Number | Dense | Text | ListOf) else None
    return None


def _is(type_: pa.DataType, kinds: Sequence[Callable[[pa.DataType], bool]]) -> bool:
    return any(is_one(type_) for is_one in kinds)
