"""Field types as an encoder: `{"price": "float32", "tags": "list<int64>"}`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock._lazy import require
from penstock.batch._arrays import Place, encoded, part_of
from penstock.batch._arrow_types import field_type
from penstock.datasets import Category, missing_fields, root_of, vocabulary
from penstock.decode import fit_batch
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.batch._batch import Batch
    from penstock.batch._encoder import BatchPosition
    from penstock.datasets import Source


class FieldEncoder:
    """Turns columns into the tensors that field types ask for.

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
        self._types = {name: field_type(name, type_) for name, type_ in types.items()}
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
        from penstock.batch._arrow_types import types_in  # noqa: PLC0415 (only when used)

        return cls(types_in(schema, names))

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
            return source, self  # A subclass has its own mind about how it is copied.
        if any(missing.is_certain for missing in missing_fields(source, self.categories)):
            return source, self  # The loader refuses it, without a pass over all records.
        root = root_of(source)
        length = len(root)
        found = {name: vocabulary(root, name, length) for name in self.categories}
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
            place = Place(name, type_, where.ids, self._codes.get(name, {}))
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
        require("torch", extra="torch", purpose="a batch of tensors")
        from penstock.batch._batch import Batch  # noqa: PLC0415 (torch)
        from penstock.batch._tensors import decorated, tensor  # noqa: PLC0415 (torch)

        fields = {
            name: decorated(type_, arrays[name], self._words.get(name, ()))
            for name, type_ in self._types.items()
        }
        flags = None if valid is None else tensor(np.asarray(valid, np.bool_))
        return Batch(fields, tensor(where.ids), flags)

    def encode(self, columns: pa.RecordBatch, where: BatchPosition) -> Batch:
        """Return the batch of these columns, a row for each of theirs."""
        return self.batch(self.arrays(columns, where), where)

    def describe(self) -> str:
        """Return what a batch is."""
        return f"tensors of {len(self.fields)} fields: {self}"

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
        return {
            name: {word: code for code, word in enumerate(words)}
            for name, words in self._words.items()
        }

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
