"""A plan of an epoch: steps, rows, reads from storage, and the records of single steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock._redact import without_secrets
from penstock.cli._by_number import ByNumber, place_text, records_of
from penstock.cli._paths import as_typed
from penstock.cli._terminal import Report, echo, echo_json, without_nonfinite
from penstock.cli._units import bytes_text, counted, few
from penstock.cli._verb import FINE, VerbCall
from penstock.cli.show._printing import Printed
from penstock.loading import (
    PlannedSteps,
    Sharing,
    StepRecords,
    Steps,
    chosen_order,
    describe_plan,
    step_records,
)
from penstock.order import LONGEST, Skips, clip_blocks, estimate, share_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.cli._stream import Record
    from penstock.datasets import Source
    from penstock.loading import EpochSteps, OrderChoice
    from penstock.order import Cursor, Estimate, Kind

_STEPS, _RECORDS = 3, 3
"""First steps that a plan shows, and records of each."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How the rest of an epoch is shared; the same on every rank, but for padding."""

    each: int
    """Rows that every rank gets, padding included."""
    last: int
    """Rows of a rank's last batch."""
    padded: int
    """Rows, over all ranks, that only make steps equal."""
    dropped: int
    """Records at the end that no rank gets."""


def rows_of(steps: Steps) -> Rows:
    """Return how the rest of an epoch, behind the cursor, is shared.

    >>> from penstock.order import Cursor
    >>> cursor = Cursor(fingerprint="", length=10)
    >>> rows_of(Steps(cursor, None, Sharing(batch_size=2, world_size=3)))
    Rows(each=4, last=2, padded=2, dropped=0)
    >>> rows_of(Steps(cursor, None, Sharing(batch_size=2, world_size=3, drop_last=True)))
    Rows(each=2, last=2, padded=0, dropped=4)
    """
    sharing, left = steps.sharing, len(steps.order) - steps.cursor.position
    count = len(steps) - steps.first
    if not count:
        return Rows(0, 0, 0, left)
    rows, _ = share_rows(
        count - 1,
        sharing.batch_size,
        0,
        sharing.world_size,
        len(steps.order),
        sharing.drop_last,
        origin=steps.cursor.position,
    )
    each = (count - 1) * sharing.batch_size + len(rows)
    real = min(left, each * sharing.world_size)
    return Rows(each, len(rows), each * sharing.world_size - real, left - real)


@dataclass(frozen=True, slots=True)
class RunLayout:
    """How the ranks of a run are spread, and what they cache."""

    workers: int = 0
    hosts: int = 1
    cache_bytes: int = 0
    """Blocks that a host keeps, for block and sequential order."""


