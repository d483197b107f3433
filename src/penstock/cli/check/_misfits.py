"""`penstock check --schema`: the records that a schema cannot encode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.batch import BatchPosition
from penstock.cli._terminal import Progress, Report, echo
from penstock.cli._units import counted
from penstock.cli._verb import FINDINGS, FINE
from penstock.cli.check._parts import Finding, Findings, Sample
from penstock.decode import OF_A_RECORD, bad_rows
from penstock.schema import ValueState, load_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.cli.check._check import CheckTask
    from penstock.datasets import Source

_TOGETHER = 4096


def check_fit(task: CheckTask, source: Source, schema_path: str, most: int) -> int:
    """Report each record that does not fit a schema, and the leaves that never have a value."""
    schema = load_schema(schema_path, task.storage_options)
    _, bound = schema.bind(source)
    findings = Findings(most, (lambda _: None) if task.as_json else lambda one: echo(str(one)))
    chosen = (
        range(len(source))
        if task.sample is None
        else Sample(task.sample, str(task.seed))(len(source))
    )
    every = np.array(chosen, np.int64)
    empty = {str(address) for address in schema.hyperparameters.active_requests}
    with Progress(len(every), unit="records") as progress:
        for start in range(0, len(every), _TOGETHER):
            ids = every[start : start + _TOGETHER]

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
    wrong = counted(total, "finding") if total else "all records fit"
    hidden = f" ({total - len(findings.shown):,} not shown)" if total > len(findings.shown) else ""
    share = "" if task.sample is None else f" in a sample of {100 * task.sample:g} % of them"
    report = Report(
        f"{task.path}: {counted(len(every), 'record')}{share} under {schema_path}: {wrong}{hidden}",
        path=task.path,
        schema=schema_path,
        records=len(every),
        sample=task.sample,
        findings=total,
        kinds=dict(findings.kinds),
        shown=[msgspec.to_builtins(finding) for finding in findings.shown],
    )
    report.print(as_json=task.as_json)
    return FINDINGS if total else FINE
