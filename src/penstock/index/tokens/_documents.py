"""Turns lines or records into the tokens of documents, many at a time; errors name the document."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from penstock.errors import MalformedLineError, PenstockError
from penstock.index._parts import FilePart, LinePiece, opened_lines
from penstock.index.checked._checks import Aside
from penstock.index.tokenizers._encoded import Encoded, PartsTokenizer, Tokenizer, batches
from penstock.index.tokenizers._tokenizer import EachText
from penstock.index.tokens._pack import refuse_misfit
from penstock.index.tokens._texts import BadText, Document, DocumentText

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index._listing import Found

    Write: TypeAlias = Callable[
        [NDArray[np.integer], NDArray[np.int64], NDArray[np.bool_] | None], object
    ]
    """Called with tokens, the length of each document, and which tokens are trained."""

BATCH_BYTES = 512 << 10
"""Bytes of lines that are tokenised together; a longer document is alone."""


@dataclass(frozen=True, slots=True)
class TokenWork:
    """How lines become tokens; sent to every process once."""

    text: DocumentText
    tokenizer: Tokenizer | PartsTokenizer
    """Of parts where documents are in parts."""
    dtype: np.dtype[np.integer]
    eos: int | None
    """Token behind every document, if samples have one size."""
    skips: bool
    """Whether bad documents are set aside; else they raise."""


class TokenProbe(NamedTuple):
    """The first documents of an input."""

    tokenise: Callable[[TokenWork, Write], object]
    share: float
    """How many times as much the whole input is."""


class DocumentMaker(ABC):
    """Turns what texts are made of into tokens and lengths of documents."""

    path = ""
    """Of the file, for errors."""

    def __init__(self, work: TokenWork, write: Write) -> None:
        self._work, self._write = work, write
        self.documents = self.tokens = 0
        self.trained: int | None = 0 if work.text.is_masked else None
        """Trained tokens, where documents are in parts."""
        self.aside: list[Aside] = []

    @abstractmethod
    def _text(self, number: int) -> Document:
        """Return the document of a line or record at hand, or raise `BadText`."""

    @abstractmethod
    def _place(self, number: int) -> tuple[int, str]:
        """Return the number of a line in its file, from 1, and where it is."""

    @abstractmethod
    def _aside(self, number: int, reason: str) -> Aside:
        """Return the note of a line or record that is no document."""

    def _add(self, numbers: list[int]) -> None:
        texts, numbers = self._texts(numbers)
        encoded, numbers = self._encoded(texts, numbers)
        del texts  # A long text takes as much memory as the rest.
        ids, lengths = np.asarray(encoded.ids), np.asarray(encoded.lengths, np.int64)

        def place_of(at: int) -> str:
            return self._place(numbers[int(np.searchsorted(np.cumsum(lengths), at, "right"))])[1]

        refuse_misfit(ids, self._work.dtype, place_of, path=self.path)
        tokens = ids.astype(self._work.dtype, copy=False)
        trained = encoded.trained
        if self._work.eos is not None:  # Behind each document.
            ends = np.cumsum(lengths)
            tokens, lengths = np.insert(tokens, ends, self._work.eos), lengths + 1
            if trained is not None and encoded.ends is not None:
                trained = np.insert(trained, ends, encoded.ends)
        self._write(tokens, lengths, trained)
        self.documents += len(lengths)
        self.tokens += len(tokens)
        if self.trained is not None and trained is not None:
            self.trained += int(trained.sum())

    def _texts(self, numbers: list[int]) -> tuple[list[Document], list[int]]:
        """Return documents, and the numbers of their lines."""
        texts: list[Document] = []
        kept: list[int] = []
        for number in numbers:
            try:
                texts.append(self._text(number))
                kept.append(number)
            except BadText as bad:
                self._set_aside(number, str(bad), bad.__cause__)
        return texts, kept

    def _tokens_of(self, texts: Sequence[Document]) -> Encoded:
        # The work has a tokenizer of such documents as its text makes.
        return self._work.tokenizer.encode(texts)  # type: ignore[arg-type]

    def _encoded(self, texts: list[Document], numbers: list[int]) -> tuple[Encoded, list[int]]:
        """Return the tokens of texts, and the numbers of their lines."""
        try:
            return self._tokens_of(texts), numbers
        except (OSError, MemoryError):
            raise
        except PenstockError as why:
            # The tokenizer returned no tokens at all: not the fault of a document.
            if isinstance(number := getattr(why, "number", None), int) and number < len(numbers):
                why.add_note(f"Text {number} is in {self._place(numbers[number])[1]}.")
            raise
        except Exception:
            # One by one, to find the bad one.
            good = [n for n, text in enumerate(texts) if self._is_encoded(text, numbers[n])]
            if len(good) == len(texts):
                raise  # Each text by itself succeeds.
            return self._tokens_of([texts[n] for n in good]), [numbers[n] for n in good]

    def _is_encoded(self, text: Document, number: int) -> bool:
        try:
            self._tokens_of([text])
        except Exception as why:
            whole = text if isinstance(text, str) else "".join(part for part, _ in text)
            half = _half_letter(whole)
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

    def _set_aside(self, number: int, reason: str, cause: BaseException | None) -> None:
        """Set a line aside, or raise the error for it."""
        if self._work.skips:
            self.aside.append(self._aside(number, reason))
            return
        line, place = self._place(number)
        raise MalformedLineError(
            f"{place} is no document: {reason}.",
            remedy="Repair it, name other fields (text_key=, template=, of a chat messages=), or "
            'set such lines aside: on_error="skip".',
            path=self.path,
            line_number=line,
        ) from cause


class LineDocuments(DocumentMaker):
    """Documents of the lines of one part of a file."""

    def __init__(self, work: TokenWork, found: Found, write: Write) -> None:
        super().__init__(work, write)
        self._found, self.path = found, found.path
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
        for some in batches(numbers, lambda number: len(lines[number]), BATCH_BYTES):
            self._add(some)

    def _text(self, number: int) -> Document:
        return self._work.text(self._lines[number])

    def _place(self, number: int) -> tuple[int, str]:
        offset = self._offsets[number]
        line, record = line_of(self._found, offset)
        return line, f"line {line:,} (record {record:,}, byte {offset:,}) of {self.path}"

    def _aside(self, number: int, reason: str) -> Aside:
        newlines, size = self._newlines + number, len(self._lines[number])
        return Aside(newlines, self._offsets[number], size, reason)


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
            before = io.BytesIO(piece.text[: max(0, offset - piece.offset)]).readlines()
            line += len(before)
            record += sum(not one.isspace() for one in before)
            if piece.offset + len(piece.text) > offset:
                break
    return line + 1, record
