"""Reports of `penstock info` on CSV, Parquet, tokens and MDS folders."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.cli._by_number import by_number
from penstock.cli._paths import Indexed, as_typed, leftover_document, leftovers_of
from penstock.cli._terminal import Report
from penstock.cli._units import age_text, bytes_text, counted, few
from penstock.datasets import column_folders, is_tokens, known_profile, list_columns_of, open_found
from penstock.errors import CorruptIndexError
from penstock.storage import Leftover, bytes_and_time, locate

if TYPE_CHECKING:
    from penstock.datasets import ListedColumn, Source, TokenSource
    from penstock.index import Detected, Format

WIDTH = 12
"""Width of the column of row names."""
_FEW_FILES = 20
_STEP = 1 << 20


@dataclass(frozen=True, slots=True)
class InfoFile:
    """The facts of one file."""

    path: str
    records: int | None
    bytes: int
    modified: float
    text_bytes: int | None = None
    compression: str = ""
    """Of a file of lines: `none`, or its name, with `, seekable` behind it."""

    def document(self) -> dict[str, object]:
        """Return the facts for a program."""
        facts = asdict(self)
        if self.compression:
            name, _, seekable = self.compression.partition(", ")
            return facts | {"compression": name, "seekable": bool(seekable) or name == "none"}
        del facts["text_bytes"], facts["compression"]
        return facts

    def cells(self, folder: str) -> list[str]:
        """Return the facts as a row of a table; the name is that below the folder."""
        label = self.path.removeprefix(f"{folder.rstrip('/')}/")
        records = "–" if self.records is None else f"{self.records:,}"
        text = "–" if self.text_bytes is None else bytes_text(self.text_bytes)
        lines = [text, self.compression] if self.compression else []
        return [label, records, bytes_text(self.bytes), *lines]


def sum_known(values: Sequence[int | None]) -> int | None:
    """Return a sum, or None where a value is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def add_files(report: Report, path: str, files: Sequence[InfoFile], header: list[str]) -> None:
    """Report files one by one, as a table where they are few."""
    report.data(per_file=[file.document() for file in files])
    if 1 < len(files) <= _FEW_FILES:
        report.line("")
        report.table(header, [file.cells(path) for file in files])


def add_records(report: Report, records: int | None, stored: int) -> None:
    """Report how many records there are, and their bytes."""
    counted_text = "not counted" if records is None else f"{records:,}"
    report.row("records", counted_text, records=records)
    report.row("stored", bytes_text(stored), bytes=stored)


class PathIndex(NamedTuple):
    """The index of a PATH, or why it cannot be used, or neither."""

    path: str
    found: Indexed | None
    problem: str | None

    def known_records(self, at_path: Detected) -> Source | None:
        """Return the records of a local and fresh index of Penstock, without files that are new."""
        found = self.found
        if found is None or found.meta is None or found.place.is_remote or found.is_stale:
            return None
        files = [one for one in found.listing.files if one not in found.since.new]
        return replace(found, listing=replace(found.listing, files=files)).source(at_path)

    def add_to(self, report: Report) -> None:
        """Report the index, its age, and the files that changed since."""
        if self.found is None:
            problem = None if self.problem is None else {"problem": self.problem}
            report.data(index=problem)
            if problem:
                report.row("index", f"cannot be used: {self.problem}")
            return
        found, since, meta = self.found, self.found.since, self.found.meta
        where = found.place.folder
        where = as_typed(self.path, where) if found.place.beside else where
        changed = {self._typed(name): what for name, what in since.changed}
        grown = [as_typed(self.path, one.path) for one in since.grown]
        new = [as_typed(self.path, one.path) for one in since.new]
        state = ", up to date" * (not (found.is_stale or new))
        state = ", made by another tool" if meta is None else state
        bad_lines = meta.bad_lines if meta is not None and meta.validated else None
        age = age_text(time.time() - found.created)
        report.row(
            "index",
            f"{where}: {counted(found.records, 'record')}, built {age} ago{state}",
            index={
                "path": found.place.folder,
                "records": found.records,
                "created": found.created,
                "fingerprint": None if meta is None else meta.fingerprint,
                "fresh": None if meta is None else not found.is_stale,
                "bad_lines": bad_lines,
                "profiled": meta is not None and meta.profiled,
                "made_by": "open" if found.is_own else meta and (meta.made_by or "index"),
                "changed": [{"path": path, "what": what} for path, what in changed.items()],
                "grown": grown,
                "new": new,
                "problem": None,
            },
        )
        if bad_lines is not None:
            aside = f"{bad_lines:,} set aside: {where}/bad_lines.ndjson"
            report.row("bad lines", aside if bad_lines else "none")
        became = changed | dict.fromkeys(grown, "grew")
        stale = [f"{path} ({what})" for path, what in became.items()]
        if stale:
            report.row("stale", f"{counted(len(stale), 'file')}: {few(stale, 5)}")
        if new:
            report.row("new", f"{counted(len(new), 'file')} not in it: {few(new, 5)}")
        if stale or new:
            command = f"penstock index {shlex.quote(self.path)} {found.remedy}"
            own = "none needed: penstock.open made this index, and refreshes it"
            report.row("remedy", own if found.is_own else command)

    def kept(self, columns: Sequence[ListedColumn]) -> list[dict[str, Any]]:
        """Return where Penstock keeps index and columns of these records."""
        kept, roots = [], {Path(column.folder) for column in columns}
        if self.found is not None:
            place = self.found.place
            roots.update(filter(Path.is_dir, column_folders(place)))  # Those of a stale index, too.
            if place.is_remote:
                store, name = locate(place.folder, place.options)
                size = sum(entry.size for entry in store.list(name))
            else:
                folder = Path(place.folder)
                size = bytes_and_time(folder)[0] - bytes_and_time(folder / "columns")[0]
            kept.append(("index", place.folder, size))
        kept += [("columns", str(root), bytes_and_time(root)[0]) for root in sorted(roots)]
        return [dict(zip(("what", "path", "bytes"), one, strict=True)) for one in kept]

    def _typed(self, name: str) -> str:
        """Return the path of a file that changed; that of a missing one is relative."""
        if self.found is not None and "://" not in name and not name.startswith("/"):
            name = f"{self.found.listing.base}/{name}"
        return as_typed(self.path, name)


