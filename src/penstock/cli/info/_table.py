"""What `penstock info` shows of records with columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.cli._by_number import by_number
from penstock.cli._paths import as_typed
from penstock.cli._terminal import echo, echo_json, table
from penstock.cli._units import bytes_text
from penstock.cli.info._known_facts import (
    KnownFacts,
    facts_of_index,
    facts_of_source,
    leftover_document,
    leftover_text,
)

if TYPE_CHECKING:
    from penstock.cli.info._index_facts import IndexFacts
    from penstock.datasets import Source
    from penstock.index import Detected, Format

_FEW_FILES = 20


class _File(NamedTuple):
    """What is known of one file."""

    path: str
    rows: int | None
    bytes: int
    modified: float


def tell_of_table(
    kind: Format, facts: IndexFacts, at_path: Detected, *, count: bool, as_json: bool
) -> None:
    """Print files, rows, bytes and columns; without `count` nothing is read for that."""
    listing = facts.found.listing if facts.found else at_path.checked().listing
    rows: dict[str, int] | None = None
    columns: list[tuple[str, str]] | None = None
    known: KnownFacts | None = None
    is_cheap = kind.scanner is None or (facts.found is not None and not facts.found.is_stale)
    if count or is_cheap:
        with by_number(facts.path, at_path) as opened:
            if opened is not None:
                rows = _rows(opened.source)
                columns = [(field.name, str(field.type)) for field in opened.source.schema]
                if is_cheap:
                    known = facts_of_source(facts.path, facts.found, opened.source)
    if known is None:
        known = facts_of_index(facts.path, None, at_path.options)
    files = [
        _File(
            as_typed(facts.path, found.path),
            None if rows is None else rows.get(found.path, 0),
            found.entry.size,
            found.entry.modified,
        )
        for found in listing.files
    ]
    if as_json:
        echo_json(
            _document(kind, facts, files, columns)
            | known.document()
            | {"leftovers": [leftover_document(one) for one in known.leftovers]}
        )
    else:
        echo(_summary(kind, facts, files, columns, known))


def _rows(source: Source) -> dict[str, int]:
    """Return the rows of each file."""
    blocks = source.blocks
    if len(blocks) <= 1:
        return {}
    names = source.files
    of_block = np.asarray(source.location(blocks[:-1]).file, np.int64)
    counts = np.zeros(len(names), np.int64)
    np.add.at(counts, of_block, np.diff(blocks))
    return dict(zip(names, counts.tolist(), strict=True))


def _total(files: list[_File]) -> int | None:
    known = [file.rows for file in files if file.rows is not None]
    return sum(known) if len(known) == len(files) else None


def _document(
    kind: Format, facts: IndexFacts, files: list[_File], columns: list[tuple[str, str]] | None
) -> dict[str, object]:
    return {
        "path": facts.path,
        "format": kind.name,
        "files": len(files),
        "records": _total(files),
        "bytes": sum(file.bytes for file in files),
        "columns": None
        if columns is None
        else [{"name": name, "type": kind_} for name, kind_ in columns],
        "per_file": [
            {
                "path": file.path,
                "records": file.rows,
                "bytes": file.bytes,
                "modified": file.modified,
            }
            for file in files
        ],
        "index": facts.document(),
        "errors": [],
    }


def _summary(
    kind: Format,
    facts: IndexFacts,
    files: list[_File],
    columns: list[tuple[str, str]] | None,
    known: KnownFacts,
) -> str:
    total = _total(files)
    told = [
        ("format", kind.title),
        ("files", f"{len(files):,}"),
        ("records", "not counted" if total is None else f"{total:,}"),
        ("stored", bytes_text(sum(file.bytes for file in files))),
        *([] if columns is None else [("columns", f"{len(columns):,}")]),
        *facts.lines(),
        *known.lines(),
        *(("leftover", leftover_text(leftover)) for leftover in known.leftovers),
    ]
    lines = [facts.path, *(f"  {name:12} {value}" for name, value in told)]
    if columns:
        lines += ["", table(["column", "type"], [list(column) for column in columns])]
    if 1 < len(files) <= _FEW_FILES:
        rows = [
            [file.path, "–" if file.rows is None else f"{file.rows:,}", bytes_text(file.bytes)]
            for file in files
        ]
        lines += ["", table(["file", "records", "stored"], rows)]
    return "\n".join(lines)
