"""`penstock check --schema`: the records that a schema cannot encode, or takes in part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.batch import BatchPosition
from penstock.cli._terminal import Progress, Report
from penstock.cli._units import counted
from penstock.cli.check._parts import Finding
from penstock.datasets import RecordPlaces
from penstock.decode import OF_A_RECORD, bad_rows
from penstock.schema import ValueState, load_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from penstock.cli.check._parts import CheckTask
    from penstock.datasets import RecordPlace, Source
    from penstock.schema import Schema

_TOGETHER = 4096
_KINDS = 2
"""Of labels: texts, and all others."""


class RecordFinding(Finding, frozen=True, kw_only=True):
    """A finding about one record."""

    record: int
    address: str | None
    value: str | None
    """The value in short, where it is known."""


class _Fit:
    """What the records of a source show of a schema."""

    def __init__(self, schema: Schema, source: Source, path: str) -> None:
        self._source, self._path = source, path
        _, self._bound = schema.bind(source)
        self._bound.strict = False  # Values of another structure are findings of their own.
        tree = schema.hyperparameters
        self.queries = {str(at): tree.queries[at].text for at in tree.active_requests}
        words = schema.interprocess_encoding_context
        self._frozen = {str(at) for at in words if words[at].is_frozen and not len(words[at])}
        """The leaves whose vocabularies stay empty."""
        self._empty = set(self.queries)
        """The leaves that had no value yet."""
        self._labels: dict[str, dict[bool, tuple[Any, int]]] = {str(at): {} for at in words}
        """Of each vocabulary a label that is a text, under True, and one that is none, with the
        numbers of their records."""

    def faults(self, ids: NDArray[np.int64]) -> list[RecordFinding]:
        """Return what is wrong with some records, in their order, without their places."""
        faults: list[RecordFinding] = []

        def attempt(start: int, stop: int) -> None:
            part = ids[start:stop]
            arrays = self._bound.read_arrays(self._source, BatchPosition(0, 0, part, part))
            faults.extend(self._of_arrays(arrays, part))

        for row, why in bad_rows(len(ids), attempt, OF_A_RECORD):
            value, address = getattr(why, "value", None), str(getattr(why, "field", "")) or None
            faults.append(self._fault("misfit", ids[row], address, value, str(why)))
        return sorted(faults, key=lambda fault: fault.record)

    def _fault(
        self, kind: str, record: np.int64, address: str | None, value: str | None, reason: str
    ) -> RecordFinding:
        return RecordFinding(
            kind, self._path, None, reason, record=int(record), address=address, value=value
        )

    def _of_arrays(
        self, arrays: Mapping[str, Any], ids: NDArray[np.int64]
    ) -> Iterator[RecordFinding]:
        for at, leaf in arrays.items():
            address = str(at)
            if address in self._empty and (leaf.state == ValueState.valued).any():
                self._empty.discard(address)
            for odd in leaf.odd:
                record = ids[odd.row]
                reason = f"record {record:,}: {address}: {odd.fact}; {odd.outcome}"
                yield self._fault("wrong structure", record, address, odd.text, reason)
            if address in self._labels and len(self._labels[address]) < _KINDS:
                yield from self._mixed(address, leaf, ids)

    def _mixed(
        self,
        address: str,
        leaf: Any,  # noqa: ANN401 (the arrays of a leaf)
        ids: NDArray[np.int64],
    ) -> Iterator[RecordFinding]:
        """Yield the first record with a label of a second kind."""
        codes, seen = leaf.content["codes"].reshape(-1), self._labels[address]
        for code, key in enumerate(leaf.labels):
            is_text = isinstance(key, str)
            if is_text in seen or not (codes == code).any():
                continue
            place = int((codes == code).argmax())
            row = place * len(ids) // codes.size
            if leaf.offsets is not None:  # Of sets, whose labels stand one behind the other.
                row = int(np.searchsorted(leaf.offsets, np.int64(place), side="right")) - 1
            label = key[0] if isinstance(key, tuple) else key
            seen[is_text] = (label, int(ids[row]))
            if len(seen) == _KINDS:
                (text, first), (other, second) = seen[True], seen[False]
                reason = (
                    f"{address}: {text!r} of record {first:,} is a text, {other!r} of record "
                    f"{second:,} is none, and they are two labels"
                )
                yield self._fault("mixed labels", ids[row], address, repr(label), reason)

    def lacks(self) -> Iterator[tuple[str, str]]:
        """Yield what all records lack: the kind of the finding, and the reason."""
        for address, query in self.queries.items():
            if address in self._empty:
                yield "empty leaf", f"{address}: {query} finds no value"
            elif address in self._labels and not self._labels[address]:
                yield "empty vocabulary", f"{address}: no record has a label"
            elif address in self._frozen:
                yield "empty vocabulary", f"{address}: it is frozen, so no label is known"


def check_fit(task: CheckTask, source: Source, schema_path: str) -> Report:
    """Report each record that does not fit a schema, and the leaves that never have a value."""
    schema, findings = load_schema(schema_path, task.call.options), task.findings
    fit = _Fit(schema, source, task.path)
    places, every = RecordPlaces(source), task.numbers(len(source))
    with Progress(len(every), unit="records") as progress:
        for start in range(0, len(every), _TOGETHER):
            ids = np.array(every[start : start + _TOGETHER], np.int64)
            for fault in fit.faults(ids):
                is_shown = len(findings.shown) < findings.most
                findings.add(_placed(fault, places(fault.record)) if is_shown else fault)
            progress.add(len(ids))
    if len(every) or task.sample is None:
        for kind, reason in fit.lacks():
            findings.add(Finding(kind, task.path, None, reason))
    total = findings.kinds.total()
    wrong = (
        task.found(total) if total else "all records fit" if len(every) else "none was looked at"
    )
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


def _placed(finding: RecordFinding, place: RecordPlace | None) -> RecordFinding:
    if place is None:
        return finding
    reason = f"{finding.reason} ({'row' if place.is_row else 'at'} {place.offset:,})"
    return msgspec.structs.replace(finding, path=place.path, line=place.line, reason=reason)
