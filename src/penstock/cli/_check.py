"""`penstock check`: what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

import click

from penstock.cli._paths import entry_of, find
from penstock.cli._reading import (
    BadLine,
    Line,
    begins,
    lines_of,
    read_fast,
    read_line,
    read_lines,
    texts_of,
)
from penstock.cli._sampling import SampledLines
from penstock.cli._terminal import Progress, echo, echo_json
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
from penstock.errors import CorruptFileError
from penstock.jsonl import reason_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.cli._reading import Text
    from penstock.jsonl import JsonlFile
    from penstock.storage import StorageOptions

Kind = Literal["malformed line", "non-object line", "damaged file", "leftover"]
_JSON_NAMES: dict[type, str] = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class _Finding:
    """Something wrong, and where."""

    kind: Kind
    path: str
    line: int | None
    reason: str
    begins: str | None

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        start = "" if self.begins is None else f"; the line begins {self.begins}"
        return f"{place}: {self.kind}: {self.reason}{start}"


@dataclass(slots=True)
class _Report:
    """Everything found; the first findings are kept, all are counted."""

    most: int
    as_json: bool
    shown: list[_Finding] = field(default_factory=list)
    kinds: Counter[Kind] = field(default_factory=Counter)
    errors: list[tuple[str, str]] = field(default_factory=list)
    records: int = 0
    text_bytes: int = 0

    def add(self, finding: _Finding) -> None:
        self.kinds[finding.kind] += 1
        if len(self.shown) < self.most:
            self.shown.append(finding)
            if not self.as_json:
                echo(str(finding))

    @property
    def code(self) -> int:
        if self.errors:
            return FAILED
        return FINDINGS if self.kinds else FINE


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
    help="Check only this share of the lines (1%, 0.01); damage is still found everywhere.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sample.")
@storage_option
@json_option
def check(  # noqa: PLR0913 (one argument an option)
    *,
    path: str,
    most: int,
    sample: float | None,
    seed: int,
    storage_options: StorageOptions,
    as_json: bool,
) -> int:
    """Read all of PATH and report what is wrong with it.

    Malformed lines, lines that hold something else than an object, damaged and truncated files,
    and what killed writers left behind. Exit code 1 means that something was found.
    """
    report = _Report(most, as_json)
    try:
        _check(path, report, sample, seed, storage_options)
    except BrokenPipeError:
        silence_stdout()  # Who reads has seen enough; what was found still counts.
    return report.code


def _check(
    path: str, report: _Report, sample: float | None, seed: int, options: StorageOptions
) -> None:
    found = find(path, options)
    with Progress(sum(_size(file) for file in found.files)) as progress:
        for number, file in enumerate(found.files):
            chosen = SampledLines(sample, f"{seed}/{number}") if sample else None
            for finding in _findings(file, progress, report, chosen):
                report.add(finding)
    for entry, writer in found.leftovers():
        if writer == "gone":
            reason = f"{bytes_text(entry.size)} of a writer that is gone; penstock clean removes it"
            report.add(_Finding("leftover", entry.name, None, reason, None))
    for _, text in report.errors:
        echo(f"penstock: {options.redact(text)}", err=True)
    if report.as_json:
        echo_json(_document(path, len(found.files), report, sample))
    else:
        echo(_summary(path, len(found.files), report, sample))


def _size(file: JsonlFile) -> int:
    try:
        return entry_of(file).size
    except OSError:
        return 0  # Told when it is read.


def _findings(
    file: JsonlFile, progress: Progress, report: _Report, chosen: SampledLines | None
) -> Iterator[_Finding]:
    try:
        for text in texts_of(file, progress):
            report.text_bytes += len(text.text)
            if chosen is not None:
                yield from _findings_in(_sample(text, chosen), text, report)
                continue
            values = read_fast(text)
            if values is not None and set(map(type, values)) == {dict}:
                report.records += len(values)
            else:
                yield from _findings_in(read_lines(text), text, report)
    except CorruptFileError as failure:
        reason = str(failure).removeprefix(f"{getattr(failure, 'path', '')} ")
        yield _Finding("damaged file", file.path, None, reason, None)
    except OSError as failure:
        report.errors.append((file.path, str(failure)))


def _sample(text: Text, chosen: SampledLines) -> Iterator[Line | BadLine]:
    lines = lines_of(text)
    for index in chosen.among(text.first_line, len(lines)):
        line = read_line(text, index, lines[index])
        if line is not None:
            yield line


def _findings_in(
    lines: Iterable[Line | BadLine], text: Text, report: _Report
) -> Iterator[_Finding]:
    for line in lines:
        if isinstance(line, BadLine):
            reason, start = reason_text(line.reason), begins(line.text)
            yield _Finding("malformed line", text.path, line.number, reason, start)
            continue
        report.records += 1
        if type(line.value) is not dict:
            reason, start = _JSON_NAMES[type(line.value)], begins(line.text)
            yield _Finding("non-object line", text.path, line.number, reason, start)


def _document(path: str, files: int, report: _Report, sample: float | None) -> dict[str, object]:
    return {
        "path": path,
        "files": files,
        "records": report.records,
        "text_bytes": report.text_bytes,
        "sample": sample,
        "findings": sum(report.kinds.values()),
        "kinds": dict(report.kinds),
        "shown": [asdict(finding) for finding in report.shown],
        "errors": [{"path": name, "error": text} for name, text in report.errors],
    }


def _summary(path: str, files: int, report: _Report, sample: float | None) -> str:
    total = sum(report.kinds.values())
    seen = (
        f"{path}: {counted(files, 'file')}, {counted(report.records, 'record')}"
        f"{f' in a sample of {100 * sample:g} % of the lines' if sample else ''}, "
        f"{bytes_text(report.text_bytes)} of text"
    )
    if not total:
        return f"{seen}: nothing wrong" if not report.errors else f"{seen}: not all could be read"
    kinds = ", ".join(counted(count, kind) for kind, count in report.kinds.items())
    hidden = f" ({total - len(report.shown):,} not shown)" if total > len(report.shown) else ""
    return f"{seen}: {counted(total, 'finding')}{hidden}: {kinds}"