def add_left_out(report: Report, path: str, at_path: Detected) -> None:
    """Report the files that lie beside those of the source."""
    report.data(left_out=[as_typed(path, one.path) for one in at_path.others])
    if at_path.others:
        report.row("left out", at_path.left_out())


def add_known(
    report: Report, index: PathIndex, source: Source | None, drafts: Sequence[Leftover] = ()
) -> None:
    """Report columns and profile of a source, and leftovers."""
    columns = [] if source is None else list_columns_of(source)
    size = sum(column.meta.bytes for column in columns)
    stale = sum(bool(column.stale) for column in columns)
    folders = sorted({column.folder for column in columns})
    held = {"columns": len(columns), "bytes": size, "stale": stale, "folders": folders}
    kept = index.kept(columns)
    report.data(materialized=held, profile=None, kept=kept)
    for one in kept:
        report.row("kept", f"{one['what']}, {bytes_text(one['bytes'])}: {one['path']}")
    if columns:
        text = f"{counted(len(columns), 'column')}, {bytes_text(size)}"
        report.row("materialised", text + f", {stale:,} of them stale" * bool(stale))
    try:
        profile = None if source is None else known_profile(source)
    except CorruptIndexError as failure:
        profile, problem = None, {"problem": str(failure)}
        report.row("profile", f"cannot be used: {failure}", profile=problem)
    if profile is not None:
        found = profile.document
        drift = sum(one["level"] == "warning" for one in found["drift"])
        text = f"drift in {counted(drift, 'place')}" if drift else "no drift"
        facts = {"records": found["records"], "fields": len(found["fields"]), "drift": drift}
        report.row(
            "profile",
            f"made {age_text(time.time() - profile.created)} ago, {text}",
            profile={"created": profile.created, **facts},
        )
    _add_leftovers(report, [*drafts, *leftovers_of(index.path, index.found, folders)])


def _add_leftovers(report: Report, leftovers: Sequence[Leftover]) -> None:
    report.data(leftovers=[leftover_document(one) for one in leftovers])
    for entry, writer in leftovers:
        report.row("leftover", f"{entry.name}, {bytes_text(entry.size)}, writer {writer}")
    if any(one.writer == "gone" for one in leftovers):
        report.line("  (penstock clean removes what dead writers left)")


def table_report(kind: Format, index: PathIndex, at_path: Detected, *, count: bool) -> Report:
    """Report CSV or Parquet; without `count` CSV without an index is not read."""
    path = index.path
    listing = index.found.listing if index.found else at_path.checked().listing
    rows: dict[str, int] | None = None
    columns: list[list[str]] | None = None
    known: Source | None = None
    is_cheap = kind.scanner is None or (index.found is not None and not index.found.is_stale)
    if count or is_cheap:
        with by_number(path, at_path) as opened:
            if opened is not None:
                rows, columns = _records_by_file(opened.source), _columns(opened.source)
                known = opened.source if is_cheap else None
    files = [
        InfoFile(
            as_typed(path, found.path),
            None if rows is None else rows.get(found.path, 0),
            found.entry.size,
            found.entry.modified,
        )
        for found in listing.files
    ]
    report = Report(path, width=WIDTH, path=path)
    report.row("format", kind.title, format=kind.name)
    report.row("files", f"{len(files):,}", files=len(files))
    add_records(
        report, sum_known([file.records for file in files]), sum(file.bytes for file in files)
    )
    if columns is not None:
        report.row("columns", f"{len(columns):,}")
    if kind.dialect is not None:
        meta = index.found.meta if index.found else None
        dialect = at_path.scanner(None if meta is None else meta.options).options()
        signs = [one for one in dialect.items() if one != ("column_names", None)]
        shown = [f"{name} {value!r}" for name, value in signs]
        report.row("dialect", ", ".join(shown), dialect=dialect)
    index.add_to(report)
    add_left_out(report, path, at_path)
    add_known(report, index, known)
    _add_columns(report, columns)
    add_files(report, path, files, ["file", "records", "stored"])
    return report


