"""What runs showed, in words and as one document."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.cli._terminal import table
from penstock.cli._units import bytes_text, counted
from penstock.cli.bench._runs import STAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli.bench._advice import Advice
    from penstock.cli.bench._runs import Run

_FEW_FIELDS = 12
_STORAGE = ("requests", "bytes", "retries", "throttled")


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is told."""

    path: str
    records: int
    files: int
    cold: Run
    """The very first batch, before anything was kept anywhere."""
    runs: Sequence[Run]
    advice: Sequence[Advice]
    notes: Sequence[str] = ()


def document(report: Report) -> dict[str, object]:
    """Return a report as one JSON document."""
    first = report.runs[0]
    return {
        "path": report.path,
        "records": report.records,
        "files": report.files,
        "batch_size": first.setting.batch_size,
        "output": first.setting.output or "tensors",
        "order": first.order,
        "fields": dict(first.setting.types),
        "notes": list(report.notes),
        "very_first_batch": {"seconds": report.cold.first, "storage": _storage(report.cold)},
        "runs": [_run_document(run) for run in report.runs],
        "advice": [asdict(one) for one in report.advice],
    }


def _run_document(run: Run) -> dict[str, object]:
    stats = run.stats
    return {
        "workers": run.setting.workers,
        "made_by": run.made_by,
        "change": run.setting.change or None,
        "columns": run.columns,
        "order": run.order,
        "fields": list(run.setting.types),
        "records_per_second": run.rate,
        "first_batch_seconds": run.first,
        "batches": int(stats["batches"]),
        "records": int(stats["records"]),
        "microseconds_per_record": {stage: run.micros(stage) for stage in (*STAGES, "wait")},
        "storage": _storage(run),
        "cache_hits": int(stats["cache_hits"]),
    }


def _storage(run: Run) -> dict[str, int]:
    return {name: int(run.stats[f"storage_{name}"]) for name in _STORAGE}


def text(report: Report) -> str:
    """Return a report for people."""
    lines = [report.path, *_facts(report), *(f"  {note}" for note in report.notes), ""]
    has_storage = _reads_remotely(report)
    header = ["workers", "records/s", "first batch", *STAGES]
    header += ["requests", "bytes", "cache hits"] if has_storage else []
    rows = [_cells(run, has_storage=has_storage) for run in report.runs]
    lines += [table([*header, "made by"], rows), "", "read, decode, encode: µs a record, added up"]
    lines[-1] += " over all threads and processes"
    for number, one in enumerate(report.advice, 1):
        lines += ["", f"{number}. {one.do}", f"   {one.why}."]
    return "\n".join(lines)


def _facts(report: Report) -> list[str]:
    first = report.runs[0]
    types = [f"{name}:{type_}" for name, type_ in first.setting.types.items()]
    more = len(types) - _FEW_FIELDS
    shown = ", ".join(types[:_FEW_FIELDS]) + (f" and {more} more" if more > 0 else "")
    made = "Arrow record batches" if first.setting.output else "tensors"
    made += f": {shown}" if types else ""
    cold = f"{report.cold.first * 1000:,.0f} ms"
    if _reads_remotely(report):
        storage = _storage(report.cold)
        cold += f", {counted(storage['requests'], 'request')}, {bytes_text(storage['bytes'])}"
    return [
        f"  records  {report.records:,} in {counted(report.files, 'file')}",
        f"  order    {first.order}",
        f"  batches  of {first.setting.batch_size:,} as {made}",
        f"  first    of all batches took {cold}",
    ]


def _reads_remotely(report: Report) -> bool:
    return any(run.stats["storage_requests"] for run in (report.cold, *report.runs))


def _cells(run: Run, *, has_storage: bool) -> list[str]:
    name = str(run.setting.workers)
    if run.setting.change:
        name += f", {run.setting.change}"
    cells = [name, f"{run.rate:,.0f}", f"{run.first * 1000:,.0f} ms"]
    cells += [f"{run.micros(stage):.2f}" for stage in STAGES]
    if has_storage:
        stats = run.stats
        cells += [
            f"{stats['storage_requests']:,.0f}",
            bytes_text(int(stats["storage_bytes"])),
            f"{stats['cache_hits']:,.0f}",
        ]
    return [*cells, run.made_by.partition(":")[0]]
