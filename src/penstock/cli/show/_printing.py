"""Records and samples of tokens as text or JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click
import numpy as np

from penstock._redact import without_secrets
from penstock.cli._terminal import as_text, echo, echo_json, without_nonfinite
from penstock.cli._units import counted
from penstock.datasets import Source, TokenSource, is_tokens
from penstock.errors import MalformedLineError, OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.cli._by_number import ByNumber
    from penstock.cli._stream import Record
    from penstock.index import NamedTokenizer

_log = logging.getLogger("penstock.cli")
_STEP = 256
_TOKENS = "tokens"
_HEAD, _TAIL = 24, 8
"""Tokens of a sample that a terminal shows."""


class TokenSample(NamedTuple):
    """One sample, its number, and where it lies."""

    number: int
    place: str
    tokens: NDArray[np.integer]
    """Padding included."""
    length: int
    """Tokens without padding."""
    ends: Sequence[int] | None
    """Ends of its documents; None where they are not known."""
    goes_on: bool = False
    """Whether the index says that its document goes on in the next sample."""

    @property
    def padding(self) -> int:
        """Tokens of padding."""
        return len(self.tokens) - self.length

    def documents(self, eos: int | None) -> list[NDArray[np.integer]]:
        """Return the tokens of each document in it, or of each piece of one.

        Where the index does not know the ends, the token decides that ends documents.
        """
        tokens = self.tokens[: self.length]
        ends = self.ends
        if ends is None:
            ends = [] if eos is None else (np.flatnonzero(tokens == eos) + 1).tolist()
        parts = np.split(tokens, ends)
        return parts if len(parts[-1]) else parts[:-1]


def samples_of(
    opened: ByNumber, numbers: Sequence[int], field: str | None = None
) -> Iterator[TokenSample]:
    """Yield samples in the order asked; of records with fields the tokens of one field."""
    source = opened.source
    if not is_tokens(source):
        yield from _samples_of_field(opened, numbers, token_field(source, field, opened.path))
        return
    if field is not None:
        raise OptionError(f"--fields: {opened.path} holds tokens, which have no fields.")
    for ids in _steps(numbers):
        lengths, found = source.lengths(ids), source.document_ends(ids)
        goes_on = _going_on(source, ids)
        for row, (number, tokens) in enumerate(zip(ids.tolist(), source.read(ids), strict=True)):
            ends = None
            if found is not None:
                values, offsets = found
                ends = values[offsets[row] : offsets[row + 1]].tolist()
            place, length = opened.place(number), int(lengths[row])
            yield TokenSample(number, place, tokens, length, ends, bool(goes_on[row]))


def _going_on(source: TokenSource, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each sequence of Megatron-LM whether its document goes on in the next one.

    In other sources the token that ends documents shows it.
    """
    goes_on = np.zeros(len(ids), bool)
    if source.documents in (None, len(source)) or not source.is_stream:
        return goes_on
    # The file is the stream, so an offset in bytes gives that of a token.
    begins = np.asarray(source.location(ids).offset) // source.token_dtype.itemsize
    last = begins + source.lengths(ids) - 1
    pairs = source.windows(2, 1)
    inside = (last >= 0) & (last < len(pairs))
    ends = pairs.document_ends(last[inside])
    goes_on[inside] = False if ends is None else np.diff(ends[1]) == 1
    return goes_on


def _samples_of_field(
    opened: ByNumber, numbers: Sequence[int], field: str
) -> Iterator[TokenSample]:
    for ids in _steps(numbers):
        column = opened.source.read(ids, [field]).column(0).to_pylist()
        for number, values in zip(ids.tolist(), column, strict=True):
            tokens = np.array(values or [], np.int64)
            yield TokenSample(number, opened.place(number), tokens, len(tokens), None)


def _steps(numbers: Sequence[int]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(numbers), _STEP):
        yield np.array(numbers[start : start + _STEP], np.int64)


def token_field(source: Source, wanted: str | None, path: str) -> str:
    """Return the field that holds tokens: the named one, `tokens`, or the only integers."""
    import pyarrow as pa  # noqa: PLC0415 (only for records with fields)

    found = [
        field.name
        for field in source.schema
        if pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type)
        if pa.types.is_integer(field.type.value_type)
    ]
    if wanted is not None or _TOKENS in found:
        found = [name for name in found if name == (wanted or _TOKENS)]
    if len(found) == 1:
        return str(found[0])
    there = ", ".join(f"{field.name} ({field.type})" for field in source.schema)
    raise OptionError(
        f"--decode: expected one field of {path} to be a list of integers; there are: {there}. "
        "Name it: --fields NAME"
    )


