"""Where the batches of a loader are made, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import OptionError
from penstock.loading.engines._engines import InCaller, InThreads, LotLimit
from penstock.order import whole_number

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from penstock.loading._feed import Reads
    from penstock.loading._fetch import Fetch
    from penstock.loading._recipes import Recipe
    from penstock.loading.engines._engines import Engine
    from penstock.work import StartMethod

_REMOTE_THREADS = 4
"""Each waits for the network most of the time; one read fetches many blocks at once."""
_COLUMN_RECORDS, _COLUMN_BYTES = 16_384, 16 << 20
"""How much is gathered from columns at once."""
_DECODED_RECORDS = 2_048
"""How many records are decoded at once: twice as many gain little, half as many are slower."""
_TOKEN_STEPS, _TOKEN_BYTES = 1024, 4 << 20
"""How much is gathered from token files at once: twice as much is no faster, half is slower."""
_AHEAD = 2
"""Batches that each thread or process holds: one in work, one that waits to be taken."""


@dataclass(frozen=True, slots=True)
class Workers:
    """A choice of engine, with its reason."""

    kind: Literal["caller", "threads", "processes"]
    count: int
    why: str
    method: StartMethod | None = None
    """How processes are started."""
    ahead: int = _AHEAD
    limit: LotLimit | None = None
    """How much a thread reads at once, beyond a batch."""

    def engine(self, fetch: Fetch, *, is_mixed: bool = False) -> Engine:
        """Start the engine; `is_mixed`: the records of a batch come from everywhere."""
        if self.kind == "caller":
            return InCaller(fetch, self.limit, is_mixed=is_mixed)
        if self.kind == "threads":
            return InThreads(fetch, self.count, self.ahead, self.limit, is_mixed=is_mixed)
        from penstock.loading.engines._processes import InProcesses  # noqa: PLC0415 (multiprocessing)

        assert self.method is not None  # noqa: S101 (set with this kind)
        return InProcesses(fetch, self.count, self.ahead, self.method)

    def describe(self) -> str:
        if self.kind == "caller":
            who = "the caller's own thread"
        elif self.kind == "threads":
            who = f"{self.count} thread{'s' * (self.count > 1)} of this process"
        else:
            who = f"{self.count} worker process{'es' * (self.count > 1)}, by {self.method}"
        return f"{who}: {self.why}"


def choose_workers(
    num_workers: int | Literal["auto"],
    context: str | BaseContext | None,
    reads: Reads,
    recipe: Recipe,
    batch_size: int = 1,
) -> Workers:
    """Return where batches are made: as the user says, or by rule."""
    is_remote = reads.is_remote and not reads.from_columns
    limit = None
    if reads.from_columns:
        limit = LotLimit(max(1, _COLUMN_RECORDS // batch_size), _COLUMN_BYTES)
    elif recipe.reads_tokens:
        limit = LotLimit(_TOKEN_STEPS, _TOKEN_BYTES)
    elif recipe.is_cut_last and not is_remote:
        limit = LotLimit(max(1, _DECODED_RECORDS // batch_size), _COLUMN_BYTES)
    if num_workers == "auto":
        if (reads.from_columns or recipe.reads_tokens) and not is_remote:
            what = "columns" if reads.from_columns else "tokens"
            why = f"to gather {what} takes less time than to hand a batch over"
            return Workers("caller", 0, why, limit=limit)
        if is_remote and not reads.is_sequential:
            return Workers("threads", _REMOTE_THREADS, "remote reads wait for the network")
        why = "the next batches are made while one is used"
        return Workers("threads", 1, why, limit=limit)
    if isinstance(num_workers, str):
        raise OptionError(f"num_workers={num_workers!r}: expected 'auto', 0 or more.")
    count = whole_number("num_workers", num_workers, 0)
    if not count:
        if is_remote:
            # A reader thread is needed so that a stall can be reported.
            why = "num_workers=0, and stall_timeout needs a thread that waits"
            return Workers("threads", 1, why, ahead=1)
        return Workers("caller", 0, "num_workers=0", limit=limit)
    from penstock.loading.engines._processes import start_method  # noqa: PLC0415 (multiprocessing)

    method, why = start_method(context, is_remote=reads.is_remote)
    return Workers("processes", count, f"num_workers={count}; {method}: {why}", method)
