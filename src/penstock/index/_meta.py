"""The content of `meta.json`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np

from penstock.errors import CorruptIndexError
from penstock.index._fingerprint import digest
from penstock.index._formats import format_named, load
from penstock.index._names import FILES, META, is_of_tokens, rebuilding
from penstock.storage import readable_metadata

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT = "penstock-index"
VERSION = 2
"""2 if a release that knows 1 would misread it: tokens that are not all trained."""
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""What int64 holds, so that forged counts cannot overflow an array."""


class FileMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file at the time it was indexed."""

    path: str
    """Relative to the base."""
    size: Count
    """Bytes as stored."""
    modified: float
    fingerprint: str
    records: Count
    bytes: Count
    """Of all its records, uncompressed."""
    version: str | None = None
    """An ETag, if the store has one."""
    facts: dict[str, Any] = {}
    """Facts of its scan: of CSV the columns and their types."""
    hash: str | None = None
    """Of every byte, with `full_hash`."""
    bad_lines: Count = 0
    """Lines set aside, in a validated index."""
    newlines: Count | None = None
    """All newlines, in a validated index: appended lines are numbered from there."""


_RECORDS, _BYTES = attrgetter("records"), attrgetter("bytes")
_SIZE, _BAD_LINES = attrgetter("size"), attrgetter("bad_lines")


class RecordRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """Records of one file with consecutive numbers."""

    file: Count
    records: Count
    fingerprint: str
    """Of the file when the run was found, before it grew."""
    finished: str = ""
    """The fingerprint of the file when an update met the rest of the last record, which the file
    ended in before; empty where that record was whole."""
    finished_after: Count = 0
    """Records of the index before that update, if it added others; else 0."""


class TrainedMeta(msgspec.Struct, frozen=True):
    """What `trained.bin` holds: a bit for each token of all samples."""

    tokens: Count
    """Those that are trained."""
    hash: str
    """Of the file: BLAKE2b, 16 bytes, in hexadecimal digits."""

    def is_of(self, bits: NDArray[np.uint8]) -> bool:
        """Whether this is the hash of the bytes of a file."""
        return hashlib.blake2b(bits.data, digest_size=16).hexdigest() == self.hash


class TokensMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The samples of a token index."""

    dtype: str
    """Of the tokens: `uint16`, `uint32` …"""
    sample_size: Count | None
    """Tokens of every sample; None: a sample is a document."""
    eos: int | None
    """The token that ends every document, if samples have one size."""
    packing: str | None
    """`concat` or `best_fit`, if samples have one size."""
    pad: int | None = None
    """The token that fills samples up."""
    documents: Count = 0
    tokens: Count = 0
    """Of all samples, padding not counted."""
    dropped: Count = 0
    """Tokens behind the last full sample."""
    padding: Count = 0
    """Tokens that fill samples up."""
    borders: bool = True
    """Whether `document_*.bin` have the ends of documents, if samples have one size."""
    trained: TrainedMeta | None = None
    """None: all tokens are trained."""


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole index."""

    kind: str
    """Kind of the records: `jsonl`, `csv`, `tokens`."""
    files: list[FileMeta]
    """Files with records, in the order of `file_location.txt`."""
    runs: list[RecordRun]
    """In the order of the record numbers. An update appends runs, and renumbers no record."""
    options: dict[str, Any] = {}
    empty: list[FileMeta] = []
    """Files without records."""
    base: str | None = None
    """What the paths were relative to, if that is not the folder around the index; shown to people,
    never followed: the base comes from the caller that opens the index."""
    format: str = ""
    version: int = 0
    created: float = 0.0
    """Seconds since the epoch."""
    validated: bool = False
    """Whether every record was read, and bad lines are in `bad_lines.ndjson`."""
    max_line_bytes: Count | None = None
    """Longer lines were set aside."""
    profiled: bool = False
    """Whether there is a `profile.json`."""
    tokens: TokensMeta | None = None
    """Of an index of tokens: its samples."""
    made_by: str | None = None
    """`open`: `penstock.open` made it on the way, and keeps it fresh; `index`: a caller asked for
    it; None: a release without this key."""

    @property
    def is_of_tokens(self) -> bool:
        row = format_named(self.kind)
        return row is not None and row.is_tokens

    @property
    def is_hashed(self) -> bool:
        """Whether every byte of every file was hashed."""
        files = [*self.files, *self.empty]
        return bool(files) and all(file.hash is not None for file in files)

    @property
    def bad_lines(self) -> int:
        return sum(map(_BAD_LINES, [*self.files, *self.empty]))

    @property
    def records(self) -> int:
        return sum(map(_RECORDS, self.runs))

    @property
    def bytes(self) -> int:
        """Of all records, uncompressed."""
        return sum(map(_BYTES, self.files))

    @property
    def stored(self) -> int:
        """Bytes of all files, as they are stored."""
        return sum(map(_SIZE, [*self.files, *self.empty]))

    @property
    def fingerprint(self) -> str:
        runs = [[run.fingerprint, run.records] for run in self.runs]
        mask = [] if self.trained is None else [self.trained.hash]
        return digest([self.kind, self.options, runs, self.records, *mask])

    @property
    def trained(self) -> TrainedMeta | None:
        """Which tokens are trained; None where all are, or records are no tokens."""
        return None if self.tokens is None else self.tokens.trained

    def fingerprint_at(self, length: int) -> str:
        """Return the fingerprint of the first `length` records."""
        return self.first(length).fingerprint

    def finished_at(self, length: int) -> str:
        """Return what changes where one of the first `length` records was finished by an update.

        The fingerprint does not: their numbers stay. Empty where all of them were whole.
        """
        finished = [[number, run.finished] for number, run in enumerate(self.first(length).runs)]
        finished = [item for item in finished if item[1]]
        return digest(finished) if finished else ""

    def first(self, length: int) -> Meta:
        """Return the index of the first `length` records."""
        runs: list[RecordRun] = []
        for run in self.runs:
            if length <= 0:
                break
            runs.append(run)
            length -= run.records
        return msgspec.structs.replace(self, runs=runs)

    def starts(self) -> NDArray[np.int64]:
        """Return the number of each run's first record, and the number of all records."""
        return np.cumsum([0, *map(_RECORDS, self.runs)], dtype=np.int64)


