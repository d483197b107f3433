"""Nodes of a schema tree: arrays and leaves. A node is a value: it never changes."""

from __future__ import annotations

import difflib
import re
import warnings
from abc import ABC, abstractmethod
from copy import copy
from enum import IntEnum, StrEnum
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar, Self

from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.schema._arrays import LeafArrays
    from penstock.schema._tree import Address
    from penstock.schema._values import SlotValues
    from penstock.schema._vocabulary import Vocabulary

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_LIKE = 0.8


class Overflow(StrEnum):
    """Which items of a list stay where an array has fewer slots than the list has items."""

    head = "head"
    """The first ones."""
    tail = "tail"
    """The last ones, in their order."""
    error = "error"
    """None: a list that is too long raises."""


class ValueState(IntEnum):
    """What a slot of a leaf holds."""

    valued = 0
    null = 1
    """The record has the slot, and no value in it."""
    padded = 2
    """The record does not have the slot."""
    masked = 3
    """The value is hidden from the model."""
    other = 4
    """Reserved."""


VALUED, NULL, PADDED, MASKED = map(int, [*ValueState][:4])
"""The same as numbers: an attribute of an enum takes longer than a small array operation."""

Tokens = ValueState
"""The name that json2vec has for it."""


class TensorKey(StrEnum):
    """Names of parts of a batch and of predictions."""

    value = "value"
    content = "content"
    state = "state"
    trainable = "trainable"
    targets = "targets"
    metadata = "metadata"
    intervals = "intervals"
    probability = "probability"
    topk = "topk"
    embedding = "embedding"


class Node(ABC):
    """A named node; its options are attributes."""

    name: str
    address: Address | None = None
    """Where it stands in the tree that it was taken from."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        if not isinstance(options["name"], str) or not _NAME.fullmatch(options["name"]):
            raise OptionError(
                f"name={options['name']!r}: the name of a node has letters, digits, _ and -. "
                "A field of another name is read by query, as in query='[*].\"unit price\"'."
            )
        vars(self).update(options)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"{type(self).__name__} {self.name!r} does not change: use update({name}=…) of the "
            "schema that holds it."
        )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.options().items())
        return f"{type(self).__name__}({given})"

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Return the arguments that make this node, those with their default left out."""

    def at(self, address: Address, **options: Any) -> Self:
        """Return this node with its address."""
        other = copy(self)
        vars(other).update(options, address=address)
        return other

    def replaced(self, **values: Any) -> Self:
        """Return this node with other options."""
        return type(self)(**{**self.options(), **values})

    @classmethod
    def known(cls) -> dict[str, Any]:
        """Return the options of this kind of node, each with its default."""
        found: dict[str, Any] = {}
        for kind in reversed(cls.__mro__):
            if issubclass(kind, Node) and "__init__" in vars(kind) and kind is not Node:
                parameters = signature(vars(kind)["__init__"]).parameters.values()
                found |= {
                    one.name: one.default
                    for one in parameters
                    if one.name != "self" and one.kind in _NAMED
                }
        return found


