"""Turns lines into the tokens of documents, many at a time; errors name the document."""

from __future__ import annotations

import io
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from penstock.decode import decode_line
from penstock.errors import MalformedLineError, PenstockError
from penstock.index._parts import FilePart, LongLine, opened_lines
from penstock.index.checked._checks import JSON_NAMES, Aside
from penstock.index.tokenizers._encoded import batches
from penstock.index.tokenizers._tokenizer import EachText
from penstock.index.tokens._pack import refuse_misfit
from penstock.jsonl import BOM, reason_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index._listing import Found
    from penstock.index._parts import LinePiece
    from penstock.index.tokenizers._encoded import Encoded, Tokenizer

_BATCH_BYTES = 512 << 10
"""Bytes of lines that are tokenised together; a longer document is alone."""


ProcessTextLineFunc: TypeAlias = Callable[[bytes], str]
"""A function from a line to its text."""


class BadText(Exception):  # noqa: N818 (reported where file and line are known)
    """A line has no text, for this reason."""


@dataclass(frozen=True, slots=True)
class TextField:
    """Takes the text of a JSON line from a field."""

    path: str = "text"
    """Name or path of the field; a field whose name is the whole path comes first."""

    def __call__(self, line: bytes) -> str:
        try:
            return _text_in(_object(line), self.path)
        except KeyError:
            raise BadText(f"no field {self.path!r}") from None
        except ValueError as why:
            raise BadText(reason_text(why)) from None


@dataclass(frozen=True, slots=True)
class TextCall:
    """Takes the text of a line from a function; it can be sent to processes if the function can."""

    function: ProcessTextLineFunc

    def __call__(self, line: bytes) -> str:
        try:
            text: object = self.function(line)
        except Exception as why:
            # The text of a `KeyError` is just a name.
            raise BadText(f"{type(why).__name__}: {why}".removesuffix(": ")) from why
        if not isinstance(text, str):
            name = getattr(self.function, "__name__", type(self.function).__name__)
            raise BadText(f"{name} returned {reprlib.repr(text)}, not a string")
        return text


def get_text_from_jsonl(
    jsonl_bytes: bytes, text_key: str = "text", text_encoding: str = "utf-8"
) -> str:
    r"""Return the text of one line of JSON.

    Raises `KeyError` if the field is missing, and `ValueError` if the line is no JSON object or the
    field no string.

    >>> get_text_from_jsonl(b'{"title": "caf\\u00e9"}', text_key="title")
    'café'
    """
    if text_encoding.casefold() not in {"utf-8", "utf8"}:
        jsonl_bytes = jsonl_bytes.decode(text_encoding).encode("utf-8", "surrogatepass")
    record = _object(jsonl_bytes)
    try:
        return _text_in(record, text_key)
    except KeyError:
        raise KeyError(f"no field {text_key!r} among {', '.join(map(repr, record))}") from None


def _object(line: bytes) -> dict[str, object]:
    """Return the object of a line; raise `ValueError` for anything else."""
    try:
        # All fields, though one is needed: skipping the others saves some thousandths of the time
        # of tokenising, and lets bad UTF-8 in them pass.
        record = decode_line(line)
    except ValueError:
        # Python's `json` reads bytes with a mark, and only text without.
        if not line.startswith(BOM):
            raise
        record = decode_line(line.removeprefix(BOM))
    if not isinstance(record, dict):
        raise ValueError(f"{JSON_NAMES[type(record)]}, not an object")  # noqa: TRY004 (bad data)
    return record


def _text_in(record: dict[str, object], path: str) -> str:
    """Return the text at a path in a record; raise `KeyError`, or `ValueError` for no text."""
    value: object = record
    for name in [path] if path in record else path.split("."):
        if not isinstance(value, dict):
            raise KeyError(name)
        value = value[name]
    if not isinstance(value, str):
        what = JSON_NAMES.get(type(value), "an object")
        raise ValueError(f"field {path!r} is {what}, not a string")  # noqa: TRY004 (bad data)
    return value


@dataclass(frozen=True, slots=True)
class TokenWork:
    """How lines become tokens; sent to every process once."""

    text: TextField | TextCall
    tokenizer: Tokenizer
    dtype: np.dtype[np.integer]
    eos: int | None
    """Token behind every document, if samples have one size."""
    skips: bool
    """Whether bad documents are set aside; else they raise."""


