# ruff: noqa: ANN401 (requests, points and positions are a feed's own)
"""Where records come from, apart from how batches are made: the contract of a feed.

A feed has two sides. In the user's process a `Feed` hands out tasks and says where a run stands.
Where batches are made, its `Reader` turns a task into records. Recipes, engines, delivery and state
are the same for every feed. `_addressed.py` is the feed of sources that answer by record number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.datasets import Source
    from penstock.loading._fetch import Masked
    from penstock.loading._options import Skipped
    from penstock.loading._peers import Peers
    from penstock.loading._recipes import Recipe
    from penstock.loading._steps import Sharing, StepRecords, Task
    from penstock.order import Mixture, Plan


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The options of a loader that decide which records come when; see `DataLoader`."""

    shuffle: bool | Literal["full", "block"] = False
    seed: int = 0
    plan: Plan | None = None
    weights: Any = None
    balance: str | None = None
    mixture: Mixture | None = None
    """The mixture of which the source, one with `names`, has the records."""
    skip: Skipped = None
    materialize: Literal["auto"] | bool = "auto"
    masked: Masked = ()
    max_bad: int = 100
    on_changed: Literal["raise", "continue"] = "raise"
    patience: float = 600
    """Seconds to wait for storage that does not answer."""
    processes: int = 0
    """Worker processes that were asked for."""


class Point(Protocol):
    """Where a run stands: a small immutable value without ranks and workers."""

    @property
    def epoch(self) -> int: ...

    @property
    def position(self) -> Any:
        """How much of the epoch was handed out; 0 at its beginning."""

    def at(self, epoch: int | None = None, position: Any = 0) -> Self:
        """Return another point of the same run; without `epoch`, in the same epoch."""


class Placed(NamedTuple):
    """A request and a point of its epoch."""

    epoch: Point
    request: Any
    """Pickles; has `step`, and `steps`: 1, or more where it is a `Task`, which has its records. All
    requests with the same `lane`, where they have one, go to the same worker process, in order."""
    note: Callable[[Task], Task] | None = None
    """Where it is no `Task`: called with the task that it became, in the order of delivery; returns
    the task as it is handed out, with the `position` of all that was handed out until then."""


class Opened(NamedTuple):
    """The records of a request."""

    source: Source
    """Reads the records by the numbers in `task.where.ids`; `penstock.datasets.RecordsAt` makes one
    of a list of records."""
    task: Task
    """Without rows where the feed asked for more than there is."""


class Reader(Protocol):
    """Turns requests into records where batches are made.

    Small, picklable, used by any number of threads at once: by one, where `Reads.is_sequential`.
    """

    @property
    def is_remote(self) -> bool:
        """Whether reading needs an object store, whose client does not survive a fork."""

    @property
    def is_numbered(self) -> bool:
        """Whether records were looked at before, and have numbers that `skip` takes."""

    def opened(self, request: Any) -> Opened:
        """Return the records of a request; `task` is the request itself where that is a task."""

    def name(self, request: Any) -> str:
        """Return which records a request has, as a sentence for errors."""

    def place(self, request: Any) -> str:
        """Return which file and bytes its first record has; "" where that is not known."""

    def warm_up(self, recipe: Recipe) -> None:
        """Load what reading needs, so that forked workers inherit it."""

    def close(self) -> None:
        """Close what is open; called once, when no more requests come."""


class Reads(NamedTuple):
    """How records are read, as far as the choice of workers depends on it."""

    is_remote: bool = False
    is_sequential: bool = False
    """Whether records can only be read one after the other."""
    from_columns: bool = False
    """Whether batches are gathered from columns: kept ones, or those of a table in memory."""


class Feed(Protocol):
    """Hands out the requests of a run in the user's process; used by one thread."""

    begin: Any
    """The `Point` at which a new run stands."""

    def name(self, point: Any) -> tuple[str, str]:
        """Return what it holds and in which order, in a few words each, for `repr`."""

    def describe(self, point: Any) -> dict[str, str]:
        """Return `source`, `order` and `state` for `explain()`, and what else was decided."""

    def prepare(self, point: Any) -> None:
        """Make what a pass needs, before the run moves."""

    def reads(self, point: Any) -> Reads:
        """Return how records are read."""

    def reader(self, point: Any) -> tuple[Reader, bool]:
        """Return what reads records, and whether those of a batch come from everywhere."""

    def requests(
        self, point: Any, sharing: Sharing, together: Callable[[], int], peers: Peers | None
    ) -> Iterator[Placed | None]:
        """Yield the requests of the rest of an epoch, each of at most `together()` steps.

        None in place of a request lets all batches before it be handed out first. `peers` are the
        other ranks, where a process group connects them.
        """

    def steps(self, point: Any, sharing: Sharing) -> int:
        """Return how many steps an epoch has, those before the point included."""

    def records(self, point: Any, step: int, sharing: Sharing) -> StepRecords:
        """Return the records of one step of the point's epoch."""

    def state(self, point: Any) -> dict[str, object]:
        """Return the state document of a point, in plain JSON types.

        Its `order` part names the kind of order and its version.
        """

    def is_whole(self, point: Any) -> bool:
        """Whether a point says where all ranks stand; else each rank knows its own part."""

    def joined(self, states: Sequence[Mapping[str, Any]]) -> dict[str, object]:
        """Return one state document of those of all ranks."""

    def resumed(self, state: Mapping[str, Any]) -> Any:
        """Return the point of a state document; refuse a kind or version of order it has not."""


@runtime_checkable
class HasFeed(Protocol):
    """A source of records that has a feed of its own, for records that cannot be numbered."""

    def __penstock_feed__(self, options: FeedOptions) -> Feed:
        """Return the feed of a new run."""
