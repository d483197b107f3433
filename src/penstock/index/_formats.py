"""The formats that records lie in: one row each.

A row names its code as text ("module:name"), loaded on use, so that it may point to a later room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError
from penstock.jsonl import BOM, COMPRESSED
from penstock.storage import without_query

if TYPE_CHECKING:
    from penstock.index._scan import Scanner


@dataclass(frozen=True, eq=False)
class Format:
    """How the files of one format are known, opened and checked."""

    name: str
    """In `meta.json`, in what the command line prints for programs, and `kind` of the scanner."""
    title: str
    """In messages."""
    source: str
    """Opens it. Called with the index (a `SampleIndex`) where there is a `scanner`; else with the
    path, `storage_options` and, where `has_index` and one was named, `index`."""
    suffixes: tuple[str, ...]
    compressions: tuple[str, ...] = ()
    """Endings that may follow a suffix."""
    weak: tuple[str, ...] = ()
    """Suffixes that other files have, too. In a folder, and behind a pattern, such files have
    records only where no other file has."""
    first_bytes: tuple[bytes, ...] = ()
    """How a file begins, if its name says nothing; of lines, white space aside."""
    scanner: str | None = None
    """Finds the records for an index; None where records are found without one."""
    dialect: str | None = None
    """Finds options of the scanner in the head of a file: called with files and given options."""
    guess: str | None = None
    """Finds options of a new index that take a look at many files: called with files, a scanner
    and given options."""
    guessed: tuple[dict[str, object], ...] = ()
    """What it may return."""
    doubt: str | None = None
    """Warns of an index that was made without a guess, where it looks wrong: called with `Meta`."""
    is_lines: bool = False
    """Whether each line is a record, which can be streamed and copied as text."""
    is_tokens: bool = False
    """Whether records are rows of tokens."""
    has_index: bool = False
    """Whether an index of Penstock describes the records."""
    folder: str | None = None
    """Says whether several files together are this format; see `FolderFormat` in `_detected.py`."""
    marks: tuple[str, ...] = ()
    """Names in a folder that make it worth asking `folder` although records lie beside."""
    scan: str | None = None
    """Finds the records of a part of a file and reads each of them, where that takes more than the
    scanner's `decode`; see `scan_part` in `checked/_build.py`, which stands for None."""
    check_meta: str | None = None
    """Checks options and facts of `meta.json`: called with the `Meta`, raises `ValidationError`."""
    head: str | None = None
    """Reads the head of a file that is a table; see `penstock.tables.TableHead`."""
    check: str | None = None
    """Yields the parts of a table that `penstock check` reads; None: it reads lines, or records."""
    options: tuple[str, ...] = ()
    """Keywords of `source` and `head` that a user may give; a `scanner` has its own."""

    @cached_property
    def endings(self) -> tuple[str, ...]:
        """All endings of names, those of compressed files included."""
        packed = (f"{end}{more}" for end in self.suffixes for more in self.compressions)
        return (*self.suffixes, *packed)

    @cached_property
    def sure_endings(self) -> tuple[str, ...]:
        """The endings that say by themselves that a file has records."""
        return tuple(end for end in self.endings if end not in self.weak)

    def names(self, path: str) -> bool:
        """Whether the name of a file or a pattern says that it has records of this format."""
        return without_query(path).lower().endswith(self.sure_endings)

    def scanner_for(self, options: Mapping[str, object] | None = None) -> Scanner:
        """Return what finds records, with options of its own: those of an index, or given ones."""
        if self.scanner is None:
            raise TypeError(f"{self.title} has no scanner")
        found: Scanner = load(self.scanner)(**(options or {}))
        return found

    def check_options(self, options: Mapping[str, object]) -> None:
        """Raise for options that this format does not have."""
        scanned = [] if self.scanner is None else signature(load(self.scanner)).parameters
        known = [*scanned, *self.options]
        for name in options:
            if name not in known:
                has = f"there are: {', '.join(known)}" if known else "it has none"
                raise OptionError(f"format_options: {self.title} has no option {name!r}; {has}.")


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
    suffixes=(".jsonl", ".ndjson", ".json"),
    compressions=COMPRESSED,
    weak=(".json",),
    first_bytes=(b"{",),
    scanner="penstock.index._scan:LineScanner",
    is_lines=True,
    has_index=True,
    scan="penstock.index.checked._build:scan_lines",
)
"""The one format that can be streamed and tokenised."""

