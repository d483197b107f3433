"""`penstock check`: bad lines, damaged files, leftovers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock._redact import without_secrets
from penstock.cli._paths import Indexed, as_typed, find, index_or_problem, leftovers_of, look_at
from penstock.cli._terminal import Progress, Report, echo
from penstock.cli._units import bytes_text, counted, parse_share
from penstock.cli._verb import (
    FAILED,
    FINDINGS,
    FROM_0,
    VerbCall,
    option,
    silence_stdout,
    verb,
    workers_option,
)
from penstock.cli.check._misfits import check_fit
from penstock.cli.check._parts import (
    PART_BYTES,
    CheckTask,
    Finding,
    Findings,
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

    from penstock.cli.check._parts import CheckPart
    from penstock.index import Detected, Hashed, Meta
    from penstock.storage import Leftover


_SHOWN = 20
_STEP_TOKENS = 1 << 22
_STEP = 1024


@verb(
    "penstock check logs",
    "penstock check 'logs/*.jsonl.zst' --max 100",
    "penstock check s3://bucket/logs --sample 1% --json",
    "penstock check logs --schema schema.json",
)
@option(
    "--max N",
    "Findings to show, by default 20, and with --schema all; all are counted.",
    dest="most",
    type=FROM_0,
)
@option(
    "--sample SHARE",
    "Check only this share of the records (1%, 0.01), where all of them take too long; damaged "
    "files and changed bytes are still found everywhere.",
    type=parse_share,
)
@option("--seed", "Seed of the sample; another one checks other records.", default=0)
@option(
    "--schema FILE",
    "Report records that this schema cannot encode, or takes in part, in place of damage: a file "
    "of SchemaModel.save, or of penstock profile --as schema --json.",
)
@workers_option("read")
def check(
    call: VerbCall,
    *,
    most: int | None,
    schema: str | None,
    **given: Any,  # noqa: ANN401 (those of `CheckTask`)
) -> int | Report:
    """Read all of PATH and report what is wrong with it.

    Malformed lines, lines that hold something else than an object, damaged and truncated files, an
    index that cannot be used, and what killed writers left behind. Where the index of PATH itself
    was built with --full-hash, also files that are gone, shrank, or have other bytes than were
    indexed; a file or a pattern is not compared with the index of its folder. Of tables, text that
    is not UTF-8; of CSV, rows with more or fewer fields than the header, and quotes that are never
    closed; of Parquet and the like, row groups that cannot be read, and files whose schemas do not
    go together. Exit code 1 means that something was found.
    """
    if most is None:
        most = _SHOWN if schema is None else sys.maxsize
    show = (lambda _: None) if call.as_json else lambda one: echo(without_secrets(str(one)))
    findings = Findings(most, show)
    task = CheckTask(call, findings, **given)
    try:
        found = look_at(call.path, call.options)
        if schema is not None:
            return check_fit(task, open_found(found.checked()), schema)
        problems = problems_of(found.listing, call.options)
        if not (found.format.is_lines or found.format.check or problems):
            return _check_source(task, open_found(found.checked()))
        if found.listing.folder is not None:
            for problem in [found.problem] if found.problem else problems:
                findings.add(Finding("missing index", call.path, None, str(problem)))
        return _check(task, found)
    except BrokenPipeError:
        silence_stdout()  # The reader has seen enough; findings still decide the exit code.
    return findings.code


def _check(task: CheckTask, at_path: Detected) -> Report:
    indexed, findings = _index(task, at_path), task.findings
    meta = None if indexed is None else indexed.meta
    files, parts, leftovers = _parts(task, at_path, meta)
    hashed = [] if indexed is None or meta is None else hashed_files(indexed.listing, meta)
    total = sum(part.size for part in parts) + sum(one.was.size for one in hashed)
    with Progress(total) as progress:
        check_parts(parts, findings, progress.add, task.workers)
        _compare(hashed, findings, progress)
    if task.sample is None and indexed is not None:
        _count(task, indexed)
    for finding in _left(task, [*leftovers, *leftovers_of(task.path, indexed)]):
        findings.add(finding)
    set_aside = meta.bad_lines if meta is not None and meta.validated else None
    report = Report(
        _summary(task, parts, files),
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
    report.complain(FAILED, *map(task.call.options.redact, findings.errors.values()))
    report.code = findings.code
    return report


def _compare(hashed: Sequence[Hashed], findings: Findings, progress: Progress) -> None:
    """Read files whose every byte was hashed, and report those that changed."""
    for one in hashed:
        try:
            if (reason := one.change()) is not None:
                kind = "changed file" if one.found else "missing file"
                findings.add(Finding(kind, one.path, None, reason))
        except OSError as why:
            findings.errors.setdefault(one.path, str(why))
        progress.add(one.was.size)


def _count(task: CheckTask, indexed: Indexed) -> None:
    """Report an index that has other lines than the files, as after one was blanked in place."""
    meta, findings = indexed.meta, task.findings
    unread = {"damaged file", "missing file"} & findings.kinds.keys()
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
            reason = leftover_problem(entry.name, task.call.options) or reason
            yield Finding("leftover", entry.name, None, reason)


def _parts(
    task: CheckTask, at_path: Detected, meta: Meta | None
) -> tuple[int, Sequence[CheckPart], Sequence[Leftover]]:
    """Return how many files there are, their parts, and what writers left."""
    check, findings = at_path.format.check, task.findings
    has_lines = any(LINES.names(one.entry.name) for one in at_path.listing.files)
    if "missing index" in findings.kinds and not check and not has_lines:
        return 0, [], []
    if not check:
        found = find(task.path, task.call.options, at_path)
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


def _index(task: CheckTask, at_path: Detected) -> Indexed | None:
    """Return the index of PATH; one that cannot be opened is a finding, and None."""
    indexed, problem = index_or_problem(task.path, at_path)
    try:
        if indexed is not None:
            load_place(indexed.place)
    except StaleIndexError:
        pass  # `penstock info` shows that, and so does every reader of the index.
    except (CorruptIndexError, ObjectNotFoundError) as why:
        indexed, problem = None, task.call.options.redact(str(why))
    if problem is not None and "missing index" not in task.findings.kinds:  # Reported already.
        task.findings.add(Finding("unusable index", task.path, None, problem))
    return indexed


def _summary(task: CheckTask, parts: Sequence[CheckPart], files: int) -> str:
    findings = task.findings
    sample = task.share(f"the {parts[0].sampled if parts else 'records'}")
    what = parts[0].content if parts else "text"
    seen = (
        f"{task.path}: {counted(files, 'file')}, {counted(findings.records, 'record')}"
        f"{sample}, {bytes_text(findings.text_bytes)} of {what}"
    )
    if not findings.kinds:
        return f"{seen}: nothing wrong" if not findings.errors else f"{seen}: not all could be read"
    kinds = ", ".join(counted(count, kind) for kind, count in findings.kinds.items())
    return f"{seen}: {task.found(findings.kinds.total())}: {kinds}"


def _unnamed_files(task: CheckTask, source: Source) -> Iterator[Finding]:
    """Yield the token files in a folder that its index does not name."""
    if not is_tokens(source) or source.index_meta is None:
        return
    named = set(source.files)
    store, name = locate(join(task.path, TOKEN_FOLDER), task.call.options)
    with suppress(ObjectNotFoundError):
        for entry in store.list(name):
            file = store.path(entry.name)
            # A file without bytes is of a text in which no sample ends.
            if entry.size and file not in named:
                reason = "the index does not name this token file"
                yield Finding("unknown file", file, None, reason)


def _check_source(task: CheckTask, source: Source) -> Report:
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
    every, most = task.numbers(len(source)), task.findings.most
    with Progress(len(every), unit=f"{row}s") as progress:
        for start in range(0, len(every), step):
            ids = np.array(every[start : start + step], np.int64)
            rows = source.read(ids)
            if is_tokens(source):
                tokens += int(source.lengths(ids).sum())
                shown += _wrong_ends(source, ids, rows, eos)
            progress.add(len(ids))
    wrong = task.found(len(shown)) if shown else "nothing wrong"
    count = f", {counted(tokens, 'token')}" if is_tokens(source) else ""
    report = Report(
        *shown[:most],
        f"{path}: {counted(len(source.files), 'file')}, {counted(len(every), row)}{task.share()}"
        f"{count}: {wrong}",
        path=path,
        files=len(source.files),
        records=len(every),
        sample=task.sample,
        tokens=tokens if is_tokens(source) else None,
        findings=len(shown),
        shown=shown[:most],
        errors=[],
    )
    report.code = FINDINGS * bool(shown)
    return report


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
