"""What is tokenised: JSON Lines as files, or any other source by its records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstock.errors import ObjectNotFoundError, OptionError, PenstockError, StaleIndexError
from penstock.index._detect import look_at
from penstock.index._formats import LINES, format_by_name, load
from penstock.index._listing import Found, Listing, list_files
from penstock.index._parts import FilePart, LinePiece, opened_lines, parts_of
from penstock.index._scan import LineScanner
from penstock.index.tokens._documents import LineDocuments, TokenProbe
from penstock.index.tokens._records import SourceRecords, is_source
from penstock.index.tokens._units import TextInput
from penstock.jsonl import compression_of

if TYPE_CHECKING:
    from penstock.index.tokens._documents import TokenWork, Write
    from penstock.storage import StorageOptions

_LOOK_BYTES = 32 << 10
_LONGEST = 1 << 20
"""Bytes of a line that the estimate looks at."""
_COMPRESSED = 3
"""Bytes of text a compressed byte, about."""


@dataclass(frozen=True)
class LineFiles(TextInput):
    """Files of JSON Lines."""

    listing: Listing
    options: StorageOptions

    @cached_property
    def names(self) -> list[str]:
        return [*map(self.listing.relative, self.listing.files)]

    @property
    def bytes(self) -> int:
        return self.listing.bytes

    @property
    def folder(self) -> str | None:
        return self.listing.folder

    def again(self) -> LineFiles:
        named = self.listing.named
        what = named if len(named) > 1 else named[0]
        listing = listed_lines(what, self.options)
        if not listing.files:
            raise ObjectNotFoundError(f"{named[0]} holds no JSON Lines any more.", path=named[0])
        return LineFiles(listing, self.options)

    def refuse_changed(self) -> None:
        now, text = {}, "it is gone"
        with suppress(ObjectNotFoundError):
            now = {found.path: found.entry for found in self.again().listing.files}
        for found in self.listing.files:
            was, entry = found.entry, now.get(found.path)
            if entry == was:
                continue
            if entry is not None:
                text = f"{was.size:,} bytes then, {entry.size:,} now"
            raise StaleIndexError(
                f"{found.path} changed while it was tokenised ({text}), so nothing is published. "
                "Tokenise again when it is complete.",
                path=found.path,
            )

    def key(self) -> object:
        return [
            [found.path, found.entry.size, found.entry.modified, found.entry.version]
            for found in self.listing.files
        ]

    def probes(self) -> Iterator[TokenProbe]:
        whole = sum(map(_text_bytes, self.listing.files))
        for found in self.listing.files:
            piece = _first_lines(found)
            if piece is not None:

                def tokenise(
                    work: TokenWork, write: Write, found: Found = found, piece: LinePiece = piece
                ) -> None:
                    LineDocuments(work, found, write).add(piece)

                yield TokenProbe(tokenise, whole / len(piece.text))

    def parts(self, unit_bytes: int) -> list[FilePart]:
        scanner = LineScanner()
        files = (parts_of(one, 0, scanner, unit_bytes, None) for one in self.listing.files)
        return [*chain.from_iterable(files)]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {found.path: number for number, found in enumerate(self.listing.files)}

    def number_of(self, part: FilePart) -> int:
        return self._numbers[part.found.path]


def given_input(base: object, paths: Sequence[Any] | None) -> object:
    """Return what is tokenised: some files, or else a folder or a source."""
    what = base if paths is None else paths
    if what is None:
        raise OptionError(
            "nothing says what to tokenise. Give input_base_path=, a folder of JSON Lines files or "
            "what else penstock.open opens, or input_file_paths=, the files themselves."
        )
    return what


def listed_lines(what: Any, options: StorageOptions) -> Listing:  # noqa: ANN401 (paths)
    """Return files of lines; beside those whose names say so, a `.json` is no data."""
    listing = list_files(what, LINES.endings, options)
    sure = [found for found in listing.files if LINES.names(found.entry.name)]
    is_chosen = listing.folder is not None or listing.is_pattern
    return replace(listing, files=sure) if sure and is_chosen else listing


def input_of(what: Any, options: StorageOptions) -> TextInput:  # noqa: ANN401 (as `open` has it)
    """Return what is to be tokenised: JSON Lines, or anything that `penstock.open` opens."""
    if isinstance(what, TextInput):
        return what
    if (lines := _lines(what, options)) is not None:
        return lines
    source = what if is_source(what) else load("penstock.datasets:open")(
        what, storage_options=options
    )  # fmt: skip
    if source.is_tokens:
        raise OptionError(f"{what!r} holds tokens already, and no text to make some of.")
    return SourceRecords(source, None if source is what else what, options)


def _lines(what: Any, options: StorageOptions) -> LineFiles | None:  # noqa: ANN401 (likewise)
    """Return the JSON Lines of a path, a folder, a pattern or a list of those; None for others."""
    paths: Sequence[Any] = [what] if isinstance(what, str | os.PathLike) else what
    if not isinstance(paths, list | tuple) or not paths:
        return None
    if not all(isinstance(path, str | os.PathLike) for path in paths):
        return None
    try:
        listing = listed_lines(what, options)
    except ObjectNotFoundError:
        return None
    kinds = {format_by_name(found.path) for found in listing.files}
    if not kinds or not kinds <= {LINES, None}:
        return None
    row = LINES
    with suppress(PenstockError):  # A killed builder's index, which the next one mends.
        detected = look_at(what, options)
        row = detected.format
        is_sure = any(LINES.names(found.entry.name) for found in listing.files)
        if detected.trouble is not None and not is_sure:
            return None
    # Tokens may lie beside the lines that they were made of.
    return LineFiles(listing, options) if row is LINES or row.is_tokens else None


def _first_lines(found: Found) -> LinePiece | None:
    """Return the first lines of a file, about 32 KiB of them; None if all are blank or too long."""
    part = FilePart(found, 0, found.entry.size)
    with opened_lines(part, lambda _: None, _LONGEST) as pieces:
        for piece in pieces:
            if piece.text.strip():
                stop = piece.text.find(b"\n", _LOOK_BYTES) + 1
                return piece._replace(text=piece.text[: stop or None])
    return None


def _text_bytes(found: Found) -> int:
    is_plain = compression_of(found.entry.name) is None
    return found.entry.size * (1 if is_plain else _COMPRESSED)
