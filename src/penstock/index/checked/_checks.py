"""Checks of records while they are found, their results, and the lines that they set aside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec

from penstock.errors import CorruptFileError, CorruptIndexError, ObjectNotFoundError, OptionError
from penstock.index._names import BAD_LINES, FILES, META
from penstock.storage import join, open_regular

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.index.profile._profile import Profile

_LONGEST_LINE = 1 << 20


class BadLine(msgspec.Struct, frozen=True):
    """A line of JSON Lines, or a row of CSV, that is no sample."""

    file: str
    """Its path, relative as in `file_location.txt`."""
    line: int
    """Counted from 1, blank lines too."""
    offset: int
    bytes: int
    """Line end included."""
    reason: str


class Aside(msgspec.Struct, frozen=True, array_like=True):
    """A line that is no record."""

    newlines: int
    """Newlines before it in its part of the file."""
    offset: int
    size: int
    reason: str
    begins: bytes = b""
    """Its first bytes, of a file whose text cannot be read from the middle."""

    def in_file(self, file: str, newlines: int) -> BadLine:
        """Return the line of a file; `newlines` are those before its part of the file."""
        return BadLine(file, newlines + self.newlines + 1, self.offset, self.size, self.reason)


def write_bad_lines(file: BinaryIO, lines: Iterable[BadLine]) -> None:
    """Append lines, one JSON object each."""
    encoder = msgspec.json.Encoder()
    file.writelines(encoder.encode(line) + b"\n" for line in lines)


def read_bad_lines(folder: str | os.PathLike[str]) -> Iterator[BadLine]:
    """Yield the lines that the build of the index in a local folder set aside.

    An index that was not validated has none. A folder without an index raises.

    >>> read_bad_lines("no/such/index")
    Traceback (most recent call last):
    penstock.errors.ObjectNotFoundError: no/such/index holds no index: expected the folder of one...
    """
    folder = os.path.expanduser(folder)
    path = join(folder, BAD_LINES)
    if os.path.exists(path):
        return _lines_in(path)
    if not any(os.path.exists(join(folder, name)) for name in (FILES, META)):
        raise ObjectNotFoundError(
            f"{folder} holds no index: expected the folder of one, with {META} or "
            f"{FILES}, and {BAD_LINES} if it was built with validate=True. It is the folder "
            "'index' in that of the data, or what penstock index PATH prints.",
            path=folder,
        )
    return iter(())


def _lines_in(path: str) -> Iterator[BadLine]:
    decoder = msgspec.json.Decoder(BadLine)
    try:
        with open_regular(path) as file:
            while text := file.readline(_LONGEST_LINE):
                yield decoder.decode(text)
    except (CorruptFileError, ValueError, RecursionError) as why:
        raise CorruptIndexError(
            f"{path} is damaged ({why}). Build the index again: penstock index PATH "
            "--overwrite --validate",
            path=path,
        ) from None


class Checks(msgspec.Struct, frozen=True):
    """The checks of every record while it is found."""

    validate: bool = False
    """Decode the record, and set it aside if that fails."""
    profile: bool = False
    """Add the record to the profile."""
    max_line_bytes: int | None = None
    """Set longer records aside."""

    def __bool__(self) -> bool:
        return self.validate or self.profile

    def check(self) -> None:
        most = self.max_line_bytes
        if most is None:
            return
        if type(most) is not int or most <= 0:
            raise OptionError(
                f"max_line_bytes={most!r}: expected a number of bytes above 0, or None."
            )
        if not self.validate:
            raise OptionError(
                f"max_line_bytes={most:,} sets lines aside, which only validate=True (--validate) "
                "does. Give both."
            )


class Look(NamedTuple):
    """Where the records of a unit go."""

    checks: Checks
    profile: Profile | None = None
    """The profile that the records are added to."""
    on_rows: Callable[[NDArray[np.int64]], object] = lambda _: None
    """Called with offset and bytes of some records: int64[k, 2]."""
    chosen: Callable[[int], list[int]] | None = None
    """Called with the number of the next records; returns those of them that are read."""


class PartFound(msgspec.Struct):
    """The result of a part of a file, without its rows."""

    records: int
    aside: list[Aside]
    newlines: int
    frames: list[tuple[int, int, int, int]] = []
    facts: dict[str, Any] = {}
    text_bytes: int = 0
    """Of the whole text, where the scan says so."""


class UnitFound(msgspec.Struct):
    """The results of the parts of a unit, in order."""

    parts: list[PartFound]
    profile: bytes | None
    """State of the profile of their records, numbered from 0."""
