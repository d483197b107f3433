"""Which record comes when: pure functions over integers."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.order._cursor import Cursor as Cursor
    from penstock.order._estimate import Estimate as Estimate
    from penstock.order._estimate import estimate as estimate
    from penstock.order._order import ORDERS as ORDERS
    from penstock.order._order import Batches as Batches
    from penstock.order._order import Kind as Kind
    from penstock.order._order import Order as Order
    from penstock.order._order import OrderKind as OrderKind
    from penstock.order._order import Plan as Plan
    from penstock.order._order import RecordOrder as RecordOrder
    from penstock.order._order import clip_blocks as clip_blocks
    from penstock.order._packing import Packing as Packing
    from penstock.order._packing import best_fit as best_fit
    from penstock.order._permutation import Permutation as Permutation
    from penstock.order._permutation import keys as keys
    from penstock.order._permutation import mixed as mixed
    from penstock.order._sharing import share as share
    from penstock.order._sharing import share_full as share_full
    from penstock.order._sharing import share_rows as share_rows
    from penstock.order._sharing import steps as steps
    from penstock.order._skips import Skip as Skip
    from penstock.order._skips import Skips as Skips
    from penstock.order._whole import whole_number as whole_number

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "Batches": "_order",
        "Cursor": "_cursor",
        "Estimate": "_estimate",
        "Order": "_order",
        "Permutation": "_permutation",
        "Plan": "_order",
        "clip_blocks": "_order",
        "estimate": "_estimate",
        "share": "_sharing",
        "share_full": "_sharing",
        "share_rows": "_sharing",
        "steps": "_sharing",
    },
    for_rooms={
        "Kind": "_order",
        "ORDERS": "_order",
        "OrderKind": "_order",
        "Packing": "_packing",
        "RecordOrder": "_order",
        "Skip": "_skips",
        "Skips": "_skips",
        "best_fit": "_packing",
        "keys": "_permutation",
        "mixed": "_permutation",
        "whole_number": "_whole",
    },
)
