"""Which record comes when: pure functions over integers."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.order._mix import keys as keys
    from penstock.order._mix import mixed as mixed
    from penstock.order._permutation import Permutation as Permutation

__all__, __getattr__, __dir__ = facade(
    __name__, {"Permutation": "_permutation"}, for_rooms={"keys": "_mix", "mixed": "_mix"}
)