def encode_meta(meta: Meta) -> bytes:
    """Return the text of `meta.json`; raise if it names too many files to be read."""
    text = msgspec.json.format(msgspec.json.encode(meta), indent=1) + b"\n"
    count = len(meta.files) + len(meta.empty)
    remedy = f"The index names {count:,} files: index fewer at once, or larger ones."
    return readable_metadata(text, META, remedy)


def write_meta(folder: Path, meta: Meta) -> bytes:
    """Write `meta.json` and the list of its files into a folder; return the text of `meta.json`."""
    names = "".join([f"{file.path}\n" for file in meta.files])
    (folder / FILES).write_text(names, encoding="utf-8", errors="surrogateescape")
    version = 1 if meta.trained is None else VERSION
    text = encode_meta(msgspec.structs.replace(meta, format=FORMAT, version=version))
    (folder / META).write_bytes(text)
    return text


class _MetaHead(msgspec.Struct):
    format: Literal["penstock-index"]
    version: int


def decode_meta(text: bytes, path: str, base: str, again: Callable[[], str] | None = None) -> Meta:
    """Read the text of a `meta.json`, or raise what is wrong with it.

    `base` is the data of the index. `again` returns the command that builds a damaged index again,
    for a caller that knows more of it than this text.
    """
    try:
        version = msgspec.json.decode(text, type=_MetaHead).version
        if version > VERSION:
            raise CorruptIndexError(
                f"{path} was written by a newer Penstock (format {version}, this one knows "
                f"{VERSION}). Upgrade Penstock.",
                path=path,
            )
        meta = msgspec.json.decode(text, type=Meta)
        row = format_named(meta.kind)
        if row is not None and row.check_meta is not None:
            load(row.check_meta)(meta)
        if max([run.file for run in meta.runs], default=-1) >= len(meta.files):
            raise msgspec.ValidationError("it names files that it does not list")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        command = rebuilding(base, tokens=is_of_tokens(text)) if again is None else again()
        raise CorruptIndexError(
            f"{path} is damaged, or not the meta.json of an index ({why}). Build the index again: "
            f"{command}",
            path=path,
        ) from None
    return meta
