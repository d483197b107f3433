"""The columns of CSV files together, and the parsers that read the rows of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.datasets.fields._grammar import arrow_type
from penstock.datasets.text._csv_parser import CsvParser
from penstock.decode import NumbersType
from penstock.errors import OptionError
from penstock.index.csv import Dialect, type_of, type_over_files

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index import Meta


class Layout(NamedTuple):
    """How the rows of all files are read."""

    schema: pa.Schema
    """The columns of all files together."""
    values: pa.Schema
    """The same for values: integers stay integers although floats can hold them."""
    parsers: list[tuple[CsvParser, pa.Schema]]
    """Parsers of rows, each with the types of its files."""
    of_file: NDArray[np.int64]
    """The parser of each file."""


def layout_of(meta: Meta, paths: Sequence[str], in_folders: Mapping[str, pa.DataType]) -> Layout:
    """Return how the files of an index are read together.

    `in_folders` are the fields that the names of folders give.
    """
    types, large = _types(meta, paths, in_folders)
    mixed = [name for name, type_ in types.items() if isinstance(type_, NumbersType)]
    # Floats equal all integers of the files that have some.
    plain = {name: pa.float64() for name in mixed if name not in large}
    numbers: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
    of_file = np.zeros(len(meta.files), np.int64)
    for at, file in enumerate(meta.files):
        columns = tuple(file.facts["columns"])
        kind_of = dict(zip(columns, file.facts["types"], strict=True))
        key = (columns, tuple(kind_of.get(name, "null") for name in mixed))
        of_file[at] = numbers.setdefault(key, len(numbers))
    dialect = _dialect(meta.options)
    # Looking at quotes again takes half of the time that reading does.
    are_sound = all(file.facts.get("misquoted") == 0 for file in meta.files)
    parsers = [
        (
            CsvParser(columns, dialect, are_sound=are_sound),
            pa.schema([*(types | dict(zip(mixed, map(type_of, own), strict=True))).items()]),
        )
        for columns, own in numbers or [((), ["null"] * len(mixed))]
    ]
    values = pa.schema([*types.items()])
    return Layout(pa.schema([*(types | plain).items()]), values, parsers, of_file)


def _types(
    meta: Meta, paths: Sequence[str], in_folders: Mapping[str, pa.DataType]
) -> tuple[dict[str, pa.DataType], set[str]]:
    """Return the type of each column, and the columns that may hold integers no float equals."""
    options = meta.options
    kinds: dict[str, dict[str, str]] = {}
    """For each column its kinds, and the first file that has each."""
    large: set[str] = set()
    for path, file in zip(paths, meta.files, strict=True):
        columns = file.facts["columns"]
        large.update(file.facts.get("large", columns))
        for name, kind in zip(columns, file.facts["types"], strict=True):
            kinds.setdefault(name, {}).setdefault(kind, path)
    for file in [] if kinds else meta.empty:  # A header alone has names, too.
        kinds |= {name: {"null": ""} for name in file.facts.get("columns", ())}
    for name, type_ in in_folders.items():
        kinds.setdefault(name, {}).setdefault(str(type_), "the names of its folders")
    types = {name: type_over_files(seen) for name, seen in kinds.items()}
    for name, text in options.get("types", {}).items():
        if name not in types:
            there = ", ".join(list(types)[:20])
            raise OptionError(f"types= names {name!r}, and no file has that column: {there}.")
        types[name] = arrow_type(text)
    return types, large


def _dialect(options: Mapping[str, Any]) -> Dialect:
    signs = (options["delimiter"], options["quote"], options["escape"])
    nulls, number_nulls = options.get("null_values", ()), options.get("number_nulls", ())
    return Dialect(*signs, tuple(nulls), options.get("empty_text", False), tuple(number_nulls))