class PrintedTokens:
    """Prints samples as they come, or collects them for one JSON array."""

    def __init__(self, eos: int | None, tokenizer: str | None, *, as_json: bool) -> None:
        self._decoder: NamedTokenizer | None = None
        if tokenizer is not None:
            from penstock.index import load_tokenizer  # noqa: PLC0415 (only with --decode)

            self._decoder = load_tokenizer(tokenizer)
        self._eos = eos
        self._ends_all = eos is not None
        """Whether every document ends with EOS: a piece without it goes on elsewhere."""
        if eos is None and self._decoder is not None:
            self._eos = self._decoder.eos
        self._document: list[object] | None = [] if as_json else None
        self.count = 0

    def add_all(self, samples: Iterator[TokenSample]) -> None:
        """Print samples, each with its number and its place."""
        for sample in samples:
            self.count += 1
            if self._document is None:
                text = self._text(sample) if self._decoder else ids_text(sample.tokens)
                place = without_secrets(sample.place)
                echo(f"# {sample.number} – {place}: {_facts(sample)}\n{text}")
            elif self._decoder is None:
                self._document.append(sample.tokens.tolist())
            else:
                self._document.append(
                    {
                        "tokens": sample.tokens.tolist(),
                        "documents": [self._decoded(one) for one in sample.documents(self._eos)],
                        "padding": sample.padding,
                    }
                )

    def finish(self) -> None:
        """Print the array, a sample a line."""
        if self._document is not None:
            lines = ",\n".join(map(json.dumps, self._document))
            click.echo(f"[{lines}]")

    def _decoded(self, tokens: NDArray[np.integer]) -> str:
        """Return the text of a document, without the token that ends it."""
        assert self._decoder is not None  # noqa: S101 (asked only then)
        if self._is_ended(tokens):
            tokens = tokens[:-1]
        known = self._decoder.vocabulary
        if len(tokens) and int(tokens.max()) >= known:
            raise OptionError(
                f"--decode: token {int(tokens.max())} is none of the {known:,} of this tokenizer. "
                "Give the one that the text was tokenised with."
            )
        return self._decoder.decode(tokens.tolist())

    def _is_ended(self, tokens: NDArray[np.integer]) -> bool:
        return self._eos is not None and bool(len(tokens)) and int(tokens[-1]) == self._eos

    def _text(self, sample: TokenSample) -> str:
        """Return the text of a sample, with marks for the ends of documents and for padding."""
        lines: list[str] = []
        documents = sample.documents(self._eos)
        for number, tokens in enumerate(documents, 1):
            lines.append(self._decoded(tokens).encode("utf-8", "backslashreplace").decode())
            if sample.goes_on and number == len(documents):
                lines.append("── goes on in the next sample ──")
            elif self._is_ended(tokens):
                lines.append("── end of document ──")
            elif self._ends_all:
                lines.append("── goes on in another sample ──")
        if sample.padding:
            lines.append(f"── {counted(sample.padding, 'token')} of padding ──")
        return "\n".join(lines)


def _facts(sample: TokenSample) -> str:
    text = counted(len(sample.tokens), "token")
    if sample.goes_on:
        text += ", a part of a document"
    elif sample.ends is not None:
        text += f", {counted(len(sample.ends), 'document')}"
    return text + (f", {sample.padding:,} of padding" if sample.padding else "")


def ids_text(tokens: NDArray[np.integer]) -> str:
    """Return the tokens of a sample; in a terminal only the first and last ones."""
    ids = tokens.tolist()
    if len(ids) <= _HEAD + _TAIL + 1 or not sys.stdout.isatty():
        return str(ids)
    head, tail = (", ".join(map(str, some)) for some in (ids[:_HEAD], ids[-_TAIL:]))
    return f"[{head}, … {len(ids) - _HEAD - _TAIL:,} more …, {tail}]"


class Printed:
    """Prints records as they come, or collects them for one JSON array."""

    def __init__(self, fields: list[str] | None, *, as_json: bool) -> None:
        self._fields = fields
        self._missing = set(fields or ())
        self._document: list[object] | None = [] if as_json else None
        self._nonfinite = False
        self.count = 0

    def add_all(self, records: Iterator[Record]) -> None:
        """Print records, each with its number and its place."""
        for record in records:
            self.count += 1
            value = record.value
            if self._fields is not None:
                value = {name: pick(value, name) for name in self._fields}
                self._missing -= {name for name, picked in value.items() if picked is not None}
            try:
                self._add(record, value)
            except RecursionError:
                what = f"{record.number} – {record.place} is nested too deeply to be shown"
                raise MalformedLineError(f"{what}; --fields shows parts.") from None

    def _add(self, record: Record, value: object) -> None:
        if isinstance(value, np.ndarray):
            text = ids_text(value)
        else:
            text = json.dumps(value, indent=2, ensure_ascii=False, default=as_text)
        if self._document is None:
            # A lone surrogate cannot be printed; its escape is the text of the file.
            printable = text.encode("utf-8", "backslashreplace").decode()
            echo(f"# {record.number} – {without_secrets(record.place)}\n{printable}")
            return
        try:
            json.dumps(value, allow_nan=False, default=as_text)
        except ValueError:
            self._nonfinite = True
            value = without_nonfinite(value)
        self._document.append(value)

    def finish(self) -> None:
        """Print the array, and warn of replaced and missing values."""
        if self._document is not None:
            echo_json(self._document)
        if self._nonfinite:
            _log.warning("NaN and infinities are shown as null, because JSON has neither")
        if self.count and self._missing:
            _log.warning("none of the records shown has %s", ", ".join(sorted(self._missing)))


def pick(value: object, path: str) -> object:
    """Return the value at a path of a record; None where there is none.

    >>> record = {"user": {"age": 42}, "items": [{"price": 1}, {"price": 2}], "a.b": 3}
    >>> pick(record, "user.age"), pick(record, "items[].price"), pick(record, "a.b")
    (42, [1, 2], 3)
    """
    if isinstance(value, dict) and path in value:
        return value[path]  # Also a key that has a dot in its name.
    head, dot, rest = path.partition(".")
    key, is_list, _ = head.partition("[]")
    inner = value.get(key) if isinstance(value, dict) else None
    if is_list:
        if not isinstance(inner, list):
            return None
        return [pick(item, rest) for item in inner] if dot else inner
    return pick(inner, rest) if dot else None
