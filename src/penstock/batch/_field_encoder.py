"""Field types as an encoder: `{"price": "float32", "tags": "list<int64>"}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock._words import counted, few
from penstock.batch._arrays import ValuePlace, encoded, part_of
from penstock.batch._batch import Batch
from penstock.batch._parts import decorated
from penstock.datasets import (
    GRAMMAR,
    CategoryType,
    Dense,
    FieldType,
    Json,
    ListOf,
    NumberType,
    Optional,
    Source,
    TextsType,
    closest,
    may_be_missing,
    meant,
    missing_fields,
    parsed,
    paths_in,
    refuse_numbers,
    root_of,
    type_at,
    vocabulary,
)
from penstock.decode import JSON, TEXT, fit_batch, plain_columns, plain_type
from penstock.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.batch._encoder import BatchPosition

is_ = pa.types
BYTES = {kind.id for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))}
_STRINGS = {kind().id for kind in (pa.string, pa.large_string, pa.string_view)}
_LISTS = {
    kind(pa.null()).id for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)
}


class FieldEncoder:
    """Turns columns into tensors by field types.

    A type is a text (`int64`, `int64 = -1`, `int64?`, `float32[768]`, `int64[:50]`,
    `list<int64>`, `string`, `text`, `json`, `category`) or a `pyarrow.DataType`. It works in two
    steps, so that a worker process needs no torch: `arrays`, then `batch`.

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
        given = {name: _field_type(name, type_) for name, type_ in types.items()}
        self.types = {name: str(type_) for name, type_ in given.items()}
        """The type of each field as a text."""
        self.may_be_missing = {name for name, type_ in given.items() if may_be_missing(type_)}
        """The fields that no record needs to have: `?` or a default says so."""
        self._types = {name: _without_sign(type_) for name, type_ in given.items()}
        self.vocabularies = {
            name: _vocabulary(name, values) for name, values in (vocabularies or {}).items()
        }
        """The values of each category in the order of their codes."""
        for name, values in self.vocabularies.items():
            if not isinstance(self._types.get(name), CategoryType):
                raise OptionError(
                    f"there is a vocabulary for {name!r}, which is no category: "
                    f"{self.types.get(name, 'no such field')}"
                )
            self._types[name] = CategoryType(values.type)

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

    @cached_property
    def categories(self) -> list[str]:
        """The fields that need a vocabulary and have none yet."""
        return [
            name
            for name, type_ in self._types.items()
            if isinstance(type_, CategoryType) and name not in self.vocabularies
        ]

    @property
    def null_fields(self) -> set[str]:
        """The fields that have a place for no value, in which a bad record has none."""
        types = self._types.items()
        categories = {name for name, type_ in types if isinstance(type_, CategoryType)}
        return self.may_be_missing | categories

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
        if not isinstance(source, Source):
            raise OptionError(
                f"the category {self.categories[0]!r} has the values of all records, and these "
                "only flow: give them, as in penstock.batch.FieldEncoder(types, "
                f"{{{self.categories[0]!r}: [… all values …]}})."
            )
        unknown = {missing.path for missing in missing_fields(source, self.categories)}
        if not unknown <= self.may_be_missing:
            return source, self  # The loader refuses it, without a pass over all records.
        root = root_of(source)
        found = {
            name: vocabulary(root, name, len(root), may_be_missing=name in unknown)
            for name in self.categories
        }
        return source, self.with_vocabularies(found)

    def arrays(self, columns: pa.RecordBatch, where: BatchPosition) -> dict[str, Any]:
        """Return plain arrays, owned and writable, in lists and tuples: what `batch` takes."""
        if missing := self.categories:
            raise OptionError(
                f"the category {missing[0]!r} has no vocabulary: give one by "
                f"with_vocabularies({{{missing[0]!r}: […]}})"
            )
        if not columns.schema.equals(self._schema):
            columns = self._fitted(columns, where)
        arrays = {}
        for (name, type_), column in zip(self._types.items(), columns.columns, strict=True):
            place = ValuePlace(name, type_, where.ids, self._codes.get(name, {}))
            arrays[name] = encoded(type_, column, place)
        return arrays

    def _fitted(self, columns: pa.RecordBatch, where: BatchPosition) -> pa.RecordBatch:
        there = columns.schema
        schema = pa.schema(
            # A string in place of `json` is JSON text already, as `Source.read` returns it.
            (name, plain if name in there.names and there.field(name).type == plain else type_)
            for (name, type_), plain in zip(self.fields.items(), self._schema.types, strict=True)
        )
        return plain_columns(fit_batch(columns, schema, where.ids))

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
        return f"tensors of {counted(len(self.fields), 'field')}: {self}"

    @cached_property
    def _schema(self) -> pa.Schema:
        """Columns as they are handed over."""
        return pa.schema([(name, plain_type(type_)) for name, type_ in self.fields.items()])

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
        hint = f"; did you mean {near!r}?" if (near := meant(type_)) else "."
        raise OptionError(
            f"field {name!r}: no tensor stands for {kind}{hint} Field types are\n{GRAMMAR}"
        )
    return found


def _without_sign(type_: FieldType) -> FieldType:
    """Return the type that decides about the values: only numbers have a mask for `?`."""
    has_mask = isinstance(type_, Optional) and isinstance(type_.item, NumberType | Dense)
    return type_.item if isinstance(type_, Optional) and not has_mask else type_


def _known(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type that a schema has for a name or path, if a tensor may stand for it."""
    type_ = type_at(schema, name)
    if type_ is None or is_.is_null(type_):
        fact = (
            f"the records looked at have no field {name!r}: {closest(name, paths_in(schema))}"
            if type_ is None
            else f"field {name!r} is null in all records that were looked at."
        )
        raise OptionError(fact, remedy=f"If others have it, give its type: {{{name!r}: 'int64?'}}")
    refuse_numbers(pa.schema([(name, type_)]))
    below = [path for path in paths_in(schema) if path.startswith((f"{name}.", f"{name}[]."))]
    if below and _of(type_) is None:
        raise OptionError(
            f"field {name!r} holds objects, and no tensor stands for those: name the fields "
            f"below it, {few([*map(repr, below)], 5)}, or ask for {{{name!r}: 'json'}}"
        )
    return type_


def _of(type_: pa.DataType) -> FieldType | None:
    if type_ in (TEXT, JSON):
        return TextsType(TEXT) if type_ == TEXT else Json()
    if isinstance(type_, pa.BaseExtensionType):
        return _of(type_.storage_type)
    if is_.is_primitive(type_):
        return None if is_.is_interval(type_) else NumberType(type_)
    if type_.id in _STRINGS | BYTES:
        return TextsType(pa.string() if type_.id in _STRINGS else pa.binary())
    if is_.is_dictionary(type_):
        return CategoryType(pa.string())
    if is_.is_fixed_size_list(type_):
        item = _of(type_.value_type)
        return Dense(item, type_.list_size) if isinstance(item, NumberType | Dense) else None
    if type_.id in _LISTS:
        item = _of(type_.value_type)
        return (
            ListOf(item)
            if isinstance(item, NumberType | Dense | TextsType | Json | ListOf)
            else None
        )
    return None
