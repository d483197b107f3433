"""The head of a table file: its columns, and the units in which its rows are read.

A unit is what a format stores together: a record batch, a stripe, a block, a row group.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from penstock._words import counted, plural
from penstock.errors import (
    CorruptFileError,
    PenstockError,
    SchemaMismatchError,
    StorageError,
    UnsupportedFileError,
)
from penstock.jsonl import HEAD_BYTES, refuse_foreign
from penstock.storage import reading
from penstock.tables._schemas import is_read, plain_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.storage import OpenFile

    Remember = Callable[[Callable[[OpenFile], bytes]], bytes | pa.Buffer]
    """Returns what a function finds in a file, which may be kept from an earlier time."""
    ReadHead = Callable[[OpenFile, Remember], "TableHead"]

_LEAST_ALLOWED = 512 << 20
_MOST_INFLATED = 1 << 12
"""Bytes in memory a byte of a file, at most, above `_LEAST_ALLOWED`. A million nulls or equal
numbers, 8 MB, take 2,300 to 4,600 bytes in Parquet with pages of the usual size; larger pages take
less, but in small files."""
_LEAST_WIDTH = 8
_MOST_ROWS = 1 << 40
_NOT_SUPPORTED = re.compile(
    "not (yet )?implemented|not supported|unsupported|not built|unknown encoding|only supports|"
    "must be annotated|cannot be applied|can only annotate|bit width must|precision out of range|"
    "range exactly representable|storage type|contain any subtypes|time zone file",
    re.IGNORECASE,
)
_OUTSIDE = re.compile("range for nano|fit in precision|whole number of days|acceptable range")
"""What Arrow says of values that their type does not have."""
_LARGE = re.compile("offset overflow|chunked array outputs")
"""What Arrow says of texts of more than 2 GiB, flat and nested."""
_NOT_UTF_8 = re.compile("utf-?8", re.IGNORECASE)
_NOT_READ = f"pyarrow {pa.__version__} does not support its contents"
_WRITE_AGAIN = "Write the file again with other types, encodings or compression"
_OR_DAMAGED = "If the program that wrote it does not read it either, it is damaged."
_BEGIN_BYTES = 16 << 10
_END_BYTES = 64 << 10


class DamagedHeadError(ValueError):
    """Why a file is not of its format."""


@dataclass(frozen=True, kw_only=True)
class TableHead(ABC):
    """What is known of a table file before its rows are read; one is kept for each file.

    A format of tables is this class with `_columns`, and a function that reads the head. That is
    called with an open file and `remember`, through which it does what costs many reads. It raises
    `DamagedHeadError`, or the errors of its library.
    """

    unit: ClassVar[str]
    """What the format calls a unit."""

    schema: pa.Schema
    """The columns, of plain types once `head_of` returns it."""
    unit_rows: NDArray[np.int64]
    unit_bytes: NDArray[np.int64]
    """Bytes of each unit in memory, about."""
    mark: str
    """A hash that changes with the rows."""
    weight: int
    """Bytes that this takes."""
    is_mapped: bool = False
    """Whether rows are parts of a map of the file: they take no memory, and go with the file."""

    def read(
        self, file: OpenFile, unit: int, schema: pa.Schema, *, at_once: bool
    ) -> pa.RecordBatch:
        """Return columns of a unit, under the types that the file has; `at_once` by few requests.

        Raises `CorruptFileError` before it allocates more than a file of this size can hold.
        """
        rows = int(self.unit_rows[unit])
        size = rows * _LEAST_WIDTH * len(schema)
        if size > allowed_bytes(file):
            raise too_large(file, f"{self.unit} {unit} claims {rows:,} rows", size, self.unit)
        try:
            batch = self._columns(file, unit, schema, at_once=at_once)
        except PenstockError:
            raise
        except MemoryError as why:
            raise StorageError(
                f"{file.path}: there is not enough memory for the {rows:,} rows of {self.unit} "
                f"{unit} ({why}). Ask for fewer columns, or write it with smaller "
                f"{plural(self.unit)}.",
                path=file.path,
            ) from None
        except (pa.ArrowException, OSError, ValueError) as why:
            if len(schema) > 1 and (_is_not_supported(why) or _OUTSIDE.search(str(why))):
                for field in schema:  # The one to blame has an error of its own.
                    self.read(file, unit, pa.schema([field]), at_once=at_once)
            raise self._unreadable(file, unit, why, schema) from None
        if batch.num_rows != rows:
            held = f"it holds {counted(batch.num_rows, 'row')}, and the footer says {rows:,}"
            raise self._unreadable(file, unit, ValueError(held), schema)
        return batch

    def _unreadable(
        self, file: OpenFile, unit: int, why: Exception, schema: pa.Schema
    ) -> PenstockError:
        said = str(why).partition("\n")[0].rstrip(".")
        fact = f"{file.path}: {self.unit} {unit} cannot be read: "
        kind: type[PenstockError] = UnsupportedFileError
        leave_out = ", or leave the column out by columns="
        if "decrypt" in said.lower():
            remedy = f"The column is encrypted: decrypt the file first{leave_out}."
        elif _LARGE.search(said):
            fact += "a column of it has more than 2 GiB of text: "
            remedy = f"Write the file again with smaller {plural(self.unit)}{leave_out}."
        elif _NOT_UTF_8.search(said):
            kind = CorruptFileError
            remedy = f"Write the file again with text in UTF-8, or as binary{leave_out}."
        elif _OUTSIDE.search(said) or _is_not_supported(why):
            said = said.removeprefix("In column 0: Invalid: ")
            what = "it holds a value outside of that" if _OUTSIDE.search(said) else _NOT_READ
            field = f"field {schema.names[0]!r} is {schema.types[0]}, and " * (len(schema) == 1)
            fact += f"{field}{what}: "
            remedy = f"{_WRITE_AGAIN}{leave_out}. {_OR_DAMAGED}"
        else:
            kind, remedy = CorruptFileError, "The file is damaged: copy or write it again."
            if "checksum" in said.lower():
                remedy += " Where its writer makes wrong checksums: page_checksums=False."
        return kind(f"{fact}{said}.", remedy=remedy, path=file.path)

    @abstractmethod
    def _columns(
        self, file: OpenFile, unit: int, schema: pa.Schema, *, at_once: bool
    ) -> pa.RecordBatch:
        """Do the same, with the errors of the library that decodes.

        What it allocates besides the rows is compared with `allowed_bytes` before.
        """


def head_of(
    read: ReadHead, title: str, file: OpenFile, remember: Remember | None = None
) -> TableHead:
    """Read the head of a file of the format `title`, and check it."""
    try:
        head = read(file, remember or (lambda find: find(file)))
        refuse_types(file, head.schema)
        head = replace(head, schema=plain_schema(head.schema))
        names, rows = head.schema.names, head.unit_rows
        most = min(_MOST_ROWS, allowed_bytes(file) // _LEAST_WIDTH)
        if rows.min(initial=0) < 0 or rows.max(initial=0) > most:
            shown = rows.max() if rows.min() >= 0 else rows.min()
            raise DamagedHeadError(f"it claims {plural(head.unit)} of {shown:,} rows")
    except PenstockError:
        raise
    except (pa.ArrowException, ArithmeticError, LookupError, OSError, ValueError) as why:
        if _is_not_supported(why):
            raise UnsupportedFileError(
                f"{file.path}: {_NOT_READ}: {why}.",
                remedy=f"{_WRITE_AGAIN}. {_OR_DAMAGED}",
                path=file.path,
            ) from None
        refuse_foreign(file.path, file.read_at(0, min(HEAD_BYTES, file.size)))
        is_ours = isinstance(why, DamagedHeadError)
        raise CorruptFileError(
            f"{file.path} is no whole {title} file: "
            f"{why if is_ours else f'its head cannot be read ({why})'}. It was cut off, is still "
            "being written, or is something else: copy or write it again.",
            path=file.path,
        ) from None
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaMismatchError(
            f"{file.path}: two columns are called {twice!r}, and a record holds each name once. "
            "Write it again with other names.",
            path=file.path,
            field=twice,
        )
    return head


def refuse_types(file: OpenFile, schema: pa.Schema) -> None:
    """Raise for a field of a type that is not read, before anything is made of such a type."""
    for field in schema:
        if not is_read(field.type):
            raise SchemaMismatchError(
                f"{file.path}: field {field.name!r} is {field.type}, which is not read here. Write "
                "the file again without it, or with another type.",
                path=file.path,
                field=field.name,
            )


def allowed_bytes(file: OpenFile) -> int:
    """Return how many bytes a unit of a file may take in memory."""
    return max(_LEAST_ALLOWED, file.size * _MOST_INFLATED)


def _is_not_supported(why: Exception) -> bool:
    """Whether Arrow says of contents that it does not read them, and not that they are damaged."""
    return isinstance(why, NotImplementedError) or _NOT_SUPPORTED.search(str(why)) is not None


def too_large(file: OpenFile, what: str, size: int, unit: str = "row group") -> CorruptFileError:
    """Return the error about a part of a file that claims more memory than it can need."""
    return CorruptFileError(
        f"{file.path}: {what}, which take {size:,} bytes or more, and the file has {file.size:,}. "
        "If it is not damaged, ask for fewer columns, or write it with smaller "
        f"{plural(unit)}.",
        path=file.path,
    )


def read_ends(file: OpenFile) -> HeldRanges:
    """Return a file with its first and last bytes in memory: the heads of most files."""
    start = max(0, file.size - _END_BYTES)
    return HeldRanges(file, [(0, min(file.size, _BEGIN_BYTES)), (start, file.size - start)])


class HeldRanges:
    """A file with some ranges in memory; see `penstock.storage.OpenFile`.

    `also` are parts that were read before, with their places.
    """

    def __init__(
        self,
        file: OpenFile,
        ranges: Sequence[tuple[int, int]],
        also: Sequence[tuple[int, bytes]] = (),
    ) -> None:
        self.path, self.size, self._file = file.path, file.size, file
        starts = [start for start, _ in ranges]
        with reading():
            found = file.read_ranges(ranges)
        self.held = sorted([*also, *zip(starts, found, strict=True)], key=lambda one: one[0])
        self._starts = [start for start, _ in self.held]

    def read_at(self, start: int, length: int) -> bytes:
        at = bisect_right(self._starts, start) - 1
        if at >= 0:
            first, data = self.held[at]
            if start + length <= first + len(data):
                return data[start - first : start - first + length]
        with reading():
            return self._file.read_at(start, length)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_at(start, length) for start, length in ranges]

    def close(self) -> None:
        """Do nothing: the caller closes the file."""
