"""Which record comes when: pure functions over integers."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.order._bucket_plan import BucketPlan as BucketPlan
    from penstock.order._cost_plan import CostPlan as CostPlan
    from penstock.order._cursor import Cursor as Cursor
    from penstock.order._estimate import Estimate as Estimate
    from penstock.order._estimate import estimate as estimate
    from penstock.order._kinds import ORDERS, OrderKind
    from penstock.order._mixture import STOPS, Stop
    from penstock.order._mixture import Mixture as Mixture
    from penstock.order._order import Batches as Batches
    from penstock.order._order import Kind, RecordOrder
    from penstock.order._order import Order as Order
    from penstock.order._order import Plan as Plan
    from penstock.order._order import clip_blocks as clip_blocks
    from penstock.order._packing import Packing, best_fit
    from penstock.order._packing_plan import PackingPlan as PackingPlan
    from penstock.order._padding import Padding as Padding
    from penstock.order._padding import padding_of as padding_of
    from penstock.order._permutation import GOLDEN, keys, mixed, stirred
    from penstock.order._permutation import Permutation as Permutation
    from penstock.order._plans import CutBatches, CutPlan, LengthPlan
    from penstock.order._schedule import LONGEST
    from penstock.order._sharing import share as share
    from penstock.order._sharing import share_full as share_full
    from penstock.order._sharing import share_rows as share_rows
    from penstock.order._sharing import steps as steps
    from penstock.order._skips import Skip, Skips
    from penstock.order._weighted import Weighted as Weighted
    from penstock.order._weighted import alias_table
    from penstock.order._whole import whole_number

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_bucket_plan": "BucketPlan",
        "_cost_plan": "CostPlan",
        "_cursor": "Cursor",
        "_estimate": "Estimate estimate",
        "_mixture": "Mixture",
        "_order": "Batches Order Plan clip_blocks",
        "_packing_plan": "PackingPlan",
        "_padding": "Padding padding_of",
        "_permutation": "Permutation",
        "_sharing": "share share_full share_rows steps",
        "_weighted": "Weighted",
    },
    for_rooms={
        "_kinds": "ORDERS OrderKind",
        "_mixture": "STOPS Stop",
        "_order": "Kind RecordOrder",
        "_packing": "Packing best_fit",
        "_permutation": "GOLDEN keys mixed stirred",
        "_plans": "CutBatches CutPlan LengthPlan",
        "_schedule": "LONGEST",
        "_skips": "Skip Skips",
        "_weighted": "alias_table",
        "_whole": "whole_number",
    },
)