def costs(
    source: Source, steps: EpochSteps, layout: RunLayout, file_bytes: Mapping[str, int]
) -> dict[Kind, Estimate]:
    """Return the reads of a whole epoch in each kind of order.

    Where a record can be read by itself, a full order reads each record once; else it reads the
    blocks that they lie in again for every batch.
    """
    cursor, sharing = steps.cursor, steps.sharing
    rows = sharing.batch_size
    if isinstance(steps, PlannedSteps):
        rows = max(1, len(steps.order) // max(1, len(steps.batches)))
    blocks = clip_blocks(source.blocks, cursor.length)
    records = np.diff(Skips(cursor.order_skip, cursor.length).ranks(blocks))
    text, stored = block_bytes(source, blocks, file_bytes)
    kinds: tuple[Kind, ...] = ("full", "block", "sequential")
    found = {
        kind: estimate(
            stored,
            kind,
            sharing.world_size,
            layout.workers,
            0 if kind == "full" else layout.cache_bytes,
            block_records=records,
            batch_size=rows,
            hosts=layout.hosts,
        )
        for kind in kinds
    }
    if not source.reads_blocks:
        kept = records / np.maximum(1, np.diff(blocks))
        size = round(float((text * kept).sum()))
        found["full"] = replace(found["full"], requests=len(steps.order), bytes=size, open_bytes=0)
    return found


def block_bytes(
    source: Source, blocks: NDArray[np.int64], file_bytes: Mapping[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the bytes of text of each block, and about how many are stored, int64[n] each.

    A block has the same share of its file's stored bytes as of its text, or of its rows where rows
    have no bytes.
    """
    if len(blocks) <= 1 or not source.files:
        return np.zeros(len(blocks) - 1, np.int64), np.zeros(len(blocks) - 1, np.int64)
    first, last = source.location(blocks[:-1]), source.location(blocks[1:] - 1)
    files = np.asarray(first.file, np.int64)
    ends = np.asarray(last.offset, np.int64) + np.asarray(last.bytes, np.int64)
    text = ends - np.asarray(first.offset, np.int64)
    is_text = np.asarray(last.bytes, np.int64) > 0
    weight = np.where(is_text, text, np.diff(blocks)).astype(np.float64)
    in_file = np.bincount(files, weight, minlength=len(source.files))
    sizes = np.array([file_bytes.get(path, -1) for path in source.files], np.float64)
    sizes = np.where(sizes < 0, in_file, sizes)
    stored = np.rint(sizes[files] * weight / np.maximum(1, in_file[files])).astype(np.int64)
    return np.where(is_text, text, stored), stored


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch of a run over a source."""

    cursor: Cursor
    source: Source
    choice: OrderChoice

    def steps(self, sharing: Sharing, rank: int | None = None) -> EpochSteps:
        """Return the steps of the epoch as one rank has them."""
        cursor, source = self.cursor, self.source
        given = source.blocks if cursor.needs_blocks else self.choice.table(cursor, source)
        own = sharing if rank is None else replace(sharing, rank=rank)
        return (Steps if sharing.plan is None else PlannedSteps)(cursor, given, own)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run, and the data that it reads."""

    path: str
    """As the user named it."""
    source: Source
    steps: EpochSteps
    """Of the rank whose first records are shown."""
    why: str
    """Why the order is of its kind."""
    layout: RunLayout
    file_bytes: Mapping[str, int]
    columns: Sequence[str]
    """Fields that a loader with default options gathers from columns."""
    has_state: bool

    def report(self) -> Report:
        """Return steps, rows, reads and the first records."""
        steps, cursor, sharing = self.steps, self.steps.cursor, self.steps.sharing
        length, fingerprint = len(self.source), self.source.fingerprint
        report = Report(self.path, path=self.path, records=length, fingerprint=fingerprint)
        files = len(self.source.files)
        appended = f", {cursor.length:,} when the run began; it goes on over those"
        report.row(
            "records",
            f"{length:,} in {counted(files, 'file')}" + appended * (length > cursor.length),
            files=files,
            length=cursor.length,
        )
        skipped, masked = _total(cursor.order_skip), _total(cursor.masked)
        report.data(skipped=skipped, masked=masked, position=cursor.position)
        if skipped:
            report.row("skipped", counted(skipped, "record"))
        if masked:
            report.row("masked", f"{counted(masked, 'record')} until the next epoch")
        report.row(
            "order",
            f"{cursor.kind}, seed {cursor.seed}, epoch {cursor.epoch} ({self.why})",
            order={"kind": cursor.kind, "why": self.why, "lanes": steps.order.lanes},
            seed=cursor.seed,
            epoch=cursor.epoch,
        )
        natural, why = chosen_order(self.source, shuffle=True, through_columns=True)
        report.data(shuffle_true={"kind": natural, "why": why})
        if cursor.kind != natural and not cursor.own:
            report.row("shuffle=True", f"{natural} order: {why}")
        report.data(world_size=sharing.world_size, drop_last=sharing.drop_last)
        report.data(**asdict(self.layout))
        if isinstance(steps, PlannedSteps):
            self._add_planned_steps(report, steps)
        elif isinstance(steps, Steps):
            report.row(
                "batch",
                f"{counted(sharing.batch_size, 'row')} × {counted(sharing.world_size, 'rank')} = "
                f"{sharing.global_batch_size:,}",
                batch_size=sharing.batch_size,
                global_batch_size=sharing.global_batch_size,
            )
            self._add_steps(report, steps)
        self._add_reads(report)
        first = range(steps.first, min(len(steps), steps.first + _STEPS))
        records = (step_records(steps.task(step), sharing.rank, self.source) for step in first)
        documents = [_step_document(self.path, one, _RECORDS) for one in records]
        for one in documents:
            report.line("", _step_text(one))
        report.data(first_steps=documents)
        return report

    def _add_planned_steps(self, report: Report, steps: PlannedSteps) -> None:
        world_size, batches = steps.sharing.world_size, len(steps.batches)
        text, padding = describe_plan(steps.plan, steps.order, steps.batches)
        report.row("batches", text, plan=steps.plan.name, batches=batches)
        report.data(padding=None if padding is None else padding._asdict())
        self._add_place(report, "batch", batches)
        over = (batches - steps.cursor.position) % world_size
        last = dropped = ""
        if over and steps.sharing.drop_last:
            dropped = f"; {over:,} batches at the end are dropped"
        elif over:
            last = f", the last one for {over:,} of {world_size:,}: the others repeat a batch"
        report.row(
            "steps",
            f"{len(steps):,} on every rank{last}{dropped}",
            steps=len(steps),
            next_step=steps.first,
            padded_batches=world_size - over if last else 0,
            dropped_batches=over if dropped else 0,
        )

    def _add_place(self, report: Report, what: str, count: int) -> None:
        if self.has_state:
            steps, position = self.steps, self.steps.cursor.position
            report.row(
                "stands at",
                f"{what} {position:,} of {count:,} ({position / max(1, count):.1%}); step "
                f"{steps.first:,} is next, {len(steps) - steps.first:,} are left",
            )

    def _add_steps(self, report: Report, steps: Steps) -> None:
        if len(steps.order) == LONGEST:
            report.row("steps", "without end", steps=None, next_step=steps.first)
            return
        rows = rows_of(steps)
        self._add_place(report, "position", len(steps.order))
        is_short = rows.last and rows.last < steps.sharing.batch_size
        last = f", the last one of {counted(rows.last, 'row')}" if is_short else ""
        report.row(
            "steps", f"{len(steps):,} on every rank{last}", steps=len(steps), next_step=steps.first
        )
        rest = " from here on" if self.has_state else ""
        report.row("each rank", counted(rows.each, "row") + rest, rows_per_rank=rows.each)
        report.data(last_rows=rows.last, padded_rows=rows.padded, dropped_records=rows.dropped)
        if rows.padded:
            report.row(
                "padding", f"{counted(rows.padded, 'row')} over all ranks, marked as not valid"
            )
        if rows.dropped:
            report.row("dropped", f"{counted(rows.dropped, 'record')} at the end")

    def _add_reads(self, report: Report) -> None:
        report.data(columns=self.columns)
        if self.columns:
            gathered = "batches of nothing else are gathered, and read none of this"
            report.row("columns", f"{few(self.columns, 8)}: {gathered}")
        if self.steps.cursor.own:
            return  # Estimates are of orders in which each record comes once.
        if self.source.files and not self.source.reads_blocks:
            report.row("full order", "reads every record by itself")
        found = costs(self.source, self.steps, self.layout, self.file_bytes)
        kinds = {"full", "block", self.steps.cursor.kind}
        shown = {kind: cost for kind, cost in found.items() if kind in kinds}
        report.line("")
        report.table(
            ["an epoch's reads", "requests", "bytes", "in use at a time"],
            [
                [
                    f"{kind} order",
                    f"{cost.requests:,}",
                    bytes_text(cost.bytes),
                    bytes_text(cost.open_bytes) if cost.open_bytes else "–",
                ]
                for kind, cost in shown.items()
            ],
            costs={kind: asdict(cost) for kind, cost in shown.items()},
        )


def _total(ranges: tuple[tuple[int, int], ...]) -> int:
    return sum(stop - start for start, stop in ranges)


def list_steps(  # noqa: PLR0913, PLR0917 (which steps of which ranks, and how)
    call: VerbCall,
    opened: ByNumber,
    epoch: Epoch,
    sharing: Sharing,
    wanted: slice,
    ranks: Sequence[int],
    *,
    show: bool,
) -> int:
    """Print the rows of steps, rank by rank; return the exit code."""
    plans = [epoch.steps(sharing, rank) for rank in ranks]
    first, count = plans[0].first, len(plans[0])
    numbers = range(max(wanted.start or 0, first), min(count, wanted.stop or count))
    if not numbers or (wanted.start is not None and wanted.start < first):
        present = f"{first:,} to {count - 1:,}" if count > first else "none"
        return call.finding(f"no such step: the steps of this epoch are {present}.")
    documents: list[dict[str, Any]] = []
    printed = Printed(None, as_json=False)
    for number in numbers:
        for steps in plans:
            found = step_records(steps.task(number), steps.sharing.rank, opened.source)
            document = _step_document(opened.path, found)
            if call.as_json and show:
                values = {one.number: one.value for one in _valid_records(opened, found)}
                for row in document["records"]:
                    # Null for padding, and for a bad record, which a warning has named.
                    value = values.get(row["record"]) if row["valid"] else None
                    row["value"] = without_nonfinite(value)
            if call.as_json:
                documents.append(document)
            elif show:
                echo(f"epoch {found.epoch}, step {number:,}, rank {found.rank}")
                printed.add_all(_valid_records(opened, found))
            else:
                echo(_step_text(document))
    if call.as_json:
        echo_json({"path": without_secrets(opened.path), "steps": documents})
    return FINE


def _valid_records(opened: ByNumber, found: StepRecords) -> Iterator[Record]:
    return records_of(opened, found.ids[found.valid].tolist())


def _step_document(path: str, found: StepRecords, most: int | None = None) -> dict[str, Any]:
    """Return the first rows of a step, or all."""
    rows = [
        {
            "record": int(found.ids[row]),
            "file": without_secrets(as_typed(path, found.files[row])),
            "offset": int(found.offsets[row]),
            "bytes": int(found.bytes[row]),
            "valid": bool(found.valid[row]),
        }
        for row in range(len(found.ids))[:most]
    ]
    step = {"epoch": found.epoch, "step": found.step, "rank": found.rank}
    bins = {} if found.bins is None else {"bins": found.bins.tolist()}
    return step | {"rows": len(found.ids), "records": rows} | bins


def _step_text(step: dict[str, Any]) -> str:
    head = f"epoch {step['epoch']}, step {step['step']:,}, rank {step['rank']}: "
    lines, rows = [head + counted(step["rows"], "row")], step["records"]
    width = max((len(f"{row['record']:,}") for row in rows), default=0)
    for row in rows:
        mark = "" if row["valid"] else "  (does not count)"
        place = place_text(row["file"], row["offset"], row["bytes"])
        lines.append(f"  {row['record']:>{width},}  {place}{mark}")
    if step["rows"] > len(rows):
        lines.append(f"  … {step['rows'] - len(rows):,} more")
    return "\n".join(lines)
