"""`penstock check`: what is wrong."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.cli._formats import kind_of, list_of_one_kind
from penstock.cli._other_sources import eos_of, other_source
from penstock.cli._paths import entry_of, find
from penstock.cli._terminal import Progress, echo, echo_json
from penstock.cli._token_paths import missing_index, unnamed_files
from penstock.cli._units import bytes_text, counted, parse_share
from penstock.cli._verb import (
    FAILED,
    FINDINGS,
    FINE,
    Verb,
    examples,
    json_option,
    silence_stdout,
    storage_option,
)
from penstock.cli.check._parts import Finding, Sample, line_parts
from penstock.cli.check._run import PART_BYTES, Report, check_parts
from penstock.cli.info._index_facts import index_facts
from penstock.cli.info._known_facts import leftovers_of
from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError, StaleIndexError
from penstock.index import JSONL, hashed_files, leftover_problem, list_files, load_place
from penstock.storage import drafts_in, hidden_folders_in, is_hidden_folder, is_remote, locate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.cli._formats import Kind as FileKind
    from penstock.cli._indexed import Indexed
    from penstock.cli.check._parts import CheckPart, Kind
    from penstock.index import Hashed, Meta
    from penstock.jsonl import JsonlFile
    from penstock.storage import Leftover, StorageOptions


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is checked, and how."""

    path: str
    most: int
    sample: Sample | None
    workers: int | None
    options: StorageOptions
    as_json: bool


@click.command(
    cls=Verb,
    epilog=examples(
        "penstock check logs",
        "penstock check 'logs/*.jsonl.zst' --max 100",
        "penstock check s3://bucket/logs --sample 1% --json",
    ),
)
@click.argument("path")
@click.option(
    "--max",
    "most",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="Findings to show; all are counted.",
)
@click.option(
    "--sample",
    type=parse_share,
    metavar="SHARE",
    help="Check only this share of the lines (1%, 0.01); damage, and what hashes tell, is still "
    "found everywhere.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sample.")
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    metavar="N",
    help="Processes that read; by default one a processor, and none for little.",
)
@storage_option
@json_option
def check(  # noqa: PLR0913 (one argument an option)
    *,
    path: str,
    most: int,
    sample: float | None,
    seed: int,
    workers: int | None,
    storage_options: StorageOptions,
    as_json: bool,
) -> int:
    """Read all of PATH and report what is wrong with it.

    Malformed lines, lines that hold something else than an object, damaged and truncated files, an
    index that cannot be used, and what killed writers left behind. Where the index of PATH itself
    was built with --full-hash, also files that are gone, shrank, or have other bytes than were
    indexed; a file or a pattern is not compared with the index of its folder. Of CSV, rows with
    more or fewer fields than the header, text that is not UTF-8, and quotes that are never closed;
    of Parquet, row groups that cannot be read, and files whose schemas do not go together. Exit
    code 1 means that something was found.
    """
    if (other := other_source(path, storage_options)) is not None:
        from penstock.cli.check._tokens import check_source  # noqa: PLC0415 (only for those)

        left = [
            *_left(path, leftovers_of(path, None), storage_options),
            *_unnamed(path, other.files, storage_options),
        ]
        return check_source(path, other, eos_of(path, storage_options), left, as_json=as_json)
    chosen = None if sample is None else Sample(sample, str(seed))
    asked = _Asked(path, most, chosen, workers, storage_options, as_json)
    report = Report(most, _quiet if as_json else _tell)
    try:
        _check(asked, report)
    except BrokenPipeError:
        silence_stdout()  # Who reads has seen enough; what was found still counts.
    if report.errors:
        return FAILED
    return FINDINGS if report.kinds else FINE


def _tell(finding: Finding) -> None:
    echo(str(finding))


def _quiet(_: Finding) -> None:
    """Say nothing: it stands in the document."""


