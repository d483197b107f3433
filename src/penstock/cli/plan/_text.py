"""A plan in words, and as one document."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.cli._paths import as_typed
from penstock.cli._terminal import table
from penstock.cli._units import bytes_text, counted
from penstock.cli.plan._numbers import Layout, costs, rows_of
from penstock.loading import StepRecords, natural_shuffle, step_records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.datasets import Source
    from penstock.loading import Steps
    from penstock.order import Estimate, Kind

_FEW_COLUMNS = 8
_STEPS, _RECORDS = 3, 3
"""Of a plan only so many first steps are told, and so many records of each."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is planned, and for whom."""

    path: str
    """What the user named."""
    source: Source
    steps: Steps
    """Of the rank whose first records are told."""
    why: str
    """Why the order is of its kind."""
    layout: Layout
    file_bytes: Mapping[str, int]
    has_state: bool = False
    columns: Sequence[str] = ()
    """Fields that are gathered from columns, by whoever asks for them alone."""

    def records(self, step: int) -> StepRecords:
        """Return the records of a step."""
        return step_records(self.steps.task(step), self.steps.sharing.rank, self.source)

    def costs(self) -> dict[Kind, Estimate]:
        """Return what an epoch asks of storage, by the kind of order."""
        found = costs(self.source, self.steps, self.layout, self.file_bytes)
        wanted = dict.fromkeys(("full", "block", self.steps.cursor.kind))
        return {kind: cost for kind, cost in found.items() if kind in wanted}

    @property
    def first_steps(self) -> list[int]:
        """The steps that come first from here on."""
        return list(range(self.steps.first, min(len(self.steps), self.steps.first + _STEPS)))


def document(plan: Plan) -> dict[str, object]:
    """Return a plan as one JSON document."""
    steps, cursor, sharing = plan.steps, plan.steps.cursor, plan.steps.sharing
    natural, why_natural = natural_shuffle(plan.source)
    rows = rows_of(steps)
    return {
        "path": plan.path,
        "records": len(plan.source),
        "files": len(plan.source.files),
        "fingerprint": plan.source.fingerprint,
        "length": cursor.length,
        "seed": cursor.seed,
        "epoch": cursor.epoch,
        "order": {"kind": cursor.kind, "why": plan.why, "lanes": steps.order.lanes},
        "shuffle_true": {"kind": natural, "why": why_natural},
        "batch_size": sharing.batch_size,
        "world_size": sharing.world_size,
        "global_batch_size": sharing.global_batch_size,
        "workers": plan.layout.workers,
        "hosts": plan.layout.hosts,
        "cache_bytes": plan.layout.cache_bytes,
        "drop_last": sharing.drop_last,
        "skipped": _total(cursor.order_skip),
        "masked": _total(cursor.masked),
        "position": cursor.position,
        "steps": len(steps),
        "next_step": steps.first,
        "rows_per_rank": rows.each,
        "last_rows": rows.last,
        "padded_rows": rows.padded,
        "dropped_records": rows.dropped,
        "columns": plan.columns,
        "costs": {kind: asdict(cost) for kind, cost in plan.costs().items()},
        "first_steps": [
            step_document(plan.path, plan.records(step), _RECORDS) for step in plan.first_steps
        ],
    }


def step_document(
    path: str,
    found: StepRecords,
    most: int | None = None,
    values: Mapping[int, object] | None = None,
) -> dict[str, object]:
    """Return the rows of a step, or the first ones; with the records themselves where given."""
    rows: list[dict[str, object]] = []
    for row in range(len(found.ids))[:most]:
        number = int(found.ids[row])
        told: dict[str, object] = {
            "record": number,
            "file": as_typed(path, found.files[row]),
            "offset": int(found.offsets[row]),
            "bytes": int(found.bytes[row]),
            "valid": bool(found.valid[row]),
        }
        if values is not None:
            # Null where it does not count or cannot be read; a warning has said so.
            told["value"] = values.get(number) if found.valid[row] else None
        rows.append(told)
    return {
        "epoch": found.epoch,
        "step": found.step,
        "rank": found.rank,
        "rows": len(found.ids),
        "records": rows,
    }