ARRAY = Format(
    "json",
    "JSON arrays",
    "penstock.datasets.text._jsonl:JsonlDataset",
    suffixes=(".json",),
    compressions=COMPRESSED,
    weak=(".json",),
    first_bytes=(b"[",),
    scanner="penstock.index._array:ArrayScanner",
    has_index=True,
    check="penstock.cli.check._tables:array_parts",
)
"""Each element of an array is a record. Of `.json` files, the first byte says which they are."""

CSV = Format(
    "csv",
    "CSV",
    "penstock.datasets.text._csv:CsvRows.from_index",
    suffixes=(".csv", ".tsv"),
    compressions=COMPRESSED,
    scanner="penstock.index.csv._scan:CsvScanner",
    dialect="penstock.index.csv._dialect:found_options",
    guess="penstock.index.csv._header:find_header",
    guessed=({"header": True}, {"header": False}),
    doubt="penstock.index.csv._header:warn_of_names",
    has_index=True,
    scan="penstock.index.csv._checked_scan:scan_rows",
    check_meta="penstock.index.csv._types:check_csv",
    check="penstock.cli.check._tables:csv_parts",
)

_UNITS = "penstock.cli.check._tables:unit_parts"
"""How files with a `head` are checked."""

FORMATS: list[Format] = [
    LINES,
    ARRAY,
    CSV,
    Format(
        "parquet",
        "Parquet",
        "penstock.datasets.tables._rows:ParquetRows",
        suffixes=(".parquet",),
        first_bytes=(b"PAR1",),
        head="penstock.tables.parquet._footers:read_footer",
        check=_UNITS,
        options=("page_checksums",),
    ),
    Format(
        "arrow",
        "Arrow IPC",
        "penstock.datasets.tables._rows:ArrowRows",
        suffixes=(".arrow", ".feather", ".ipc"),
        first_bytes=(b"ARROW1", b"FEA1", b"\xff\xff\xff\xff"),
        head="penstock.tables._ipc:read_ipc",
        check=_UNITS,
    ),
    Format(
        "orc",
        "ORC",
        "penstock.datasets.tables._rows:OrcRows",
        suffixes=(".orc",),
        first_bytes=(b"ORC",),
        head="penstock.tables._orc:read_orc",
        check=_UNITS,
    ),
    Format(
        "avro",
        "Avro",
        "penstock.datasets.tables._rows:AvroRows",
        suffixes=(".avro",),
        first_bytes=(b"Obj\x01",),
        head="penstock.tables._avro:read_avro",
        check=_UNITS,
    ),
    Format(
        "tokens",
        "tokens",
        "penstock.datasets.tokens._dataset:open_tokens",
        suffixes=(".bin",),
        is_tokens=True,
        has_index=True,
        folder="penstock.index.tokens._folder:TokenFolder",
        marks=("tokenized-samples",),
        options=("token_dtype",),
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
    return {row.name: row for row in FORMATS}.get(name)


def format_by_name(path: str) -> Format | None:
    """Return the format of a file or a pattern with this name; None where it does not say.

    >>> format_by_name("logs/*.jsonl.zst").title, format_by_name("a.CSV").title
    ('JSON Lines', 'CSV')
    >>> format_by_name("logs"), format_by_name("settings.json")
    (None, None)
    """
    return next((row for row in record_formats() if row.names(path)), None)


def format_by_bytes(head: bytes) -> Format | None:
    """Return the format of a file that begins with these bytes; None where they do not say."""
    text = head.removeprefix(BOM).lstrip()
    for row in record_formats():
        if (head if row.scanner is None else text).startswith(row.first_bytes):
            return row
    return None


def known_endings() -> str:
    """Return the endings of names for a message."""
    rows = record_formats()
    plain = dict.fromkeys(end for row in rows if row.compressions for end in row.suffixes)
    whole = dict.fromkeys(end for row in rows if not row.compressions for end in row.suffixes)
    return f"{', '.join([*plain])} (or with {', '.join(COMPRESSED)} behind it), {', '.join(whole)}"
