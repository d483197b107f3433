"""The formats that records lie in: one row each.

A row names its code as text ("module:name"), loaded on use, so that it may point to a later room.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.jsonl import BOM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.index._scan import Scanner


@dataclass(frozen=True, eq=False)
class Format:
    """How the files of one format are known, opened and checked."""

    name: str
    """In `meta.json`, and in what the command line prints for programs."""
    title: str
    """In messages."""
    source: str
    """Opens it. Called with the index where there is a `scanner`; else with the path,
    `storage_options` and, where `has_index` and one was named, `index`."""
    suffixes: tuple[str, ...]
    compressions: tuple[str, ...] = ()
    """Endings that may follow a suffix."""
    first_bytes: tuple[bytes, ...] = ()
    """How a file begins, if its name says nothing; of lines, white space aside."""
    scanner: str | None = None
    """Finds the records for an index; None where records are found without one."""
    suffix_options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Options of the scanner where all files have a suffix."""
    is_lines: bool = False
    """Whether each line is a record, which can be streamed and copied as text."""
    is_tokens: bool = False
    """Whether records are rows of tokens."""
    has_index: bool = False
    """Whether an index of Penstock describes the records."""
    folder: str | None = None
    """Says whether several files together are this format; see `FolderFormat` in `_detect.py`."""
    marks: tuple[str, ...] = ()
    """Names in a folder that make it worth asking `folder` although records lie beside."""
    check: str | None = None
    """Yields the parts of a table that `penstock check` reads; None: it reads lines, or records."""

    @cached_property
    def endings(self) -> tuple[str, ...]:
        """All endings of names, those of compressed files included."""
        packed = (f"{end}{more}" for end in self.suffixes for more in self.compressions)
        return (*self.suffixes, *packed)

    def names(self, path: str) -> bool:
        """Whether a file or a pattern is named like this format."""
        return path.lower().endswith(self.endings)

    def options_for(self, names: Sequence[str]) -> dict[str, object]:
        """Return the scanner's options for files of these names."""
        for suffix, options in self.suffix_options.items():
            if names and all(name.lower().endswith(suffix) for name in names):
                return dict(options)
        return {}

    def scanner_for(
        self, names: Sequence[str] = (), made_with: Mapping[str, object] | None = None
    ) -> Scanner:
        """Return what finds records; `made_with` are the options of an existing index."""
        if self.scanner is None:
            raise TypeError(f"{self.title} has no scanner")
        options = self.options_for(names) if made_with is None else made_with
        found: Scanner = load(self.scanner)(**options)
        return found


@cache
def load(name: str) -> Any:  # noqa: ANN401 (each row has its own)
    """Return what a row names: "module:name", or "module:Class.method"."""
    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


LINES = Format(
    "jsonl",
    "JSON Lines",
    "penstock.datasets.text._jsonl:JsonlDataset",
    suffixes=(".jsonl",),
    compressions=(".zst", ".zstd", ".gz"),
    first_bytes=(b"{",),
    scanner="penstock.index._scan:LineScanner",
    is_lines=True,
    has_index=True,
)
"""The one format that can be streamed, tokenised and converted."""

CSV = Format(
    "csv",
    "CSV",
    "penstock.datasets.text._csv:CsvRows.from_index",
    suffixes=(".csv", ".tsv"),
    compressions=(".gz", ".zst"),
    scanner="penstock.index.csv._scan:CsvScanner",
    suffix_options={".tsv": {"delimiter": "\t"}},
    has_index=True,
    check="penstock.cli.check._tables:csv_parts",
)

PARQUET = Format(
    "parquet",
    "Parquet",
    "penstock.datasets.parquet._parquet:ParquetRows",
    suffixes=(".parquet",),
    first_bytes=(b"PAR1",),
    check="penstock.cli.check._tables:parquet_parts",
)

FORMATS: list[Format] = [
    LINES,
    CSV,
    PARQUET,
    Format(
        "tokens",
        "tokens",
        "penstock.datasets.tokens._dataset:open_tokens",
        suffixes=(".bin",),
        is_tokens=True,
        has_index=True,
        folder="penstock.index.tokens._folder:TokenFolder",
        marks=("tokenized-samples",),
    ),
    Format(
        "MDS",
        "MDS",
        "penstock.datasets.mds._rows:MdsRows",
        suffixes=(".mds",),
        compressions=(".br", ".bz2", ".gz", ".snappy", ".zstd"),
        folder="penstock.datasets.mds._index:MdsFolder",
        marks=("index.json",),
    ),
    Format(
        "Megatron-LM",
        "Megatron-LM",
        "penstock.datasets.megatron._tokens:MegatronTokens",
        suffixes=(".bin", ".idx"),
        is_tokens=True,
        folder="penstock.datasets.megatron._files:MegatronPair",
    ),
]


def record_formats() -> list[Format]:
    """Return the formats in which each file holds records by itself."""
    return [row for row in FORMATS if row.folder is None]


def folder_formats() -> list[Format]:
    """Return the formats in which several files hold records together."""
    return [row for row in FORMATS if row.folder is not None]


def format_named(name: str) -> Format | None:
    """Return the row of a name."""
    return next((row for row in FORMATS if row.name == name), None)


def format_by_name(path: str) -> Format | None:
    """Return the format of a file or a pattern with this name; None where it does not say.

    >>> format_by_name("logs/*.jsonl.zst").title, format_by_name("a.CSV").title
    ('JSON Lines', 'CSV')
    >>> format_by_name("logs")
    """
    lower = path.lower()
    return next((row for row in record_formats() if lower.endswith(row.endings)), None)


def format_by_bytes(head: bytes) -> Format | None:
    """Return the format of a file that begins with these bytes; None where they do not say."""
    text = head.removeprefix(BOM).lstrip()
    for row in record_formats():
        if (text if row.is_lines else head).startswith(row.first_bytes):
            return row
    return None


def known_endings() -> str:
    """Return the endings of names for a message."""
    return ", ".join(end for row in record_formats() for end in row.endings)