def text(plan: Plan) -> str:
    """Return a plan for people."""
    facts = _facts(plan)
    width = max(map(len, facts))
    lines = [plan.path, *(f"  {name:<{width}}  {told}" for name, told in facts.items())]
    costs_told = [
        [
            f"{kind} order",
            f"{cost.requests:,}",
            bytes_text(cost.bytes),
            bytes_text(cost.open_bytes) if cost.open_bytes else "–",
        ]
        for kind, cost in plan.costs().items()
    ]
    header = ["an epoch's reads", "requests", "bytes", "in use at a time"]
    lines += ["", table(header, costs_told)]
    for step in plan.first_steps:
        lines += ["", step_text(plan.path, plan.records(step), _RECORDS)]
    return "\n".join(lines)


def _facts(plan: Plan) -> dict[str, str]:
    steps, cursor, sharing = plan.steps, plan.steps.cursor, plan.steps.sharing
    rows = rows_of(steps)
    source = plan.source
    files = counted(len(source.files), "file")
    facts = {"records": f"{len(source):,} in {files}"}
    if len(source) > cursor.length:
        facts["records"] += f", {cursor.length:,} when the run began; it goes on over those"
    if skipped := _total(cursor.order_skip):
        facts["skipped"] = counted(skipped, "record")
    if masked := _total(cursor.masked):
        facts["masked"] = f"{counted(masked, 'record')} until the next epoch"
    facts["order"] = f"{cursor.kind}, seed {cursor.seed}, epoch {cursor.epoch} ({plan.why})"
    natural, why = natural_shuffle(source)
    if cursor.kind != natural:
        facts["shuffle=True"] = f"{natural} order: {why}"
    facts["batch"] = (
        f"{sharing.batch_size:,} rows × {counted(sharing.world_size, 'rank')} = "
        f"{sharing.global_batch_size:,}"
    )
    if plan.has_state:
        share = cursor.position / max(1, len(steps.order))
        facts["stands at"] = (
            f"position {cursor.position:,} of {len(steps.order):,} ({share:.1%}); step "
            f"{steps.first:,} is next, {len(steps) - steps.first:,} are left"
        )
    facts["steps"] = f"{len(steps):,} on every rank"
    if rows.last and rows.last < sharing.batch_size:
        facts["steps"] += f", the last one of {counted(rows.last, 'row')}"
    facts["each rank"] = counted(rows.each, "row") + (" from here on" if plan.has_state else "")
    if rows.padded:
        facts["padding"] = f"{counted(rows.padded, 'row')} over all ranks, marked as not valid"
    if rows.dropped:
        facts["dropped"] = f"{counted(rows.dropped, 'record')} at the end"
    facts |= _columns(plan.columns)
    if plan.source.files and not plan.source.reads_blocks:
        facts["full order"] = "reads every record by itself"
    return facts


def _columns(names: Sequence[str]) -> dict[str, str]:
    if not names:
        return {}
    more = len(names) - _FEW_COLUMNS
    told = ", ".join(names[:_FEW_COLUMNS]) + (f" and {more} more" if more > 0 else "")
    return {"columns": f"{told}: batches of nothing else are gathered, and read none of this"}


def step_text(path: str, found: StepRecords, most: int | None = None) -> str:
    """Return the rows of a step for people, or the first ones."""
    head = f"epoch {found.epoch}, step {found.step:,}, rank {found.rank}: "
    lines = [head + counted(len(found.ids), "row")]
    width = max((len(f"{number:,}") for number in found.ids[:most].tolist()), default=0)
    for row in range(len(found.ids))[:most]:
        where = place_of(path, found, row)
        mark = "" if found.valid[row] else "  (does not count)"
        lines.append(f"  {int(found.ids[row]):>{width},}  {where}{mark}")
    if most is not None and len(found.ids) > most:
        lines.append(f"  … {len(found.ids) - most:,} more")
    return "\n".join(lines)


def place_of(path: str, found: StepRecords, row: int) -> str:
    """Return where the record of a row lies."""
    file = as_typed(path, found.files[row])
    offset = int(found.offsets[row])
    return f"{file} at byte {offset}" if found.bytes[row] else f"{file}, row {offset}"


def _total(ranges: tuple[tuple[int, int], ...]) -> int:
    return sum(stop - start for start, stop in ranges)
