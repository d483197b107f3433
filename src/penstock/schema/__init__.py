"""Records into tensors by a tree of typed fields, with value states, masks and targets."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.schema._check import check_batch as check_batch
    from penstock.schema._documents import register_leaf as register_leaf
    from penstock.schema._fit import fit_vocabulary as fit_vocabulary
    from penstock.schema._model import SchemaModel as SchemaModel
    from penstock.schema._model import load_schema as load_schema
    from penstock.schema._nodes import Array as Array
    from penstock.schema._nodes import Leaf as Leaf
    from penstock.schema._nodes import Overflow as Overflow
    from penstock.schema._nodes import TensorKey as TensorKey
    from penstock.schema._nodes import Tokens as Tokens
    from penstock.schema._nodes import ValueState as ValueState
    from penstock.schema._observations import Observations
    from penstock.schema._proposal import proposed
    from penstock.schema._schema import Schema as Schema
    from penstock.schema._selectors import predicate as predicate
    from penstock.schema._selectors import where as where
    from penstock.schema._splits import Strata as Strata
    from penstock.schema._splits import split_named
    from penstock.schema._statistics import RunningStats as RunningStats
    from penstock.schema._tree import Address as Address
    from penstock.schema._tree import Tree
    from penstock.schema._values import BadSlotError as BadSlotError
    from penstock.schema._values import SlotValues as SlotValues
    from penstock.schema.leaves._category import Category as Category
    from penstock.schema.leaves._category import Entity as Entity
    from penstock.schema.leaves._category import Set as Set
    from penstock.schema.leaves._dateparts import DateParts as DateParts
    from penstock.schema.leaves._number import Number as Number
    from penstock.schema.leaves._text import Text as Text
    from penstock.schema.leaves._vector import Vector as Vector

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_check": "check_batch",
        "_documents": "register_leaf",
        "_fit": "fit_vocabulary",
        "_model": "SchemaModel load_schema",
        "_nodes": "Array Leaf Overflow TensorKey Tokens ValueState",
        "_schema": "Schema",
        "_selectors": "predicate where",
        "_splits": "Strata",
        "_statistics": "RunningStats",
        "_tree": "Address",
        "_values": "BadSlotError SlotValues",
        "leaves._category": "Category Entity Set",
        "leaves._dateparts": "DateParts",
        "leaves._number": "Number",
        "leaves._text": "Text",
        "leaves._vector": "Vector",
    },
    for_rooms={
        "_observations": "Observations",
        "_proposal": "proposed",
        "_splits": "split_named",
        "_tree": "Tree",
    },
)