def _check(asked: _Asked, report: Report) -> None:
    kind = kind_of(asked.path, asked.options)
    if problem := missing_index(asked.path, asked.options):
        report.add(Finding("missing index", asked.path, None, problem))
    indexed = _index(asked, report)
    meta = None if indexed is None else indexed.meta
    files, parts, leftovers = _parts(asked, kind, meta, report)
    hashed = [] if indexed is None or meta is None else hashed_files(indexed.listing, meta)
    total = sum(part.size for part in parts) + sum(one.was.size for one in hashed)
    with Progress(total) as progress:
        check_parts(parts, report, progress.add, asked.workers)
        _compare(hashed, report, progress)
    if asked.sample is None and indexed is not None:
        _count(asked, indexed, report)
    left = [*leftovers, *leftovers_of(asked.path, indexed)]
    for finding in _left(asked.path, left, asked.options):
        report.add(finding)
    for text in report.errors.values():
        echo(f"penstock: {asked.options.redact(text)}", err=True)
    set_aside = meta.bad_lines if meta is not None and meta.validated else None
    if asked.as_json:
        echo_json(_document(asked, files, report, set_aside))
        return
    echo(_summary(asked, kind, files, report))
    if set_aside:
        lines = f"{counted(set_aside, 'line')} {'is' if set_aside == 1 else 'are'}"
        echo(f"{lines} set aside in bad_lines.ndjson of the index, and no records")


def _compare(hashed: Sequence[Hashed], report: Report, progress: Progress) -> None:
    """Read files whose every byte was hashed, and report those that are not the same any more."""
    for one in hashed:
        try:
            if (reason := one.change()) is not None:
                kind: Kind = "changed file" if one.found else "missing file"
                report.add(Finding(kind, one.path, None, reason))
        except OSError as why:
            report.errors.setdefault(one.path, str(why))
        progress.add(one.was.size)


def _count(asked: _Asked, indexed: Indexed, report: Report) -> None:
    """Report an index of other lines than there are, as after one was blanked in place."""
    meta, unread = indexed.meta, {"damaged file", "missing file"} & report.kinds.keys()
    if meta is None or meta.kind != "jsonl" or indexed.is_stale or indexed.since.new:
        return
    lines = meta.records + meta.bad_lines
    seen = report.records + report.kinds["malformed line"]
    if lines != seen and not unread and not report.errors:
        reason = (
            f"it has {counted(lines, 'line')}, and the files hold {seen:,}: bytes changed in "
            f"place. Build it again: penstock index {shlex.quote(asked.path)} --overwrite"
        )
        report.add(Finding("unusable index", indexed.place.folder, None, reason))


def _unnamed(path: str, files: Sequence[str], options: StorageOptions) -> Iterator[Finding]:
    """Yield token files that nobody reads."""
    for file in unnamed_files(path, files, options):
        yield Finding("unknown file", file, None, "the index does not name this token file")


def _left(path: str, leftovers: Sequence[Leftover], options: StorageOptions) -> Iterator[Finding]:
    """Yield what is left of writers that are gone; builders in PATH itself are looked for here."""
    builders = [] if is_remote(path) else hidden_folders_in(locate(path)[1])
    every = {one.entry.name: one for one in [*leftovers, *builders]}
    for entry, writer in every.values():
        if writer == "gone":
            reason = f"{bytes_text(entry.size)} of a writer that is gone; penstock clean removes it"
            if is_hidden_folder(entry.name):
                reason += ", and the command that was killed goes on with it"
            reason = leftover_problem(entry.name, options) or reason
            yield Finding("leftover", entry.name, None, reason)


