"""Tokenising as units of work, and the tokens of all units as one stream."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np

from penstock.index._parts import PartsUnit, opened_lines
from penstock.index.checked._checks import Aside  # noqa: TC001 (msgspec reads it)
from penstock.index.tokens._documents import LineDocuments
from penstock.storage import Draft, keep_tokenizers_to_one_thread
from penstock.work import Shared, UnitResults, grouped

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from penstock.index.checked._checks import BadLine
    from penstock.index.tokens._documents import DocumentMaker, TokenProbe, TokenWork, Write

_LENGTH = np.dtype("<i8")
_DOCUMENTS_AT_ONCE = 1 << 20


class TokensFound(msgspec.Struct):
    """What became of a part of a file."""

    documents: Annotated[int, msgspec.Meta(ge=0)]
    tokens: Annotated[int, msgspec.Meta(ge=0)]
    aside: list[Aside]
    newlines: int
    trained: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Tokens that are trained; None: all, and no flags are stored."""

    @classmethod
    def of(cls, maker: DocumentMaker, newlines: int = 0) -> TokensFound:
        return cls(maker.documents, maker.tokens, maker.aside, newlines, maker.trained)


class UnitTokens(NamedTuple):
    """The documents of a unit."""

    tokens: NDArray[Any]
    lengths: NDArray[np.int64]
    """Of each document."""
    trained: NDArray[np.bool_] | None
    """Which tokens are trained; None: all."""


@dataclass(frozen=True)
class TokenUnit(PartsUnit):
    """Parts that are tokenised.

    The result is tokens, int64[documents] lengths, bool[tokens] flags of the trained ones where
    documents are in parts, and `TokensFound`s.
    """

    shared: Shared[Any]

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        behind: tuple[list[bytes], list[bytes]] = [], []

        def add(
            tokens: NDArray[np.integer],
            lengths: NDArray[np.int64],
            trained: NDArray[np.bool_] | None,
        ) -> None:
            draft.write(np.ascontiguousarray(tokens).view(np.uint8).data)
            behind[0].append(lengths.astype(_LENGTH, copy=False).tobytes())
            behind[1].append(b"" if trained is None else trained.tobytes())

        found = [self._tokenised(part, add, advance) for part in self.parts]
        for some in chain(*behind):
            draft.write(some)
        self.describe(draft, found)

    def _tokenised(
        self,
        part: Any,  # noqa: ANN401 (of a kind of unit)
        add: Write,
        advance: Callable[[int], object],
    ) -> TokensFound:
        """Tokenise a part of a file of lines."""
        maker = LineDocuments(self.shared.value, part.found, add)
        with opened_lines(part, advance) as lines:
            for piece in lines:
                maker.add(piece)
        return TokensFound.of(maker, lines.newlines)

    def found(self) -> list[TokensFound]:
        return self.opened(list[TokensFound])[2]

    def result_of(self, dtype: np.dtype[np.integer]) -> UnitTokens:
        """Return the documents."""
        data, size, parts = self.opened(list[TokensFound])
        count = sum(part.tokens for part in parts)
        documents = sum(part.documents for part in parts)
        flags = count * any(part.trained is not None for part in parts)
        behind = count * dtype.itemsize, count * dtype.itemsize + documents * _LENGTH.itemsize
        if behind[1] + flags > size:
            raise self.damaged("its description names other tokens than it holds")
        return UnitTokens(
            np.frombuffer(data, dtype, count),
            np.frombuffer(data, _LENGTH, documents, behind[0]),
            np.frombuffer(data, np.bool_, flags, behind[1]) if flags else None,
        )


class TextInput(ABC):
    """What is tokenised, in texts one after the other; each becomes a token file."""

    unit: ClassVar[type[TokenUnit]] = TokenUnit

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Relative paths of the texts, which name their token files."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Of all texts, as they are stored; an estimate where that is not known."""

    @property
    def files(self) -> int:
        """Files that are read."""
        return len(self.names)

    @property
    def folder(self) -> str | None:
        """The folder of the texts, where tokens may go by default."""
        return None

    @property
    def in_memory(self) -> bool:
        """Whether worker processes would get all records sent to them."""
        return False

    @abstractmethod
    def again(self) -> TextInput:
        """Return the same as it is now."""

    @abstractmethod
    def refuse_changed(self) -> None:
        """Raise if something changed since."""

    @abstractmethod
    def key(self) -> object:
        """Return what changes with the texts, in JSON types; None where that is unknown."""

    @abstractmethod
    def probes(self) -> Iterator[TokenProbe]:
        """Yield first documents; later ones count where earlier ones have no tokens."""

    def shared(self, work: TokenWork) -> object:
        """Return what the units of the work have in common."""
        return work

    @abstractmethod
    def parts(self, unit_bytes: int) -> list[Any]:
        """Return the texts in parts of about one size."""

    def units(self, folder: str, work: TokenWork, unit_bytes: int) -> list[TokenUnit]:
        """Return units of about equal size: large texts in several, small ones together."""
        results = UnitResults(folder)
        shared = Shared(self.shared(work), keep_tokenizers_to_one_thread)
        groups = enumerate(grouped(self.parts(unit_bytes), unit_bytes))
        return [self.unit(results, number, group, shared) for number, group in groups]

    @abstractmethod
    def number_of(self, part: Any) -> int:  # noqa: ANN401 (of its own units)
        """Return the number of the text that a part of a unit belongs to."""