_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Leaf(Node):
    """A field of records that becomes tensors; the base of all kinds of leaves.

    A kind of your own has `from_values`, and is known to saved schemas by `register_leaf`.

    Args:
        name: The last part of its address.
        query: Where its values lie in a record, in JMESPath, as in `"[*].txn.usd"`. By default
            below the arrays above it, under its name.
        active: Whether it is read and part of batches.
        p_mask: The probability that a slot is hidden, in [0, 1).
        p_prune: The probability that all slots of a record are hidden, in [0, 1].
        target: True hides all of it, always: the same as `p_prune=1`.
        weight: For the model.
        metadata: Any other option is kept for the model.
    """

    kind: ClassVar[str]
    """The name of this kind in saved schemas."""
    guess: ClassVar[pa.DataType]
    """The Arrow type that is tried where the types of records are not known."""
    takes_lists: ClassVar[bool] = False
    """Whether a value is a list."""
    hidden: ClassVar[int] = 0
    """The content of hidden slots."""
    query: str | None
    active: bool
    p_mask: float
    p_prune: float
    weight: float
    metadata: dict[str, Any]

    def __init__(  # noqa: PLR0913 (options by name)
        self,
        name: str,
        *,
        query: str | None = None,
        active: bool = True,
        p_mask: float = 0.0,
        p_prune: float | None = None,
        target: bool | None = None,
        weight: float = 1.0,
        embed: Any = None,
        description: str | None = None,
        pooling: Any = None,
        **own: Any,
    ) -> None:
        label = f"{type(self).__name__} {name!r}"
        if query is not None:
            check_text(label, "query", query)
        check_bool(label, "active", active)
        check_share(label, "p_mask", p_mask, below=True)
        check_share(label, "p_prune", p_prune or 0.0)
        if target is not None:
            check_bool(label, "target", target)
            if p_prune is not None and (p_prune != 1 if target else p_prune > 0):
                raise OptionError(
                    f"{label}: target={target} and p_prune={p_prune} contradict each other: a "
                    "target has p_prune=1. Give one of them."
                )
        check_weight(label, weight)
        if "kind" in own:
            raise OptionError(f"{label}: kind= is the name of a kind of leaf, and no option.")
        known = self.known()
        metadata = {key: value for key, value in own.items() if key not in known}
        for key in metadata:
            if near := difflib.get_close_matches(key, known, 1, _LIKE):
                warnings.warn(
                    f"{label}: {key}= is no option, and is kept as metadata; did you mean "
                    f"{near[0]}=?",
                    stacklevel=3,
                )
        super().__init__(
            {
                "name": name,
                "query": query,
                "active": active,
                "p_mask": float(p_mask),
                "p_prune": 1.0 if target else float(p_prune or 0.0),
                "weight": float(weight),
                "embed": embed,
                "description": description,
                "pooling": pooling,
                **{key: value for key, value in own.items() if key in known},
                "metadata": metadata,
            }
        )

    @property
    def target(self) -> bool:
        """Whether all of it is always hidden."""
        return self.p_prune == 1.0

    def options(self) -> dict[str, Any]:
        given = {
            key: vars(self)[key]
            for key, default in self.known().items()
            if key in vars(self) and vars(self)[key] != default
        }
        if not self.p_prune:
            given.pop("p_prune", None)
        return {**given, **self.metadata}

    # How it becomes arrays, where batches are made: pure, and without torch.

    def check_shape(self, address: str, shape: tuple[int, ...]) -> None:
        """Raise where a leaf of this kind cannot stand under such arrays."""

    def wanted(self, found: pa.DataType) -> pa.DataType | None:
        """Return the Arrow type to read values in that a source holds as `found`.

        None reads them as Python values, for `from_values`.
        """
        return found

    @abstractmethod
    def from_values(self, values: Sequence[Any]) -> SlotValues:
        """Return the content of slots that records have, given their values; None for null.

        A value that does not fit raises `BadSlotError`.
        """

    def from_arrow(self, values: pa.Array) -> SlotValues:
        """Return the same from a column: faster where a column operation does it."""
        return self.from_values(values.to_pylist())

    # How arrays become content, in the user's process, in the order of delivery.

    def vocabulary(self) -> Vocabulary | None:
        """Return the empty vocabulary of a leaf that keeps one."""
        return None

    def classes(self) -> dict[str, int]:
        """Return how many classes `state` and `content` have, where training counts them."""
        return {"state": len(ValueState)}

    def finished(
        self,
        arrays: LeafArrays,
        words: Vocabulary | None,
        *,
        learn: bool,
        valid: NDArray[np.bool_] | None,
    ) -> dict[str, NDArray[Any]]:
        """Return the parts of the content, [B, 1, …] each; "" is the name of an only part.

        With `learn`, labels of the rows that are `valid` are added to `words`.
        """
        return arrays.content

    @abstractmethod
    def empty(self, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Return the content of slots that are all hidden."""


class Array(Node):
    """A list in records: each of its first `max_length` items has a slot in the leaves below.

    Args:
        children: The leaves and arrays of an item; or give them as `fields`.
        name: The last part of its address, and the name of the list in a record.
        max_length: Slots.
        overflow: What becomes of longer lists: "head", "tail" or "error".
        attention: For the model, as are all options that follow.
    """

    fields: tuple[Node, ...]
    max_length: int
    overflow: Overflow

    def __init__(  # noqa: PLR0913 (options by name)
        self,
        *children: Node,
        name: str,
        max_length: int = 1,
        overflow: str | Overflow = Overflow.head,
        fields: Sequence[Node] = (),
        attention: Any = None,
        n_layers: int | None = None,
        n_heads: int | None = None,
        n_linear: int | None = None,
        dropout: float | None = None,
        embed: Any = None,
        description: str | None = None,
    ) -> None:
        label = f"Array {name!r}"
        if children and fields:
            raise OptionError(f"{label}: give its nodes by position, or as fields=, not both.")
        nodes = tuple(children or fields)
        for node in nodes:
            if not isinstance(node, Node):
                raise OptionError(f"{label}: {node!r} is no node: expected an Array or a leaf.")
        names = [node.name for node in nodes]
        if twice := next((one for one in names if names.count(one) > 1), None):
            raise OptionError(f"{label}: two nodes have the name {twice!r}.")
        check_count(label, "max_length", max_length)
        if n_heads is not None and n_heads % 2:
            raise OptionError(f"{label}: n_heads={n_heads}: expected an even number.")
        try:
            policy = Overflow(overflow)
        except ValueError:
            known = ", ".join(map(repr, map(str, Overflow)))
            raise OptionError(f"{label}: overflow={overflow!r}: expected {known}.") from None
        super().__init__(
            {
                "name": name,
                "max_length": max_length,
                "overflow": policy,
                "fields": nodes,
                "attention": attention,
                "n_layers": n_layers,
                "n_heads": n_heads,
                "n_linear": n_linear,
                "dropout": dropout,
                "embed": embed,
                "description": description,
            }
        )

    def options(self) -> dict[str, Any]:
        defaults = self.known()
        return {
            key: value
            for key, value in vars(self).items()
            if key in defaults and (value != defaults[key] or key == "fields")
        }


def check_bool(label: str, name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise OptionError(f"{label}: {name}={value!r}: expected True or False.")


def check_text(label: str, name: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise OptionError(f"{label}: {name}={value!r}: expected a text.")


def check_count(label: str, name: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(f"{label}: {name}={value!r}: expected a whole number, {least} or more.")


def check_weight(label: str, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value > 0:  # type: ignore[operator]
        raise OptionError(f"{label}: weight={value!r}: expected a number above 0.")


def check_share(label: str, name: str, value: object, *, below: bool = False) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1 or (below and value == 1):  # type: ignore[operator]
        expected = "from 0 up to, not including, 1" if below else "from 0 to 1"
        raise OptionError(f"{label}: {name}={value!r}: expected a number {expected}.")