def _parts(
    asked: _Asked, kind: FileKind, meta: Meta | None, report: Report
) -> tuple[int, Sequence[CheckPart], Sequence[Leftover]]:
    """Return how many files there are, what is to be looked at, and what writers left."""
    if kind == "jsonl":
        if "missing index" in report.kinds and not _has_lines(asked):
            return 0, [], []
        found = find(asked.path, asked.options)
        parts = list(line_parts(found, _size, asked.sample, PART_BYTES))
        return len(found.files), parts, found.leftovers()
    from penstock.cli.check._tables import csv_parts, parquet_parts  # noqa: PLC0415 (pyarrow)

    _, listing = list_of_one_kind(asked.path, asked.options)
    tables: list[Any] = []
    if kind == "csv":
        if asked.sample is not None:
            raise OptionError(
                "--sample: where rows of CSV begin is known only after reading all before them. "
                "Check all of it."
            )
        tables += csv_parts(asked.path, listing, _dialect(meta, [f.path for f in listing.files]))
    else:
        for one in parquet_parts(asked.path, listing.files, asked.sample, PART_BYTES):
            if isinstance(one, Finding):
                report.add(one)
            elif isinstance(one, tuple):
                report.errors.setdefault(*one)
            else:
                tables.append(one)
    beside = [] if is_remote(asked.path) or listing.folder is None else [locate(asked.path)[1]]
    leftovers = [one for directory in beside for one in drafts_in(directory)]
    return len(listing.files), tables, leftovers


def _has_lines(asked: _Asked) -> bool:
    return bool(list_files(asked.path, JSONL, asked.options).files)


def _dialect(meta: Meta | None, names: Sequence[str]) -> dict[str, Any]:
    """Return how CSV is written: as its index says, or as its names do."""
    if meta is not None:
        return meta.options
    return {"delimiter": "\t"} if all(name.lower().endswith(".tsv") for name in names) else {}


def _size(file: JsonlFile) -> int:
    try:
        return entry_of(file).size
    except OSError:
        return 0  # Told when it is read.


def _index(asked: _Asked, report: Report) -> Indexed | None:
    """Return the index of PATH; one that nothing opens is reported, and none."""
    _, indexed, problem = index_facts(asked.path, asked.options, None)
    try:
        if indexed is not None:
            load_place(indexed.place)
    except StaleIndexError:
        pass  # Told by `penstock info`, and by whoever needs it.
    except (CorruptIndexError, ObjectNotFoundError) as why:
        indexed, problem = None, asked.options.redact(str(why))
    if problem is not None and "missing index" not in report.kinds:  # Tokens were told of above.
        report.add(Finding("unusable index", asked.path, None, problem))
    return indexed


def _document(
    asked: _Asked, files: int, report: Report, set_aside: int | None
) -> dict[str, object]:
    return {
        "path": asked.path,
        "files": files,
        "records": report.records,
        "text_bytes": report.text_bytes,
        "sample": None if asked.sample is None else asked.sample.share,
        "findings": report.kinds.total(),
        "kinds": dict(report.kinds),
        "shown": [msgspec.to_builtins(finding) for finding in report.shown],
        "set_aside": set_aside,
        "errors": [{"path": name, "error": text} for name, text in report.errors.items()],
    }


def _summary(asked: _Asked, kind: FileKind, files: int, report: Report) -> str:
    total = report.kinds.total()
    sample = ""
    if asked.sample is not None:
        those = "row groups" if kind == "parquet" else "lines"
        sample = f" in a sample of {100 * asked.sample.share:g} % of the {those}"
    what = "values" if kind == "parquet" else "text"
    seen = (
        f"{asked.path}: {counted(files, 'file')}, {counted(report.records, 'record')}"
        f"{sample}, {bytes_text(report.text_bytes)} of {what}"
    )
    if not total:
        return f"{seen}: nothing wrong" if not report.errors else f"{seen}: not all could be read"
    kinds = ", ".join(counted(count, kind) for kind, count in report.kinds.items())
    hidden = f" ({total - len(report.shown):,} not shown)" if total > len(report.shown) else ""
    return f"{seen}: {counted(total, 'finding')}{hidden}: {kinds}"
