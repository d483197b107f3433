"""`Tokens`, an encoder: rows of a token source, or of a column, into inputs and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.batch._batch import Batch
from penstock.batch._field_encoder import BYTES
from penstock.batch._parts import tensor
from penstock.batch._token_arrays import (
    IGNORED,
    DocumentEnds,
    TokenRows,
    ends_behind,
    inputs_and_labels,
    segments,
)
from penstock.datasets import Source, TokenSource, is_tokens, schema_of, type_at
from penstock.decode import fit_batch
from penstock.errors import OptionError, SchemaMismatchError
from penstock.order import whole_number
from penstock.storage import is_remote

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from penstock.batch._encoder import BatchPosition

_FIELD = "tokens"
_TYPE = pa.list_(pa.int64())
_NULL = "is null, or holds null"


class Tokens:
    """Turns tokens into `input_ids` and `labels`, int64[B, length], for a language model.

    Labels that a loss should ignore are -100: the token after the last one, padding, tokens that a
    template of `penstock tokenize` leaves untrained, and rows that are not valid.

    Args:
        length: Tokens in a row. Token files are cut into windows of this length, so another length
            needs no new tokenisation. Samples packed by best fit, and views of samples, have a
            length already, which must be given.
        stride: Tokens from the beginning of one window to the next; `length` unless given. A
            smaller stride makes windows overlap.
        shift: Labels are the next token of each place; False makes them equal to the inputs, for
            models that shift by themselves.
        boundaries: Whether batches say where documents begin: `position_ids`, int64[B, length],
            which restart with every document, `cu_seqlens`, int32[documents + 1], over all rows
            one after the other (padding counts as a document), and `max_seqlen`. The last token of
            a document then has no label. By default they are there where no token separates
            documents: in samples packed by best fit, and in documents tokenised one by one. True
            and False decide it; a number is the token that ends documents.
        field: The column of tokens, for sources that are no token files: lists of up to `length`
            tokens, or one more with `shift`.
        token_dtype: The integers of a column that holds tokens as bytes, as LLM Foundry writes them
            into MDS: `"int64"`, `"uint16"`; little-endian, except for types such as `">u2"`.

    >>> from penstock.batch import BatchPosition
    >>> columns = pa.record_batch({"tokens": [[5, 6, 7, 8], [9, 0, 4]]})
    >>> where = BatchPosition(seed=0, epoch=0, positions=np.arange(2), ids=np.array([7, 3]))
    >>> batch = Tokens(3, boundaries=0).encode(columns, where)
    >>> batch["input_ids"].tolist(), batch["labels"].tolist()
    ([[5, 6, 7], [9, 0, 4]], [[6, 7, 8], [0, -100, -100]])
    >>> batch["position_ids"].tolist(), batch["cu_seqlens"].tolist(), batch["max_seqlen"]
    ([[0, 1, 2], [0, 1, 0]], [0, 3, 5, 6], 3)
    """

    def __init__(  # noqa: PLR0913 (options by name)
        self,
        length: int,
        stride: int | None = None,
        shift: bool = True,  # noqa: FBT001, FBT002 (as the surface has it)
        boundaries: bool | int | None = None,  # noqa: FBT001 (likewise)
        *,
        field: str = _FIELD,
        token_dtype: DTypeLike | None = None,
    ) -> None:
        self.length = whole_number("length", length, 1)
        self.stride = None if stride is None else whole_number("stride", stride, 1)
        if not isinstance(shift, bool | np.bool_):
            raise OptionError(f"shift={shift!r}: expected True or False.")
        self.shift = bool(shift)
        if boundaries is not None and not isinstance(boundaries, bool):
            try:
                boundaries = whole_number("boundaries", boundaries, 0)
            except OptionError as why:
                why.advise("True, False and None are possible, too.")
                raise
        self.boundaries = boundaries
        self.field = field
        self.token_dtype = None if token_dtype is None else _integers(token_dtype)

    def bind(self, source: Source) -> tuple[Source, Tokens | TokenDocuments]:
        """Return tokens, or the records of a column, and what encodes them; see `Encoder`."""
        if not is_tokens(source):
            self._check_column(source)
            return source, self
        rows = self.over(source)
        has_documents = self._end is not None or self._needs_ends(rows)
        return rows, (TokenDocuments if has_documents else TokenWindows)(self)

    # Over token sources.

    def over(self, source: Source) -> TokenSource:
        """Return what a loader goes over, if it is there: windows, or samples as they are."""
        if not is_tokens(source):
            raise OptionError(
                f"{source!r} holds no tokens. Make some: penstock tokenize SRC DST; or, if a field "
                f"{self.field!r} has them, give the source to a DataLoader with encode={self}."
            )
        self._check_fits(source)
        rows = source.each(partial(self._rows_of, ahead=int(self.shift)))
        if rows.sample_size is None:
            # Of joined sources, some have no token ahead: then none has one.
            rows = source.each(partial(self._rows_of, ahead=0))
        if self._needs_ends(rows) and rows.document_ends(np.zeros(0, np.int64)) is None:
            raise OptionError(
                f"boundaries={self.boundaries}: the ends of documents are not known for these "
                "tokens, or for some of them. Give the token that ends them, as in boundaries=0, "
                "or do without: boundaries=False."
            )
        return rows

    def _check_fits(self, source: TokenSource) -> None:
        """Raise for options of columns, and for an end token beyond the range of tokens."""
        if self.token_dtype is not None or self.field != _FIELD:
            raise OptionError(
                f"{self}: field and token_dtype are for columns of records, and these are tokens "
                "already. Leave them out."
            )
        most = np.iinfo(source.token_dtype).max
        if self._end is not None and self._end > most:
            raise OptionError(
                f"boundaries={self.boundaries}: no {source.token_dtype.name} token is more than "
                f"{most}. Give the token that ends documents."
            )

    @property
    def _end(self) -> int | None:
        """The token that ends documents, where one was given."""
        is_token = self.boundaries is not None and not isinstance(self.boundaries, bool)
        return self.boundaries if is_token else None

    def _needs_ends(self, source: TokenSource) -> bool:
        """Whether the known ends of documents are used."""
        return source.keeps_apart if self.boundaries is None else self.boundaries is True

    def _rows_of(self, source: TokenSource, ahead: int) -> TokenSource:
        """Return windows; or samples that do not follow each other, if they are wide enough."""
        if source.is_stream:
            return source.windows(self.length, self.stride, ahead=ahead)
        size = source.sample_size
        if self.stride is None and size in (self.length, self.length + self.shift):
            return source
        have = "have lengths of their own" if size is None else f"have {size:,} tokens each"
        fitting = "" if size is None else f" Ask for Tokens({size}), without a stride; or"
        raise OptionError(
            f"{self}: these samples {have} and do not follow each other (they were packed by best "
            f"fit, chosen, or are windows already).{fitting} Choose among windows of the source "
            "that they come from: source.windows(length, stride, ahead=1)."
        )

    def rows(self, source: TokenSource, ids: NDArray[np.int64]) -> TokenRows:
        """Return the rows of what `over` returned, with the ends of documents if those matter."""
        found = source.document_ends(ids) if self._needs_ends(source) else None
        ends = None if found is None else DocumentEnds(*found)
        rows = TokenRows(source.read(ids), source.lengths(ids), ends, source.trained(ids))
        return self._with_ends(rows)

    def _with_ends(self, rows: TokenRows) -> TokenRows:
        if self._end is None:
            return rows
        return replace(rows, ends=ends_behind(rows.tokens, rows.lengths, self._end))

    def arrays_of(self, rows: TokenRows) -> dict[str, Any]:
        """Return plain arrays, owned and writable: what `batch` takes."""
        inputs, labels = inputs_and_labels(rows, self.length, shift=self.shift)
        arrays: dict[str, Any] = {"input_ids": inputs, "labels": labels}
        if rows.ends is not None:
            arrays |= segments(rows.ends, self.length)
        return arrays

    # Over columns: the contract of `Encoder`.

    def _check_column(self, source: Source) -> None:
        """Raise where the source has no column of these tokens."""
        if self.stride is not None:
            raise OptionError(
                f"stride={self.stride}: a record of a column is a row. Leave the stride out."
            )
        if not isinstance(source, Source):
            return  # Records that flow are known when they come.
        lies_remote = any(map(is_remote, source.files))
        if not len(source) or (lies_remote and not source.schema_is_complete):
            return  # Nothing is fetched now.
        type_ = type_at(schema_of(source, [self.field]), self.field)
        if type_ is None or type_ == pa.null():
            raise OptionError(
                f"the records have no field {self.field!r} with tokens. Make some of their text: "
                "penstock tokenize SRC DST; or name the field: Tokens(…, field='input_ids')."
            )
        holds_bytes = type_.id in BYTES
        if holds_bytes != (self.token_dtype is not None):
            raise OptionError(
                f"the field {self.field!r} holds bytes: say of which integers, as in "
                "Tokens(…, token_dtype='int64'), which LLM Foundry writes."
                if holds_bytes
                else f"token_dtype is for tokens that are kept as bytes, and the field "
                f"{self.field!r} is {type_}. Leave it out."
            )

    @property
    def fields(self) -> dict[str, pa.DataType]:
        """The column to read, where a source has columns."""
        return {self.field: _TYPE if self.token_dtype is None else pa.binary()}

    def arrays(self, columns: pa.RecordBatch, where: BatchPosition) -> dict[str, Any]:
        """Return plain arrays of a column of lists."""
        if self.boundaries is True:
            raise OptionError(
                "boundaries=True: a column does not say where documents end. Give the token that "
                "ends them, as in boundaries=0."
            )
        schema = pa.schema(self.fields)
        if not columns.schema.equals(schema):
            columns = fit_batch(columns, schema, where.ids)
        column = columns.column(0)
        if column.null_count:  # The values behind a null are undefined.
            raise self._mismatch(where, int(column.is_null().index(True).as_py()), _NULL)
        if self.token_dtype is not None:
            column = self._out_of_bytes(column, self.token_dtype, where)
        lengths = np.diff(column.offsets.to_numpy()).astype(np.int64)
        values = column.flatten()
        if values.null_count:
            rows = pc.list_parent_indices(column).filter(values.is_null())
            raise self._mismatch(where, rows[0].as_py(), _NULL)
        width = self.length + self.shift
        if len(lengths) and lengths.max() > width:
            kind = "" if self.token_dtype is None else f", if they are {self.token_dtype.name}"
            fact = f"has more than {width} tokens{kind}. Give the length or token_dtype they have"
            raise self._mismatch(where, int((lengths > width).argmax()), fact)
        tokens = np.zeros((len(column), width), np.int64)
        tokens[np.arange(width) < lengths[:, None]] = values.to_numpy()
        return self.arrays_of(self._with_ends(TokenRows(tokens, lengths, None)))

    def _out_of_bytes(
        self, column: pa.Array, dtype: np.dtype[Any], where: BatchPosition
    ) -> pa.ListArray:
        """Return the integers that bytes hold, as lists."""
        _, borders, memory = column.buffers()
        borders = np.frombuffer(borders, np.int32)[column.offset :][: len(column) + 1]
        bad = np.flatnonzero(np.diff(borders) % dtype.itemsize)
        if len(bad):
            fact = f"holds no whole number of {dtype.name} tokens"
            raise self._mismatch(where, int(bad[0]), f"{fact}. Give the token_dtype they have")
        first, last = (int(borders[0]), int(borders[-1])) if len(borders) else (0, 0)
        values = np.frombuffer(memory or b"", np.uint8)[first:last].view(dtype).astype(np.int64)
        offsets = pa.array((borders - first) // dtype.itemsize, pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.array(values))

    def _mismatch(self, where: BatchPosition, row: int, fact: str) -> SchemaMismatchError:
        record = int(where.ids[row])
        text = f"record {record:,}: field {self.field!r} {fact}"
        return SchemaMismatchError(text, field=self.field, record=record)

    def batch(
        self,
        arrays: Mapping[str, Any],
        where: BatchPosition,
        valid: NDArray[np.bool_] | None = None,
    ) -> Batch:
        """Return the batch of arrays: tensors over the same memory."""
        if valid is not None:
            arrays["labels"][~np.asarray(valid)] = IGNORED
        fields = {
            name: tensor(value) if isinstance(value, np.ndarray) else value
            for name, value in arrays.items()
        }
        return Batch(fields, where.ids, valid)

    def encode(self, columns: pa.RecordBatch, where: BatchPosition) -> Batch:
        """Return the batch of a column of lists, a row for each."""
        return self.batch(self.arrays(columns, where), where)

    def describe(self) -> str:
        """Return one sentence for `explain()`."""
        return f"input_ids and labels of {self.length:,} tokens: {self}"

    def __repr__(self) -> str:
        usual = {"stride": None, "shift": True, "boundaries": None, "field": _FIELD}
        options = {name: getattr(self, name) for name in usual}
        changed = [f"{name}={value!r}" for name, value in options.items() if value != usual[name]]
        given = [str(self.length), *changed]
        if self.token_dtype is not None:
            dtype = self.token_dtype
            given.append(f"token_dtype={dtype.str if dtype.byteorder == '>' else dtype.name!r}")
        return f"Tokens({', '.join(given)})"


class TokenDocuments:
    """`Tokens` over a token source: rows are read as tokens; the batch says where documents are."""

    has_even_rows = True
    fields: ClassVar[dict[str, pa.DataType]] = {}

    def __init__(self, tokens: Tokens) -> None:
        self._arrays_of = tokens.arrays_of
        self.read, self.batch, self.describe = tokens.rows, tokens.batch, tokens.describe

    def arrays(self, rows: TokenRows, where: BatchPosition) -> dict[str, Any]:
        """Return plain arrays, owned and writable."""
        return self._arrays_of(rows)


class TokenWindows(TokenDocuments):
    """The same without documents: every array has a row for each record, so that it can be cut."""

    def part(self, arrays: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
        """Return some rows of what `arrays` made, without a copy."""
        return {name: array[start:stop] for name, array in arrays.items()}


def _integers(given: DTypeLike) -> np.dtype[Any]:
    try:
        dtype = np.dtype(given)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "iu" or np.iinfo(dtype).max > np.iinfo(np.int64).max:
        raise OptionError(
            f"token_dtype={given!r}: expected integers that int64 holds, as in 'int64', 'uint16'."
        )
    return dtype if dtype.byteorder == ">" else dtype.newbyteorder("<")