class DocumentMaker:
    """Turns the lines of one part of a file into tokens and lengths of documents."""

    def __init__(
        self,
        work: TokenWork,
        found: Found,
        write: Callable[[NDArray[np.integer], NDArray[np.int64]], object],
    ) -> None:
        self._work, self._found, self._write = work, found, write
        self.documents = self.tokens = 0
        self.aside: list[Aside] = []
        self._lines: list[bytes] = []
        self._offsets: list[int] = []
        """Of the lines, in their file."""
        self._newlines = 0
        """Before these lines."""

    def add(self, piece: LinePiece) -> None:
        """Add the next lines; blank ones are no documents."""
        # A single line may be huge: it is not copied.
        is_alone = piece.text.find(b"\n") in {-1, len(piece.text) - 1}
        self._lines = lines = [piece.text] if is_alone else io.BytesIO(piece.text).readlines()
        self._offsets = [*accumulate(map(len, lines), initial=piece.offset)]
        self._newlines = piece.newlines
        numbers = [number for number, line in enumerate(lines) if not line.isspace()]
        for some in batches(numbers, lambda number: len(lines[number]), _BATCH_BYTES):
            self._add(some)

    def _add(self, numbers: list[int]) -> None:
        texts, numbers = self._texts(numbers)
        encoded, numbers = self._encoded(texts, numbers)
        del texts  # A long text takes as much memory as the rest.
        ids, lengths = np.asarray(encoded.ids), np.asarray(encoded.lengths, np.int64)

        def place_of(at: int) -> str:
            return self._place(numbers[int(np.searchsorted(np.cumsum(lengths), at, "right"))])[1]

        refuse_misfit(ids, self._work.dtype, place_of, path=self._found.path)
        tokens = ids.astype(self._work.dtype, copy=False)
        if self._work.eos is not None:  # Behind each document.
            tokens, lengths = np.insert(tokens, np.cumsum(lengths), self._work.eos), lengths + 1
        self._write(tokens, lengths)
        self.documents += len(lengths)
        self.tokens += len(tokens)

    def _texts(self, numbers: list[int]) -> tuple[list[str], list[int]]:
        """Return the texts of lines, and the numbers of those lines."""
        texts: list[str] = []
        kept: list[int] = []
        for number in numbers:
            try:
                texts.append(self._work.text(self._lines[number]))
                kept.append(number)
            except BadText as bad:
                self._set_aside(number, str(bad), bad.__cause__)
        return texts, kept

    def _encoded(self, texts: list[str], numbers: list[int]) -> tuple[Encoded, list[int]]:
        """Return the tokens of texts, and the numbers of their lines."""
        try:
            return self._work.tokenizer.encode(texts), numbers
        except (OSError, MemoryError):
            raise
        except PenstockError as why:
            # The tokenizer returned no tokens at all: not the fault of a document.
            if isinstance(number := getattr(why, "number", None), int):
                why.add_note(f"Text {number} is in {self._place(numbers[number])[1]}.")
            raise
        except Exception:
            # One by one, to find the bad one.
            good = [n for n, text in enumerate(texts) if self._is_encoded(text, numbers[n])]
            if len(good) == len(texts):
                raise  # Each text by itself succeeds.
            kept = [texts[number] for number in good]
            return self._work.tokenizer.encode(kept), [numbers[number] for number in good]

    def _is_encoded(self, text: str, number: int) -> bool:
        try:
            self._work.tokenizer.encode([text])
        except Exception as why:
            half = _half_letter(text)
            if half or self._work.skips:
                reason = f"tokenizer: {type(why).__name__}: {why}"
                self._set_aside(number, f"its text holds {half}" if half else reason, why)
                return False
            why.add_note(
                f"Raised by the tokenizer for the text in {self._place(number)[1]}; "
                'on_error="skip" (--on-error skip) sets such documents aside.'
            )
            if isinstance(why, TypeError) and isinstance(self._work.tokenizer, EachText):
                why.add_note("One that takes a list of texts needs batched=True.")
            raise
        return True

    def _place(self, number: int) -> tuple[int, str]:
        """Return the number of a line in its file, and where it is."""
        offset = self._offsets[number]
        line, record = line_of(self._found, offset)
        return line, f"line {line:,} (record {record:,}, byte {offset:,}) of {self._found.path}"

    def _set_aside(self, number: int, reason: str, cause: BaseException | None) -> None:
        """Set a line aside, or raise the error for it."""
        if self._work.skips:
            newlines, size = self._newlines + number, len(self._lines[number])
            self.aside.append(Aside(newlines, self._offsets[number], size, reason))
            return
        line, place = self._place(number)
        raise MalformedLineError(
            f"{place} is no document: {reason}.",
            remedy="Repair it, name another field (text_key=), or set such lines aside: "
            'on_error="skip".',
            path=self._found.path,
            line_number=line,
        ) from cause


def _half_letter(text: str) -> str:
    """Return the lone surrogate of a text, and where it is; an empty text if there is none.

    JSON may have lone surrogates, and some tokenizers accept them.
    """
    try:
        text.encode()
    except UnicodeEncodeError as why:
        return f"\\u{ord(text[why.start]):04x} at character {why.start:,}, half of a letter"
    return ""


def line_of(found: Found, offset: int) -> tuple[int, int]:
    """Return the number of the line that begins at an offset, from 1, and of its record, from 0.

    It reads the file up to there, for an error message.
    """
    line = record = 0
    with opened_lines(FilePart(found, 0, found.entry.size), lambda _: None) as pieces:
        for piece in pieces:
            if isinstance(piece, LongLine):
                continue  # None is too long here.
            before = io.BytesIO(piece.text[: max(0, offset - piece.offset)]).readlines()
            line += len(before)
            record += sum(not one.isspace() for one in before)
            if piece.offset + len(piece.text) > offset:
                break
    return line + 1, record
