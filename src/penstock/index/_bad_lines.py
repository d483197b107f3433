"""Lines and rows that are set aside, and the file that lists them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import CorruptFileError, CorruptIndexError, ObjectNotFoundError
from penstock.index._names import BAD_LINES, FILES, META
from penstock.storage import join, open_regular

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from typing import BinaryIO


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
    path = join(os.fspath(folder), BAD_LINES)
    if os.path.exists(path):
        return _lines_in(path)
    if not any(os.path.exists(join(os.fspath(folder), name)) for name in (FILES, META)):
        raise ObjectNotFoundError(
            f"{os.fspath(folder)} holds no index: expected the folder of one, with {META} or "
            f"{FILES}, and {BAD_LINES} if it was built with validate=True. It is the folder "
            "'index' in that of the data, or what penstock index PATH prints.",
            path=os.fspath(folder),
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


def copy_bad_lines(folder: str, file: BinaryIO, without: Collection[str]) -> None:
    """Append the bad lines of an index, except those of some files."""
    write_bad_lines(file, (bad for bad in read_bad_lines(folder) if bad.file not in without))
