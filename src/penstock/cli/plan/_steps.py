"""The records of steps, listed or shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli._by_number import Record, records_of
from penstock.cli._fields import without_nonfinite
from penstock.cli._printing import Printed
from penstock.cli._terminal import echo, echo_json
from penstock.cli._verb import FINDINGS, FINE
from penstock.cli.plan._numbers import steps_of
from penstock.cli.plan._text import place_of, step_document, step_text
from penstock.loading import step_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.cli._by_number import ByNumber
    from penstock.loading import Sharing, StepRecords
    from penstock.order import Cursor


def list_steps(  # noqa: PLR0913 (which, of whom, and how)
    opened: ByNumber,
    cursor: Cursor,
    sharing: Sharing,
    wanted: slice,
    ranks: Sequence[int],
    *,
    show: bool,
    as_json: bool,
) -> int:
    """Print the rows of steps, rank by rank; return the exit code."""
    plans = [steps_of(cursor, opened.source, sharing, rank) for rank in ranks]
    first, count = plans[0].first, len(plans[0])
    numbers = range(max(wanted.start or 0, first), min(count, wanted.stop or count))
    if not numbers or (wanted.start is not None and wanted.start < first):
        there = f"{first:,} to {count - 1:,}" if count > first else "none"
        echo(f"penstock: no such step: the steps of this epoch are {there}.", err=True)
        return FINDINGS
    documents: list[object] = []
    printed = Printed(None, as_json=False)
    for number in numbers:
        for steps in plans:
            rank = steps.sharing.rank
            found = step_records(steps.task(number), rank, opened.source)
            if as_json:
                values = _values(opened, found) if show else None
                documents.append(step_document(opened.path, found, values=values))
            elif show:
                echo(f"epoch {found.epoch}, step {number:,}, rank {rank}")
                printed.add_all(_shown(opened, found))
            else:
                echo(step_text(opened.path, found))
    if as_json:
        echo_json({"path": opened.path, "steps": documents})
    return FINE


def _shown(opened: ByNumber, found: StepRecords) -> Iterator[Record]:
    """Yield the records of a step's rows that count."""
    rows = {int(number): row for row, number in enumerate(found.ids)}
    for record in records_of(opened, found.ids[found.valid].tolist()):
        yield record._replace(place=place_of(opened.path, found, rows[record.number]))


def _values(opened: ByNumber, found: StepRecords) -> dict[int, object]:
    """Return the records of a step's rows that count, by their numbers."""
    return {record.number: without_nonfinite(record.value) for record in _shown(opened, found)}
