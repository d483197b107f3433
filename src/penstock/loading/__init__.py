"""Batches for a training loop: shuffled, shared over ranks, made ahead of time, resumable."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.loading._feed import Feed as Feed
    from penstock.loading._feed import FeedOptions as FeedOptions
    from penstock.loading._feed import HasFeed as HasFeed
    from penstock.loading._feed import Opened as Opened
    from penstock.loading._feed import Placed as Placed
    from penstock.loading._feed import Point as Point
    from penstock.loading._feed import Reader as Reader
    from penstock.loading._feed import Reads as Reads
    from penstock.loading._loader import DataLoader as DataLoader
    from penstock.loading._options import read_skips as read_skips
    from penstock.loading._order_choice import chosen_order as chosen_order
    from penstock.loading._order_choice import natural_shuffle as natural_shuffle
    from penstock.loading._run import resumed as resumed
    from penstock.loading._steps import Sharing as Sharing
    from penstock.loading._steps import StepRecords as StepRecords
    from penstock.loading._steps import Steps as Steps
    from penstock.loading._steps import Task as Task
    from penstock.loading._steps import step_records as step_records

__all__, __getattr__, __dir__ = facade(
    __name__,
    {"DataLoader": "_loader"},
    for_rooms={
        "Feed": "_feed",
        "FeedOptions": "_feed",
        "HasFeed": "_feed",
        "Opened": "_feed",
        "Placed": "_feed",
        "Point": "_feed",
        "Reader": "_feed",
        "Reads": "_feed",
        "Sharing": "_steps",
        "StepRecords": "_steps",
        "Steps": "_steps",
        "Task": "_steps",
        "chosen_order": "_order_choice",
        "natural_shuffle": "_order_choice",
        "read_skips": "_options",
        "resumed": "_run",
        "step_records": "_steps",
    },
)
