"""What the files of a PATH hold: JSON Lines, CSV or Parquet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from penstock.cli._token_paths import refuse_folder_of_tokens, refuse_tokens_by_name
from penstock.errors import ObjectNotFoundError, OptionError
from penstock.index import CSV, JSONL, PARQUET, LineScanner, list_files
from penstock.jsonl import is_jsonl
from penstock.storage import is_pattern, locate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.index import Listing, Scanner
    from penstock.storage import StorageOptions

Kind = Literal["jsonl", "csv", "parquet"]
ENDINGS: dict[Kind, tuple[str, ...]] = {"jsonl": JSONL, "csv": CSV, "parquet": PARQUET}
TITLES: dict[Kind, str] = {"jsonl": "JSON Lines", "csv": "CSV", "parquet": "Parquet"}


def kind_by_name(name: str) -> Kind | None:
    """Return what a file or a pattern is called after.

    >>> kind_by_name("logs/*.jsonl.zst"), kind_by_name("a.CSV"), kind_by_name("logs")
    ('jsonl', 'csv', None)
    """
    lower = name.lower()
    return next((kind for kind, ends in ENDINGS.items() if lower.endswith(ends)), None)


def list_of_one_kind(path: str, options: StorageOptions) -> tuple[Kind, Listing]:
    """Return all files that `penstock.open` would read, and what they are.

    Files of several kinds are refused, with the pattern that chooses.
    """
    refuse_tokens_by_name(path, options)
    listing = list_files(path, (), options)
    counts = {
        kind: sum(kind_by_name(found.entry.name) == kind for found in listing.files)
        for kind in ENDINGS
    }
    present = [kind for kind, count in counts.items() if count]
    if len(present) > 1:
        told = " and ".join(f"{counts[kind]:,} of {TITLES[kind]}" for kind in present)
        example = f"{path.rstrip('/')}/**/*{ENDINGS[present[0]][0]}"
        raise OptionError(f"{path} holds {told}. Choose by a pattern: '{example}'")
    if present:
        return present[0], only(listing, present[0], path, options)
    if listing.folder is not None or not listing.files:
        refuse_folder_of_tokens(path, options)
        ends = ", ".join(end for ends in ENDINGS.values() for end in ends)
        raise ObjectNotFoundError(f"{path} holds no files with records ({ends}).", path=path)
    return "jsonl", listing  # A file is what its user says, whatever its name.


def kind_of(path: str, options: StorageOptions) -> Kind:
    """Return how a look at PATH reads it: JSON Lines, unless nothing but tables is there."""
    named = kind_by_name(path)
    if named is not None:
        return named
    store, name = locate(path, options)
    try:
        # Shallow first: below a directory there may be no end of files.
        if not is_pattern(path) and any(is_jsonl(entry.name) for entry in store.list(name)):
            return "jsonl"
        listing = list_files(path, (), options)
    except ObjectNotFoundError:
        return "jsonl"  # A file, or nothing; whoever reads it will tell.
    kinds = {kind for found in listing.files if (kind := kind_by_name(found.entry.name))}
    if "jsonl" in kinds or not kinds:
        return "jsonl"
    if len(kinds) > 1:
        raise OptionError(f"{path} holds CSV and Parquet. Choose by a pattern: '{path}/**/*.csv'")
    return kinds.pop()


def only(listing: Listing, kind: Kind, path: str, options: StorageOptions) -> Listing:
    """Return the files of one kind among those of a PATH."""
    files = [found for found in listing.files if kind_by_name(found.entry.name) == kind]
    if listing.folder is not None or len(files) == len(listing.files):
        return replace(listing, files=files)
    # What relative paths are relative to depends on which files there are.
    return list_files(path, ENDINGS[kind], options)


def scanner_of(
    kind: Kind, made_with: dict[str, object] | None = None, names: Sequence[str] = ()
) -> Scanner:
    """Return what finds records; `made_with` are the options of an index that is there.

    Without one, CSV files whose names all say so have tabs, as for `penstock.open`.
    """
    if kind == "jsonl":
        return LineScanner()
    from penstock.index import CsvScanner  # noqa: PLC0415 (pyarrow)

    if made_with is None and names and all(name.lower().endswith(".tsv") for name in names):
        made_with = {"delimiter": "\t"}
    return CsvScanner(**(made_with or {}))  # type: ignore[arg-type]
