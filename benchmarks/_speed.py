"""Records a second of every work, beside its references and the peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from _rounds import Contender, Ratio, Side, run_rounds
from _table import RATIO_HEAD, ratio_cells, table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class Reference:
    """What a work is measured against, and the ratio that it must reach."""

    label: str
    side: str
    work: str
    must_reach: float | None = None


@dataclass(frozen=True)
class Work:
    """One thing that people do with JSON Lines."""

    key: str
    label: str
    ours: str
    peer: str
    data: str
    """What is read; when writing, the records."""
    references: tuple[Reference, ...]
    written: str = ""
    """When writing, the name of what is written."""
    on_disk: bool = False


_TWO_WRITES = Reference("`dumps`, `write`, `write` newline", "bare", "write_line_and_newline", 0.95)
_ONE_WRITE = Reference("`dumps` with newline, `write`", "bare", "write_line", 0.95)
_BARE_WRITES = (_TWO_WRITES, _ONE_WRITE)

WORKS = (
    Work(
        "read", "sync read, plain", "read", "read", "plain.jsonl",
        (Reference("`for line in f: orjson.loads(line)`", "bare", "read", 0.95),),
    ),
    Work(
        "read-zst", "sync read, zst", "read", "read", "plain.jsonl.zst",
        (Reference("`orjson.loads` over `stream_reader`", "bare", "read_zst"),),
    ),
    Work(
        "read-dir", "sync read, 8 shards", "read_shards", "read_shards", "shards",
        (Reference("`orjson.loads` loops", "bare", "read_shards"),),
    ),
    Work(
        "async", "async read, plain", "read_async", "read_async", "plain.jsonl",
        (Reference("our sync read", "ours", "read", 0.5),),
    ),
    Work(
        "async-dir", "async read, 8 shards", "read_shards_async", "read_shards_async", "shards",
        (Reference("our sync read", "ours", "read_shards", 0.5),),
    ),
    Work(
        "arrow-3", "Arrow, given schema of 3 columns", "arrow_flat", "arrow", "plain.jsonl",
        (Reference("`pyarrow.json.open_json`, whole records", "bare", "arrow", 1.2),),
    ),
    Work(
        "arrow", "Arrow, inferred schema", "arrow", "arrow", "plain.jsonl",
        (Reference("`pyarrow.json.open_json`", "bare", "arrow", 0.8),),
    ),
    Work("write", "`write`", "write", "write", "plain.jsonl", _BARE_WRITES, "out.jsonl"),
    Work(
        "write-many", "`write_many`", "write_many", "write_many", "plain.jsonl",
        _BARE_WRITES, "out.jsonl",
    ),
    Work(
        "write-nulls", "`write`, records with None", "write", "write", "nulls.jsonl",
        _BARE_WRITES, "out.jsonl",
    ),
    Work(
        "write-many-nulls", "`write_many`, records with None", "write_many", "write_many",
        "nulls.jsonl", _BARE_WRITES, "out.jsonl",
    ),
    Work(
        "write-disk", "`write_many`, to disk with fsync", "write_many", "write_many",
        "plain.jsonl",
        (Reference("`dumps` with newline, `write`, no fsync", "bare", "write_line"),),
        "out.jsonl", on_disk=True,
    ),
    Work(
        "write-zst", "`write_many`, zst level 3", "write_many", "write_many", "plain.jsonl",
        (Reference("flyte's writer, one thread", "flyte", "write_many", 1.5),), "out.jsonl.zst",
    ),
)  # fmt: skip


class SpeedRow(TypedDict):
    """One line of the table; rates in thousand records a second."""

    key: str
    work: str
    ours: float
    reference: str
    reference_rate: float
    ratio: float
    median_ratio: float
    least_ratio: float
    most_ratio: float
    must_reach: float | None
    reached: bool | None
    peer_rate: float
    ours_to_peer: float


@dataclass(frozen=True)
class Bench:
    """Where and how all works are measured."""

    sides: dict[str, Side]
    data: Path
    quick: Path
    """Where writing costs no disk."""
    records: int
    rounds: int

    def measure(self, work: Work) -> list[SpeedRow]:
        """Return one row a reference."""
        source = str(self.data / work.data)
        if work.written:
            for name in {"ours", "flyte", *(reference.side for reference in work.references)}:
                self.sides[name].ask("load", path=source)
            folder = self.data if work.on_disk else self.quick
            path = str(folder / work.written)
        else:
            path = source
        ours = Contender(self.sides["ours"], work.ours, {"path": path})
        peer = Contender(self.sides["flyte"], work.peer, {"path": path})
        peer.may_stop = all(reference.side != "flyte" for reference in work.references)
        others = [
            peer if r.side == "flyte" else Contender(self.sides[r.side], r.work, {"path": path})
            for r in work.references
        ]
        run_rounds([ours, *(x for x in others if x is not peer), peer], self.rounds, self.records)
        return [
            self._row(work, reference, ours, other, peer)
            for reference, other in zip(work.references, others, strict=True)
        ]

    def _row(
        self, work: Work, reference: Reference, ours: Contender, other: Contender, peer: Contender
    ) -> SpeedRow:
        ratio: Ratio = ours.ratio_to(other)
        must = reference.must_reach
        return SpeedRow(
            key=work.key,
            work=work.label,
            ours=self._rate(ours),
            reference=reference.label,
            reference_rate=self._rate(other),
            ratio=ratio.best,
            median_ratio=ratio.median,
            least_ratio=ratio.least,
            most_ratio=ratio.most,
            must_reach=must,
            reached=None if must is None else round(ratio.best, 2) >= must,
            peer_rate=self._rate(peer),
            ours_to_peer=ours.ratio_to(peer).best,
        )

    def _rate(self, contender: Contender) -> float:
        return self.records / min(contender.seconds) / 1000


def speed_table(rows: Iterable[SpeedRow]) -> str:
    """Return the table of all works."""
    return table(
        [*RATIO_HEAD, "ours ÷ flyte"],
        ([*ratio_cells(row), f"{row['ours_to_peer']:.2f}"] for row in rows),
    )
