"""`penstock check --schema`: the records that a schema cannot encode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.batch import BatchPosition
from penstock.cli._terminal import Progress, Report
from penstock.cli._units import counted
from penstock.cli.check._parts import Finding
from penstock.decode import OF_A_RECORD, bad_rows
from penstock.schema import ValueState, load_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.cli.check._parts import CheckTask
    from penstock.datasets import Source

_TOGETHER = 4096


def check_fit(task: CheckTask, source: Source, schema_path: str) -> Report:
    """Report each record that does not fit a schema, and the leaves that never have a value."""
    schema, findings = load_schema(schema_path, task.call.options), task.findings
    _, bound = schema.bind(source)
    every = task.numbers(len(source))
    empty = {str(address) for address in schema.hyperparameters.active_requests}
    with Progress(len(every), unit="records") as progress:
        for start in range(0, len(every), _TOGETHER):
            ids = np.array(every[start : start + _TOGETHER], np.int64)

            def attempt(first: int, stop: int, ids: NDArray[np.int64] = ids) -> None:
                own = ids[first:stop]
                where = BatchPosition(0, 0, own, own)
                for address, one in bound.read_arrays(source, where).items():
                    if address in empty and (one.state == ValueState.valued).any():
                        empty.discard(address)

            for row, why in bad_rows(len(ids), attempt, OF_A_RECORD):
                record = int(ids[row])
                place, offset = task.path, None
                if source.files:
                    place, offset, _ = source.location(record)
                at = "" if offset is None else f" (at {offset:,})"
                findings.add(Finding("misfit", str(place), None, f"{why}{at}"))
            progress.add(len(ids))
    for address in sorted(empty if len(every) else ()):
        query = schema.hyperparameters.queries[address].text  # type: ignore[index]
        findings.add(Finding("empty leaf", task.path, None, f"{address}: {query} finds no value"))
    total = findings.kinds.total()
    wrong = task.found(total) if total else "all records fit"
    records = f"{counted(len(every), 'record')}{task.share()}"
    report = Report(
        f"{task.path}: {records} under {schema_path}: {wrong}",
        path=task.path,
        schema=schema_path,
        records=len(every),
        sample=task.sample,
        findings=total,
        kinds=dict(findings.kinds),
        shown=[msgspec.to_builtins(finding) for finding in findings.shown],
    )
    report.code = findings.code
    return report
