"""Who makes the batches of a loader, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import OptionError
from penstock.loading._order_choice import first_gzip, lies_remote
from penstock.loading.engines._engines import InCaller, InThreads, Reach
from penstock.order import whole_number

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from penstock.datasets import Source
    from penstock.loading._fetch import Fetch
    from penstock.loading.engines._engines import Engine
    from penstock.loading.engines._processes import StartMethod

_REMOTE_THREADS = 4
"""Each waits for a network most of the time, and reads many blocks at once when it does not."""
_COLUMN_RECORDS, _COLUMN_BYTES = 16_384, 16 << 20
"""What is gathered from columns at once."""
_TOKEN_STEPS, _TOKEN_BYTES = 1024, 4 << 20
"""What is gathered from token files at once: twice as much is no faster, half as much is slower."""
_AHEAD = 2
"""Batches that each thread or process has in hand: one in work, one that waits to be taken."""


@dataclass(frozen=True, slots=True)
class Workers:
    """A choice that was made."""

    kind: Literal["caller", "threads", "processes"]
    count: int
    why: str
    method: StartMethod | None = None
    """How processes are started."""
    ahead: int = _AHEAD
    reach: Reach | None = None
    """How much the caller reads at once, beyond a batch."""

    def engine(self, fetch: Fetch, *, is_mixed: bool = False) -> Engine:
        """Start what makes batches; `is_mixed`: of records from everywhere."""
        if self.kind == "caller":
            return InCaller(fetch, self.reach, is_mixed=is_mixed)
        if self.kind == "threads":
            return InThreads(fetch, self.count, self.ahead)
        from penstock.loading.engines._processes import InProcesses  # noqa: PLC0415 (multiprocessing)

        assert self.method is not None  # noqa: S101 (set with this kind)
        return InProcesses(fetch, self.count, self.ahead, self.method)

    def describe(self) -> str:
        """Return the choice in words."""
        if self.kind == "caller":
            who = "the caller's own thread"
        elif self.kind == "threads":
            who = f"{self.count} thread{'s' * (self.count > 1)} of this process"
        else:
            who = f"{self.count} worker process{'es' * (self.count > 1)}, by {self.method}"
        return f"{who}: {self.why}"


def choose_workers(  # noqa: PLR0913 (what the choice depends on)
    num_workers: int | Literal["auto"],
    context: str | BaseContext | None,
    source: Source,
    *,
    from_columns: bool = False,
    from_tokens: bool = False,
    batch_size: int = 1,
) -> Workers:
    """Return who makes batches: as told, or by rule."""
    is_remote = lies_remote(source) and not from_columns
    reach = _reach(from_columns=from_columns, from_tokens=from_tokens, batch_size=batch_size)
    if num_workers == "auto":
        if reach is not None and not is_remote:
            what = "columns" if from_columns else "tokens"
            why = f"to gather {what} takes less time than to hand a batch over"
            return Workers("caller", 0, why, reach=reach)
        if is_remote and first_gzip(source) is None:
            return Workers("threads", _REMOTE_THREADS, "remote reads wait for the network")
        return Workers("threads", 1, "the next batches are made while one is used")
    if isinstance(num_workers, str):
        raise OptionError(f"num_workers={num_workers!r}: expected 'auto', 0 or more.")
    count = whole_number("num_workers", num_workers, 0)
    if not count:
        if is_remote:
            # Somebody must be able to say that nothing comes.
            why = "num_workers=0, and stall_timeout needs somebody who waits"
            return Workers("threads", 1, why, ahead=1)
        return Workers("caller", 0, "num_workers=0", reach=reach)
    from penstock.loading.engines._processes import start_method  # noqa: PLC0415 (multiprocessing)

    method, why = start_method(context, source)
    return Workers("processes", count, f"num_workers={count}; {method}: {why}", method)


def _reach(*, from_columns: bool, from_tokens: bool, batch_size: int) -> Reach | None:
    """Return how much is read at once where that is nothing but taking it out of memory."""
    if from_columns:
        return Reach(max(1, _COLUMN_RECORDS // batch_size), _COLUMN_BYTES)
    return Reach(_TOKEN_STEPS, _TOKEN_BYTES) if from_tokens else None
