"""What others ask about a source besides its records, with the answers for records in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from penstock.storage import StorageOptions

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets.columns._place import FileFacts
    from penstock.index import Meta, SampleIndex


class ColumnHome(NamedTuple):
    """Where the columns of a source lie."""

    key: list[object]
    """Names the folder in the cache directory; stays the same when data is appended."""
    folder: Path | None = None
    """The folder of an index, in which they lie if it may be written to."""
    remote: str | None = None
    """The remote folder that the source is, beside which they may be published."""


class AboutSource:
    """The base of `penstock.datasets.Source`: a format overrides what it knows better."""

    is_tokens = False
    """Whether records are rows of tokens; see `TokenSource`."""
    decodes_in_processes = False
    """Whether worker processes decode faster than the caller: records are read from files."""
    reads_blocks = ""
    """Why a block is read as a whole, where a record costs as much as its block."""

    may_hold_bad_texts = False
    """Whether its strings come from Arrow unchecked, and may not be UTF-8."""

    no_columns = ""
    """Why columns of its records cannot be kept; "" where they can."""

    @property
    def schema_is_complete(self) -> bool:
        """Whether `schema` has every field of every record."""
        return False

    @property
    def free_fields(self) -> frozenset[str]:
        """Top-level fields that are known without reading a file."""
        return frozenset()

    @property
    def folder_fields(self) -> frozenset[str]:
        """Fields that the names of folders add to records of text files: `year=2024/a.csv`."""
        return frozenset()

    has_lines: ClassVar[bool] = False
    """Whether a record begins on a line of a file of text."""

    @property
    def sample_index(self) -> SampleIndex | None:
        """The index by which records, runs of bytes in files, are found; None without one."""
        return None

    @property
    def index_meta(self) -> Meta | None:
        """What the index says of itself; None without one, or where another tool made it."""
        return None if self.sample_index is None else self.sample_index.meta

    @property
    def storage_options(self) -> StorageOptions:
        """The options with which its files are read."""
        return StorageOptions()

    @property
    def documents(self) -> int | None:
        """How many documents the rows of tokens are; None where a row is one, or unknown."""
        return None

    @property
    def stream_files(self) -> dict[int, str]:
        """Files, by number in `files`, that are read from their beginning → their compression."""
        return {}

    @property
    def reopens_as(self) -> str | None:
        """The path by which `penstock.open` finds this again; None where no single path does."""
        return None

    def file_sizes(self) -> dict[str, int]:
        """Return the bytes of each file, where they are known without looking."""
        return {}

    def file_facts(self) -> list[FileFacts]:
        """Return the state of its files, in their order, without asking a network."""
        return []
