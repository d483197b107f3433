"""Worker processes, and units of work that they run, with one view of the progress."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.work._failures import Failure, error_of, failure_of
    from penstock.work._local import run_units
    from penstock.work._process import (
        StartMethod,
        WorkerProcess,
        end_all,
        interrupts_held,
        started_worker,
    )
    from penstock.work._progress import Bar, View, viewed
    from penstock.work._unit import PublishedUnit, Shared, Unit, UnitResults, grouped, shares
    from penstock.work._worker import begin_worker

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_failures": "Failure error_of failure_of",
        "_local": "run_units",
        "_process": "StartMethod WorkerProcess end_all interrupts_held started_worker",
        "_progress": "Bar View viewed",
        "_unit": "PublishedUnit Shared Unit UnitResults grouped shares",
        "_worker": "begin_worker",
    },
)
