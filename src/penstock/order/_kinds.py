"""The kinds of orders, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.order._mixture import MixtureOrder
from penstock.order._order import KINDS, Order
from penstock.order._weighted import WeightedOrder

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.order._order import RecordOrder


class OrderKind(NamedTuple):
    """How the orders of one kind are made."""

    make: Callable[..., RecordOrder]
    """Called as `Order` is, and with `own` and `needs` by keyword."""
    version: int
    """The newest `VERSION` that a state may have."""
    needs: str = ""
    """What the source must give it, such as its `blocks`; only then the order can be asked for
    records. Its length is known without."""
    own: tuple[str, ...] = ()
    """Parameters of this kind alone, which stand in the `order` of a state."""


ORDERS: dict[str, OrderKind] = {
    **{kind: OrderKind(Order, Order.VERSION, "blocks" * (kind == "block")) for kind in KINDS},
    WeightedOrder.kind: OrderKind(
        WeightedOrder, WeightedOrder.VERSION, "table", ("weights", "draws")
    ),
    MixtureOrder.kind: OrderKind(
        MixtureOrder,
        MixtureOrder.VERSION,
        "blocks",
        ("names", "lengths", "orders", "stop", "weights"),
    ),
}
"""Each kind of order, by the name that a state has for it. Kinds without parameters of their own
are also names for `shuffle=`."""