def _columns(source: Source) -> list[list[str]]:
    return [[field.name, str(field.type)] for field in source.schema]


def _add_columns(report: Report, columns: Sequence[Sequence[str]] | None) -> None:
    documents = [{"name": name, "type": type_} for name, type_ in columns or ()]
    report.data(columns=None if columns is None else documents)
    if columns:
        report.line("")
        report.table(["column", "type"], columns)


def _records_by_file(source: Source) -> dict[str, int]:
    blocks, names = source.blocks, source.files
    counts = np.zeros(len(names), np.int64)
    if len(blocks) > 1:
        of_block = np.asarray(source.location(blocks[:-1]).file, np.int64)
        np.add.at(counts, of_block, np.diff(blocks))
    return dict(zip(names, counts.tolist(), strict=True))


def source_report(path: str, found: Detected) -> Report:
    """Report tokens, or an MDS folder."""
    source, files = open_found(found), []
    for file, count in _records_by_file(source).items():
        store, name = locate(file, found.options)
        entry = store.entry(name)
        files.append(InfoFile(as_typed(path, file), count, entry.size, entry.modified))
    meta = source.index_meta
    stored = sum(file.bytes for file in files)
    report = Report(path, width=WIDTH, path=path, records=len(source), bytes=stored)
    report.data(fingerprint=source.fingerprint)
    report.row("format", found.format.title, format=found.format.name)
    report.row("files", f"{len(files):,}", files=len(files))
    if is_tokens(source):
        _add_tokens(report, source)
    else:
        report.row("samples", f"{len(source):,}")
    report.row("stored", bytes_text(stored))
    if meta is not None:
        report.row("made", f"{age_text(time.time() - meta.created)} ago")
    add_known(report, PathIndex(path, None, None), None if is_tokens(source) else source)
    if not is_tokens(source):
        _add_columns(report, _columns(source))
    add_files(report, path, files, ["file", "samples", "stored"])
    return report


def _add_tokens(report: Report, source: TokenSource) -> None:
    meta = source.index_meta
    size, documents, made = source.sample_size, source.documents, meta and meta.tokens
    each = "a document each" if size is None else f"of {counted(size, 'token')}"
    if documents not in (None, len(source)):
        each = "a sequence each" if size is None else f"sequences {each}"
    steps = (range(at, min(at + _STEP, len(source))) for at in range(0, len(source), _STEP))
    tokens = sum(int(source.lengths(np.array(step)).sum()) for step in steps)  # Without padding.
    report.row("samples", f"{len(source):,}, {each}", sample_size=size)
    report.row(
        "tokens",
        f"{tokens:,} ({source.token_dtype.name})",
        tokens=tokens,
        dtype=source.token_dtype.name,
    )
    documents = made.documents if made else documents
    if documents is not None:
        report.row("documents", f"{documents:,}")
    facts: dict[str, Any] = dict.fromkeys(("eos", "padding", "dropped"))
    if made:
        facts = {"eos": made.eos, "padding": made.padding, "dropped": made.dropped}
        if made.packing is not None:
            report.row("packing", f"{made.packing}, EOS {made.eos}")
        if made.padding:
            share = made.padding / (made.padding + made.tokens)
            report.row("padding", f"{counted(made.padding, 'token')} ({share:.2%})")
        if made.dropped:
            report.row("dropped", f"{counted(made.dropped, 'token')} behind the last full sample")
        if made.trained:
            share = made.trained.tokens / max(1, made.tokens)
            trained = f"{counted(made.trained.tokens, 'token')} ({share:.2%})"
            report.row("trained", trained, trained=made.trained.tokens)
        if meta and meta.bad_lines:
            report.row("bad lines", f"{meta.bad_lines:,} left out")
    report.data(
        documents=documents,
        packing=made and made.packing,
        **facts,
        bad_lines=meta and meta.bad_lines,
        created=meta and meta.created,
    )
