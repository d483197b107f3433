"""JSON Lines by number."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import numpy as np

from penstock._words import counted
from penstock.datasets.text._in_folders import InFolders
from penstock.decode import HOLDS_ALL, decode_as_json, decode_fast
from penstock.errors import CorruptIndexError, MalformedLineError, OptionError, SchemaMismatchError
from penstock.jsonl import place_in_line, reason_text

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.datasets._source import Fields
    from penstock.decode import OnBad, TypedDecoder
    from penstock.index import SampleIndex

_SHOWN_BYTES = 80
_BLANK = "it is blank"
_KINDS = ("jsonl", "json", "samples")
"""Of indexes whose records are JSON; the last is what a custom indexer writes."""


class JsonlDataset(InFolders):
    r"""Records of JSON Lines files, plain or compressed, local or remote.

    With `fields` (names, or names with types) records hold only those fields, which is faster;
    `schema` takes them as a `pa.Schema`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.index import create_default_jsonl_indexer
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"id": 1, "text": "one"}\n{"id": 2}\n')
    >>> create_default_jsonl_indexer(folder)()
    >>> dataset = JsonlDataset.create_from_index_on_filesystem(folder)
    >>> len(dataset), dataset[-1], dataset.location(0).bytes
    (2, {'id': 2}, 25)
    """

    _NAME_IN_CACHE = "penstock.datasets._jsonl.JsonlDataset"
    has_lines = True

    def __init__(
        self,
        sample_index: SampleIndex,
        text_encoding: str = "utf-8",
        name: str | None = None,
        fields: Fields | None = None,
        schema: pa.Schema | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(sample_index, name, **kwargs)
        if sample_index.meta is not None and sample_index.meta.kind not in _KINDS:
            raise CorruptIndexError(
                f"this is an index of {sample_index.meta.kind}, not of JSON Lines. Open it with "
                "penstock.open(); lines beside it are named by a pattern: "
                "penstock.open('DIR/*.jsonl')"
            )
        if fields is not None and schema is not None:
            raise OptionError("fields and schema say the same thing: give one of them.")
        try:
            self._encoding = codecs.lookup(text_encoding).name
        except LookupError:
            message = f"text_encoding={text_encoding!r}: Python does not know this encoding."
            raise OptionError(message) from None
        self._fields = schema if fields is None else fields
        self._prepare()

    def _prepare(self) -> None:
        self._decode = decode_fast if self._fields is None else _projecting(self._fields)
        self._decoders: dict[pa.Schema, TypedDecoder] = {}
        self._is_plain = self._encoding == "utf-8" and not self._folders[1]

    @property
    def _reads_as_indexed(self) -> bool:
        return super()._reads_as_indexed and self._encoding == "utf-8"

    def _columns_key(self, where: object) -> list[object]:
        return [self._cache_name(), self._encoding, where]

    def __getitem__(self, which: Any) -> Any:
        if type(which) is not int or not 0 <= which < self._length or not self._is_plain:
            return super().__getitem__(which)
        line = self._raw(which)
        try:
            return self._decode(line)
        except (ValueError, RecursionError):
            return self._decode_with_care(which, line)

    def _process_sample(self, sample_bytes: bytes) -> Any:
        return self._decode(sample_bytes.decode(self._encoding).encode())

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        lines = self._lines(ids)
        try:
            records = list(map(self._decode, lines))
        except (ValueError, RecursionError):
            numbers = ids.tolist()
            records = list(map(self._decode_with_care, numbers, lines))
        return self._fill_records(records, ids)

    def _fill_records(self, records: list[Any], ids: NDArray[np.int64]) -> list[Any]:
        """Return records with the fields of their folders that they do not have themselves."""
        names, values = self._folder_types, self._folders[1]
        for record, file in zip(records, self._rows[ids, 0].tolist(), strict=True) if names else ():
            for name, value in values[file].items() if type(record) is dict else ():
                if name in names and record.get(name) is None:
                    record[name] = value
        return records

    @property
    def _folder_types(self) -> dict[str, pa.DataType]:
        """The fields of folders that records hold, with their types."""
        chosen = None if self._fields is None else _names(self._fields)
        types = self._folders[0]
        return types if chosen is None else {name: types[name] for name in types if name in chosen}

    def _with_folder_fields(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return columns that have those of folders, too, as null."""
        import pyarrow as pa  # noqa: PLC0415 (as above)

        for name, type_ in self._folder_types.items():
            at, nulls = batch.schema.get_field_index(name), pa.nulls(batch.num_rows, type_)
            if at < 0:
                batch = batch.append_column(name, nulls)
            elif pa.types.is_null(batch.schema.field(at).type):
                batch = batch.set_column(at, name, nulls)
        return batch

    def _lines(self, ids: NDArray[np.int64]) -> list[bytes]:
        lines = self._bytes_of(ids)
        if self._encoding == "utf-8":
            return lines
        for row, line in enumerate(lines):
            try:
                lines[row] = line.decode(self._encoding).encode()
            except ValueError as why:
                raise self._malformed(int(ids[row]), line, why) from None
        return lines

    def _decode_with_care(self, number: int, line: bytes) -> Any:
        try:
            return self._decode(line)
        except (ValueError, RecursionError):
            pass
        try:
            value = decode_as_json(line)
        except ValueError as why:
            raise self._malformed(number, line, why if line.strip() else _BLANK) from None
        if self._fields is None:
            return value
        try:
            return self._decode(msgspec.json.encode(value))
        except ValueError as why:
            raise self._malformed(number, line, why) from None

    def _malformed(self, number: int, line: bytes, why: object) -> MalformedLineError:
        text, details = self._described(number, line, why)
        details |= place_in_line(line, why)
        return MalformedLineError(f"{text} penstock check finds all bad lines.", **details)

    def _described(self, number: int, line: bytes, why: object) -> tuple[str, dict[str, Any]]:
        """Return the text and the details of an error about one record."""
        from penstock.datasets.text._line_numbers import line_number  # noqa: PLC0415 (on errors)

        file, offset, size = self.location(number)
        details = {"path": file, "offset": offset, "record": number}
        if (at := line_number(file, offset, self.storage_options)) is not None:
            details["line_number"], file = at, f"{file}, line {at:,}"
        begin = line[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
        # An element of an array may have lines of its own.
        said = reason_text(why).replace("of the line", "of the record")
        text = (
            f"record {number:,} ({file}, {counted(size, 'byte')} at byte {offset:,}) cannot be "
            f"read: {said}. It begins: {begin!r}."
        )
        return text, details

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        return self._fill(self._decoded(ids, schema), ids)

    def _decoded(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        from penstock.decode import TypedDecoder  # noqa: PLC0415 (pyarrow)

        decoder = self._decoders.get(schema)
        if decoder is None:
            decoder = self._decoders[schema] = TypedDecoder(schema)
        batch = self._columns_of_run(ids, decoder)
        if batch is not None:
            return batch
        lines = self._lines(ids)
        batch = decoder.attempt_lines(lines)
        if batch is not None:
            return batch
        return self._complete(decoder.settle(_joined(lines), None, self._on_bad(ids)), ids, lines)

    def _columns_of_run(
        self, ids: NDArray[np.int64], decoder: TypedDecoder
    ) -> pa.RecordBatch | None:
        """Return the columns of records that lie one after the other, decoded as one text."""
        run = self._text_of_run(ids) if self._encoding == "utf-8" else None
        if run is None:
            return None
        text, stops = run
        ends = stops - text.endswith(b"\n")
        ends[:-1] = stops[:-1] - 1
        if (np.frombuffer(text, np.uint8)[ends[:-1]] != ord("\n")).any():
            return None  # The index of another tool, which may have other rows than lines.
        batch = decoder.attempt(text, ends)
        return batch if batch is not None and batch.num_rows == len(ids) else None

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        lines = self._lines(ids)
        batch = self._complete(self._whole_batch(_joined(lines), self._on_bad(ids)), ids, lines)
        return self._fill(self._with_folder_fields(batch), ids)

    def _complete(
        self, batch: pa.RecordBatch, ids: NDArray[np.int64], lines: Sequence[bytes]
    ) -> pa.RecordBatch:
        """Return a batch with a row for each record; a blank record, which has none, raises."""
        if batch.num_rows != len(ids):
            for number, line in zip(ids.tolist(), lines, strict=True):
                if not line.strip():
                    raise self._malformed(number, line, _BLANK)
        return batch

    def _schema_of(self, ids: NDArray[np.int64]) -> pa.Schema:
        # A bad line does not prevent a schema, nor does it matter that values become strings:
        # reading them raises, or warns.
        lines = _joined(self._lines(ids))
        batch = self._whole_batch(lines, lambda *_: None, warns=False)
        return self._with_folder_fields(batch).schema

    def _whole_batch(self, text: bytes, on_bad: OnBad, *, warns: bool = True) -> pa.RecordBatch:
        from penstock.decode import InferringDecoder  # noqa: PLC0415 (pyarrow)

        name = self.files[0] if len(self.files) == 1 else ""
        decoder = InferringDecoder(name=name, warns=warns, keeps_numbers=True)
        batch = decoder.settle(text, decoder.attempt(text), on_bad)
        if self._fields is None:
            return batch
        chosen = set(_names(self._fields))
        return batch.select([name for name in batch.schema.names if name in chosen])

    def _on_bad(self, ids: NDArray[np.int64]) -> OnBad:
        def fail(line_index: int, line: bytes, why: Exception) -> None:
            number = int(ids[line_index])
            if isinstance(why, SchemaMismatchError):
                text, details = self._described(number, line, why.fact.rstrip("."))
                raise SchemaMismatchError(text, remedy=HOLDS_ALL, **details) from None
            raise self._malformed(number, line, why) from None

        return fail

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_decode"], state["_decoders"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._prepare()


def _joined(lines: Sequence[bytes]) -> bytes:
    """Return lines as one text in which each ends with a newline, and none has another.

    A record of another tool's index may have newlines inside: a carriage return means the same in
    JSON, between values as well as inside of a string.
    """
    text = b"".join([line if line[-1:] == b"\n" else line + b"\n" for line in lines])
    if text.count(b"\n") == len(lines):
        return text
    return b"".join([line.removesuffix(b"\n").replace(b"\n", b"\r") + b"\n" for line in lines])


def _names(fields: Fields) -> list[str]:
    return list(getattr(fields, "names", fields))


def _projecting(fields: Fields) -> Callable[[bytes], Any]:
    """Return a decoder of just these fields into dicts."""
    names = _names(fields)
    if isinstance(fields, str) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"fields={fields!r}: expected names, or names with types.")
    types: dict[str, Any] = dict.fromkeys(names, Any)
    if not isinstance(fields, Sequence):
        from penstock.datasets.fields._grammar import arrow_type  # noqa: PLC0415 (pyarrow)

        kinds = (
            fields.items() if isinstance(fields, Mapping) else zip(names, fields.types, strict=True)
        )
        types = {name: _python_type(arrow_type(kind)) for name, kind in kinds}
    projected = TypedDict("projected", types, total=False)  # type: ignore[misc]
    return msgspec.json.Decoder(projected).decode


def _python_type(kind: pa.DataType) -> Any:
    import pyarrow as pa  # noqa: PLC0415 (only for types of Arrow)

    if pa.types.is_integer(kind):
        return int | None
    if pa.types.is_floating(kind):
        return float | None
    if pa.types.is_boolean(kind):
        return bool | None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str | None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return list[_python_type(kind.value_type)] | None  # type: ignore[misc]
    return Any
