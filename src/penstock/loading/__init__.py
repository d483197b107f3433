"""Batches for a training loop: shuffled, shared over ranks, made ahead of time, resumable."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.loading._addressed import begin_of, order_choice
    from penstock.loading._feed import (
        Feed,
        FeedOptions,
        HasFeed,
        Opened,
        Placed,
        Point,
        Reader,
        Reads,
    )
    from penstock.loading._kept_plans import (
        bound_plan,
        check_plan,
        describe_plan,
        plan_before,
    )
    from penstock.loading._loader import DataLoader as DataLoader
    from penstock.loading._mixing import mixed_source
    from penstock.loading._options import read_skips, refuse_unknown
    from penstock.loading._order_choice import OrderChoice, chosen_order
    from penstock.loading._run import learnt_in, resumed
    from penstock.loading._steps import (
        EpochSteps,
        PlannedSteps,
        Sharing,
        StepRecords,
        Steps,
        Task,
        step_records,
    )

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_loader": "DataLoader",
    },
    for_rooms={
        "_addressed": "begin_of order_choice",
        "_feed": "Feed FeedOptions HasFeed Opened Placed Point Reader Reads",
        "_kept_plans": "bound_plan check_plan describe_plan plan_before",
        "_mixing": "mixed_source",
        "_options": "read_skips refuse_unknown",
        "_order_choice": "OrderChoice chosen_order",
        "_run": "learnt_in resumed",
        "_steps": "EpochSteps PlannedSteps Sharing StepRecords Steps Task step_records",
    },
)
