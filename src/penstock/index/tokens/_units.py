"""Tokenising as units of work: parts of files, each done by whichever process is free."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from penstock.index._line_pieces import LongLine
from penstock.index._scan import LineScanner
from penstock.index.checked._units import opened_lines, parts_of
from penstock.index.tokenizers._tokenizer import single_threaded
from penstock.index.tokens._documents import DocumentMaker, TokenWork
from penstock.index.tokens._unit_file import NewTokenFile, TokensFound
from penstock.storage import join
from penstock.work import grouped

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.index._listing import Listing
    from penstock.index.checked._units import Part


class SharedWork:
    """Work that a process unpickles once, however many units it does."""

    def __init__(self, work: TokenWork) -> None:
        self.work = work

    @cached_property
    def pickled(self) -> bytes:
        """What is sent."""
        return pickle.dumps(self.work)

    def __reduce__(self) -> tuple[Callable[[bytes], SharedWork], tuple[bytes]]:
        return _once, (self.pickled,)


@lru_cache(1)
def _once(pickled: bytes) -> SharedWork:
    single_threaded()  # This is a worker: there is one a processor.
    return SharedWork(pickle.loads(pickled))  # noqa: S301 (the parent's)


@dataclass(frozen=True, slots=True)
class TokenUnit:
    """Parts that are tokenised one after the other; see `penstock.work.Unit`."""

    folder: str
    number: int
    parts: tuple[Part, ...]
    shared: SharedWork

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def path(self) -> str:
        """The file of its tokens."""
        return join(self.folder, f"{self.number:06}.unit")

    def is_done(self) -> bool:
        """Whether the file is there."""
        return os.path.exists(self.path)

    def run(self, advance: Callable[[int], object]) -> None:
        """Tokenise all parts, and publish the tokens."""
        with NewTokenFile(self.path) as file:
            file.publish([self._made(part, file, advance) for part in self.parts])

    def _made(
        self, part: Part, file: NewTokenFile, advance: Callable[[int], object]
    ) -> TokensFound:
        maker = DocumentMaker(self.shared.work, part.found, file.add)
        with opened_lines(part, advance) as lines:
            for piece in lines:
                if not isinstance(piece, LongLine):  # None is too long here.
                    maker.add(piece)
        return TokensFound(maker.documents, maker.tokens, maker.aside, lines.newlines)

    def __str__(self) -> str:
        first = self.parts[0]
        if len(self.parts) > 1:
            return f"{len(self.parts):,} parts of files, first {first.found.path}"
        return f"bytes {first.start:,} to {first.stop:,} of {first.found.path}"


def token_units(
    listing: Listing, folder: str, shared: SharedWork, unit_bytes: int
) -> list[TokenUnit]:
    """Return units of about equal size: large files in several, small ones together."""
    scanner = LineScanner()
    parts = [
        part for found in listing.files for part in parts_of(found, 0, scanner, unit_bytes, None)
    ]
    return [
        TokenUnit(folder, number, group, shared)
        for number, group in enumerate(grouped(parts, unit_bytes))
    ]
