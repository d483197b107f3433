"""`penstock check`: bad lines, damaged files, leftovers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.cli._paths import Indexed, as_typed, find, index_or_problem, leftovers_of, look_at
from penstock.cli._terminal import Progress, Report, echo
from penstock.cli._units import bytes_text, counted, parse_share
from penstock.cli._verb import (
    FAILED,
    FINDINGS,
    FINE,
    FROM_0,
    option,
    silence_stdout,
    verb,
    workers_option,
)
from penstock.cli.check._misfits import check_fit
from penstock.cli.check._parts import (
    PART_BYTES,
    Finding,
    Findings,
    Sample,
    ToCheck,
    check_parts,
    line_parts,
)
from penstock.datasets import Source, TokenSource, is_tokens, open_found
from penstock.errors import CorruptIndexError, ObjectNotFoundError, StaleIndexError
from penstock.index import (
    LINES,
    TOKEN_FOLDER,
    hashed_files,
    leftover_problem,
    load,
    load_place,
    problems_of,
)
from penstock.storage import drafts_in, hidden_folders_in, is_hidden_folder, is_remote, join, locate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.cli.check._parts import CheckPart, Kind
    from penstock.index import Detected, Hashed, Meta
    from penstock.storage import Leftover, StorageOptions


_STEP_TOKENS = 1 << 22
_STEP = 1024


@dataclass(frozen=True, slots=True)
class CheckTask:
    """The options of the verb, by their names."""

    path: str
    sample: float | None
    seed: int
    workers: int | None
    storage_options: StorageOptions
    as_json: bool


@verb(
    "penstock check logs",
    "penstock check 'logs/*.jsonl.zst' --max 100",
    "penstock check s3://bucket/logs --sample 1% --json",
    "penstock check logs --schema schema.json",
)
@option("--max N", "Findings to show; all are counted.", dest="most", type=FROM_0, default=20)
@option(
    "--sample SHARE",
    "Check only this share of the records (1%, 0.01), where all of them take too long; damaged "
    "files and changed bytes are still found everywhere.",
    type=parse_share,
)
@option("--seed", "Seed of the sample; another one checks other records.", default=0)
@option(
    "--schema FILE",
    "Report records that this schema cannot encode, in place of damage: a file of "
    "SchemaModel.save, or of penstock profile --as schema --json.",
)
@workers_option("read")
def check(*, most: int, schema: str | None, **given: Any) -> int:  # noqa: ANN401 (those of `CheckTask`)
    """Read all of PATH and report what is wrong with it.

    Malformed lines, lines that hold something else than an object, damaged and truncated files, an
    index that cannot be used, and what killed writers left behind. Where the index of PATH itself
    was built with --full-hash, also files that are gone, shrank, or have other bytes than were
    indexed; a file or a pattern is not compared with the index of its folder. Of tables, text that
    is not UTF-8; of CSV, rows with more or fewer fields than the header, and quotes that are never
    closed; of Parquet and the like, row groups that cannot be read, and files whose schemas do not
    go together. Exit code 1 means that something was found.
    """
    task = CheckTask(**given)
    findings = Findings(most, (lambda _: None) if task.as_json else lambda one: echo(str(one)))
    try:
        found = look_at(task.path, task.storage_options)
        if schema is not None:
            return check_fit(task, open_found(found.checked()), schema, most)
        problems = problems_of(found.listing, task.storage_options)
        if not (found.format.is_lines or found.format.check or problems):
            return _check_source(task, open_found(found.checked()), most)
        if found.listing.folder is not None:
            for problem in [found.problem] if found.problem else problems:
                findings.add(Finding("missing index", task.path, None, str(problem)))
        _check(task, found, findings)
    except BrokenPipeError:
        silence_stdout()  # The reader has seen enough; findings still decide the exit code.
    if findings.errors:
        return FAILED
    return FINDINGS if findings.kinds else FINE


def _check(task: CheckTask, at_path: Detected, findings: Findings) -> None:
    indexed = _index(task, at_path, findings)
    meta = None if indexed is None else indexed.meta
    files, parts, leftovers = _parts(task, at_path, meta, findings)
    hashed = [] if indexed is None or meta is None else hashed_files(indexed.listing, meta)
    total = sum(part.size for part in parts) + sum(one.was.size for one in hashed)
    with Progress(total) as progress:
        check_parts(parts, findings, progress.add, task.workers)
        _compare(hashed, findings, progress)
    if task.sample is None and indexed is not None:
        _count(task, indexed, findings)
    for finding in _left(task, [*leftovers, *leftovers_of(task.path, indexed)]):
        findings.add(finding)
    for text in findings.errors.values():
        echo(f"penstock: {task.storage_options.redact(text)}", err=True)
    set_aside = meta.bad_lines if meta is not None and meta.validated else None
    report = Report(
        _summary(task, parts, files, findings),
        path=task.path,
        files=files,
        records=findings.records,
        text_bytes=findings.text_bytes,
        sample=task.sample,
        findings=findings.kinds.total(),
        kinds=dict(findings.kinds),
        shown=[msgspec.to_builtins(finding) for finding in findings.shown],
        set_aside=set_aside,
        left_out=[as_typed(task.path, one.path) for one in at_path.others],
        errors=[{"path": name, "error": text} for name, text in findings.errors.items()],
    )
    if set_aside:
        lines = f"{counted(set_aside, 'line')} {'is' if set_aside == 1 else 'are'}"
        report.line(f"{lines} set aside in bad_lines.ndjson of the index, and no records")
    if at_path.others:
        report.line(f"left out: {at_path.left_out()}")
    report.print(as_json=task.as_json)


def _compare(hashed: Sequence[Hashed], findings: Findings, progress: Progress) -> None:
    """Read files whose every byte was hashed, and report those that changed."""
    for one in hashed:
        try:
            if (reason := one.change()) is not None:
                kind: Kind = "changed file" if one.found else "missing file"
                findings.add(Finding(kind, one.path, None, reason))
        except OSError as why:
            findings.errors.setdefault(one.path, str(why))
        progress.add(one.was.size)


def _count(task: CheckTask, indexed: Indexed, findings: Findings) -> None:
    """Report an index that has other lines than the files, as after one was blanked in place."""
    meta, unread = indexed.meta, {"damaged file", "missing file"} & findings.kinds.keys()
    if meta is None or not indexed.format.is_lines or indexed.is_stale or indexed.since.new:
        return
    lines = meta.records + meta.bad_lines
    seen = findings.records + findings.kinds["malformed line"]
    if lines != seen and not unread and not findings.errors:
        reason = (
            f"it has {counted(lines, 'line')}, and the files hold {seen:,}: bytes changed in "
            f"place. Build it again: penstock index {shlex.quote(task.path)} --overwrite"
        )
        findings.add(Finding("unusable index", indexed.place.folder, None, reason))


def _left(task: CheckTask, leftovers: Sequence[Leftover]) -> Iterator[Finding]:
    """Yield leftovers of writers that are gone, those of builders in PATH itself included."""
    builders = [] if is_remote(task.path) else hidden_folders_in(locate(task.path)[1])
    every = {one.entry.name: one for one in [*leftovers, *builders]}
    for entry, writer in every.values():
        if writer == "gone":
            reason = f"{bytes_text(entry.size)} of a writer that is gone; penstock clean removes it"
            if is_hidden_folder(entry.name):
                reason += ", and the command that was killed goes on with it"
            reason = leftover_problem(entry.name, task.storage_options) or reason
            yield Finding("leftover", entry.name, None, reason)


def _parts(
    task: CheckTask, at_path: Detected, meta: Meta | None, findings: Findings
) -> tuple[int, Sequence[CheckPart], Sequence[Leftover]]:
    """Return how many files there are, their parts, and what writers left."""
    check = at_path.format.check
    has_lines = any(LINES.names(one.entry.name) for one in at_path.listing.files)
    if "missing index" in findings.kinds and not check and not has_lines:
        return 0, [], []
    if not check:
        found = find(task.path, task.storage_options, at_path)
        asked = ToCheck(found.found, at_path, None, task.sample, task.seed, PART_BYTES)
        return len(found.files), list(line_parts(asked)), found.leftovers()
    listing = at_path.checked().listing
    files = {as_typed(task.path, one.path): one for one in listing.files}
    made_with = None if meta is None else meta.options
    tables: list[Any] = []
    asked = ToCheck(files, at_path, made_with, task.sample, task.seed, PART_BYTES)
    for one in load(check)(asked):
        if isinstance(one, Finding):
            findings.add(one)
        elif isinstance(one, tuple):
            findings.errors.setdefault(*one)
        else:
            tables.append(one)
    is_folder = listing.folder is not None and not is_remote(task.path)
    return len(listing.files), tables, drafts_in(locate(task.path)[1]) if is_folder else []


def _index(task: CheckTask, at_path: Detected, findings: Findings) -> Indexed | None:
    """Return the index of PATH; one that cannot be opened is a finding, and None."""
    indexed, problem = index_or_problem(task.path, at_path)
    try:
        if indexed is not None:
            load_place(indexed.place)
    except StaleIndexError:
        pass  # `penstock info` shows that, and so does every reader of the index.
    except (CorruptIndexError, ObjectNotFoundError) as why:
        indexed, problem = None, task.storage_options.redact(str(why))
    if problem is not None and "missing index" not in findings.kinds:  # Reported already.
        findings.add(Finding("unusable index", task.path, None, problem))
    return indexed


def _summary(task: CheckTask, parts: Sequence[CheckPart], files: int, findings: Findings) -> str:
    total = findings.kinds.total()
    sample = ""
    if task.sample is not None:
        those = parts[0].sampled if parts else "records"
        sample = f" in a sample of {100 * task.sample:g} % of the {those}"
    what = parts[0].content if parts else "text"
    seen = (
        f"{task.path}: {counted(files, 'file')}, {counted(findings.records, 'record')}"
        f"{sample}, {bytes_text(findings.text_bytes)} of {what}"
    )
    if not total:
        return f"{seen}: nothing wrong" if not findings.errors else f"{seen}: not all could be read"
    kinds = ", ".join(counted(count, kind) for kind, count in findings.kinds.items())
    hidden = f" ({total - len(findings.shown):,} not shown)" if total > len(findings.shown) else ""
    return f"{seen}: {counted(total, 'finding')}{hidden}: {kinds}"


def _unnamed_files(task: CheckTask, source: Source) -> Iterator[Finding]:
    """Yield the token files in a folder that its index does not name."""
    if not is_tokens(source) or source.index_meta is None:
        return
    named = set(source.files)
    store, name = locate(join(task.path, TOKEN_FOLDER), task.storage_options)
    with suppress(ObjectNotFoundError):
        for entry in store.list(name):
            file = store.path(entry.name)
            # A file without bytes is of a text in which no sample ends.
            if entry.size and file not in named:
                reason = "the index does not name this token file"
                yield Finding("unknown file", file, None, reason)


def _check_source(task: CheckTask, source: Source, most: int) -> int:
    """Check tokens, or records of any other source: all can be read.

    Documents end where the index says.
    """
    path, meta = task.path, source.index_meta
    eos = None if meta is None or meta.tokens is None else meta.tokens.eos
    found = [*_left(task, leftovers_of(path, None)), *_unnamed_files(task, source)]
    shown = [str(finding) for finding in [*found, *_wrong_mask(source)]]
    tokens = 0
    size = getattr(source, "sample_size", None)
    step = max(1, _STEP_TOKENS // size) if size else _STEP
    row = "sample" if is_tokens(source) else "record"
    every: range | NDArray[np.int64] = range(len(source))
    sample = ""
    if task.sample is not None:
        every = np.array(Sample(task.sample, str(task.seed))(len(source)), np.int64)
        sample = f" in a sample of {100 * task.sample:g} % of them"
    with Progress(len(every), unit=f"{row}s") as progress:
        for start in range(0, len(every), step):
            ids = np.asarray(every[start : start + step], np.int64)
            rows = source.read(ids)
            if is_tokens(source):
                tokens += int(source.lengths(ids).sum())
                shown += _wrong_ends(source, ids, rows, eos)
            progress.add(len(ids))
    wrong = counted(len(shown), "finding") if shown else "nothing wrong"
    hidden = f" ({len(shown) - most:,} not shown)" if len(shown) > most else ""
    count = f", {counted(tokens, 'token')}" if is_tokens(source) else ""
    report = Report(
        *shown[:most],
        f"{path}: {counted(len(source.files), 'file')}, {counted(len(every), row)}{sample}"
        f"{count}: {wrong}{hidden}",
        path=path,
        files=len(source.files),
        records=len(every),
        sample=task.sample,
        tokens=tokens if is_tokens(source) else None,
        findings=len(shown),
        shown=shown[:most],
        errors=[],
    )
    report.print(as_json=task.as_json)
    return FINDINGS if shown else FINE


def _wrong_mask(source: Source) -> list[str]:
    """Return whether the file that says which tokens are trained is another than was written."""
    index, meta = source.sample_index, source.index_meta
    if index is None or index.trained is None or meta is None or meta.trained is None:
        return []
    if meta.trained.is_of(index.trained):
        return []
    return ["trained.bin is damaged: its hash differs from that in meta.json. Tokenise again"]


def _wrong_ends(
    source: TokenSource, ids: NDArray[np.int64], rows: NDArray[np.integer], eos: int | None
) -> list[str]:
    """Return the document borders that do not follow the token which ends documents.

    A document that ends with its sample may go on in the next one.
    """
    found = source.document_ends(ids)
    if found is None or eos is None or source.sample_size is None:
        return []
    ends, offsets = found
    of_row = np.repeat(np.arange(len(ids)), np.diff(offsets))
    is_wrong = (ends < 1) | (ends > source.sample_size)
    inside = ~is_wrong & (ends < source.sample_size)
    is_wrong[inside] = rows[of_row[inside], ends[inside] - 1] != eos
    return [
        f"sample {ids[of_row[at]]:,}: the index says that a document ends at token {ends[at]:,}, "
        f"and no {eos} stands there"
        for at in np.flatnonzero(is_wrong).tolist()
    ]
