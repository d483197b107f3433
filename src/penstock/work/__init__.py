"""Units of work, run by processes that may die, with one view of how far they are."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.work._failures import Failure as Failure
    from penstock.work._failures import error_of as error_of
    from penstock.work._failures import failure_of as failure_of
    from penstock.work._local import run_units as run_units
    from penstock.work._process import interrupts_held as interrupts_held
    from penstock.work._progress import Bar as Bar
    from penstock.work._progress import View as View
    from penstock.work._progress import viewed as viewed
    from penstock.work._shares import grouped as grouped
    from penstock.work._shares import shares as shares
    from penstock.work._unit import Unit as Unit

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "Bar": "_progress",
        "Failure": "_failures",
        "Unit": "_unit",
        "View": "_progress",
        "error_of": "_failures",
        "failure_of": "_failures",
        "grouped": "_shares",
        "interrupts_held": "_process",
        "run_units": "_local",
        "shares": "_shares",
        "viewed": "_progress",
    },
)