class TokenStream:
    """The documents of all text files, in order."""

    def __init__(
        self, units: Sequence[TokenUnit], texts: TextInput, dtype: np.dtype[np.integer]
    ) -> None:
        self.dtype = dtype
        self.trained: int | None = None
        """Tokens that are trained; None: all."""
        self.aside: list[BadLine] = []
        """The lines that are no documents."""
        self._units = units
        self._starts = [0]
        # Of the parts of each file: the unit, the first token in the stream, documents in the unit.
        self._places: list[list[tuple[int, int, range]]] = [[] for _ in texts.names]
        tokens, documents = np.zeros((2, len(texts.names) + 1), np.int64)
        newlines = [0] * len(texts.names)
        for number, unit in enumerate(units):
            start, first = self._starts[-1], 0
            for of, part in zip(unit.parts, unit.found(), strict=True):
                file = texts.number_of(of)
                documents_here = range(first, first + part.documents)
                self._places[file].append((number, start, documents_here))
                start += part.tokens
                first += part.documents
                tokens[file + 1] += part.tokens
                documents[file + 1] += part.documents
                name = texts.names[file]
                self.aside += [bad.in_file(name, newlines[file]) for bad in part.aside]
                if part.trained is not None:
                    self.trained = part.trained + (self.trained or 0)
                newlines[file] += part.newlines
            self._starts.append(start)
        self.file_tokens: NDArray[np.int64] = np.cumsum(tokens)
        """Tokens before each file, and all of them."""
        self.file_documents: NDArray[np.int64] = np.cumsum(documents)
        """Documents before each file, and all of them."""
        self.tokens, self.documents = self._starts[-1], int(self.file_documents[-1])
        self.files = len(texts.names)
        self._opened = lru_cache(2)(lambda number: units[number].result_of(dtype))

    def copy(self, start: int, stop: int, out: BinaryIO) -> None:
        """Write tokens of the stream to a file."""
        out.writelines(some.data for some in self._stretches(start, stop, "tokens"))

    def flags(self) -> Iterator[NDArray[np.bool_]]:
        """Yield which tokens of the stream are trained."""
        return self._stretches(0, self.tokens, "trained")

    def _stretches(self, start: int, stop: int, what: str) -> Iterator[NDArray[Any]]:
        number = bisect_right(self._starts, start) - 1
        while start < stop:
            first = self._starts[number]
            until = min(stop, self._starts[number + 1])
            if start < until:
                yield getattr(self._opened(number), what)[start - first : until - first]
            start = until
            number += 1

    def documents_of(self, file: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield where in the stream documents of a file begin, and the lengths of many."""
        for unit, first, documents in self._places[file]:
            start = first
            for at in documents[::_DOCUMENTS_AT_ONCE]:
                until = min(documents.stop, at + _DOCUMENTS_AT_ONCE)
                lengths = self._opened(unit).lengths[at:until]
                yield start, lengths
                start += int(lengths.sum())

    def all_documents(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        return chain.from_iterable(map(self.documents_of, range(self.files)))

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of every document."""
        # Copied one by one: each is a view of a map, and all of them would be too many open files.
        lengths, at = np.empty(self.documents, np.int64), 0
        for _, some in self.all_documents():
            lengths[at : at + len(some)] = some
            at += len(some)
        return lengths

    def mapped(self, what: Literal["tokens", "trained"], scratch: Path) -> NDArray[Any]:
        """Return all tokens, or which are trained, as one map.

        `scratch` is written for it, unless one unit has all.
        """
        dtype = self.dtype if what == "tokens" else np.dtype(np.bool_)
        full = [n for n in range(len(self._units)) if self._starts[n] < self._starts[n + 1]]
        if len(full) <= 1:
            return getattr(self._opened(full[0]), what) if full else np.empty(0, dtype)
        with scratch.open("w+b") as file:
            file.writelines(some.data for some in self._stretches(0, self.tokens, what))
            file.flush()
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)
