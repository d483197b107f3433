"""Worker processes, and units of work that they run, with one view of the progress."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.work._failures import Failure as Failure
    from penstock.work._failures import error_of as error_of
    from penstock.work._failures import failure_of as failure_of
    from penstock.work._local import run_units as run_units
    from penstock.work._process import StartMethod as StartMethod
    from penstock.work._process import WorkerProcess as WorkerProcess
    from penstock.work._process import end_all as end_all
    from penstock.work._process import interrupts_held as interrupts_held
    from penstock.work._process import started_worker as started_worker
    from penstock.work._progress import Bar as Bar
    from penstock.work._progress import View as View
    from penstock.work._progress import viewed as viewed
    from penstock.work._unit import PublishedUnit as PublishedUnit
    from penstock.work._unit import Shared as Shared
    from penstock.work._unit import Unit as Unit
    from penstock.work._unit import UnitResults as UnitResults
    from penstock.work._unit import grouped as grouped
    from penstock.work._unit import shares as shares
    from penstock.work._worker import begin_worker as begin_worker

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "Bar": "_progress",
        "Failure": "_failures",
        "PublishedUnit": "_unit",
        "Shared": "_unit",
        "Unit": "_unit",
        "UnitResults": "_unit",
        "StartMethod": "_process",
        "View": "_progress",
        "WorkerProcess": "_process",
        "begin_worker": "_worker",
        "end_all": "_process",
        "error_of": "_failures",
        "failure_of": "_failures",
        "grouped": "_unit",
        "interrupts_held": "_process",
        "run_units": "_local",
        "shares": "_unit",
        "started_worker": "_process",
        "viewed": "_progress",
    },
)
