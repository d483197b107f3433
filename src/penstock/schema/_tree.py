"""The tree of a schema: addresses, shapes, queries. A tree is a value: edits make another one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.errors import OptionError
from penstock.schema._nodes import Array, Leaf, Overflow
from penstock.schema._query import Query, inferred

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.schema._nodes import Node


class Address(str):
    """The names from the root array to a node, joined by `/`.

    >>> address = Address("record/items/price")
    >>> address.name, address.parent, address.parts
    ('price', 'record/items', ('record', 'items', 'price'))
    """

    __slots__ = ()

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.split("/"))

    @property
    def name(self) -> str:
        return self.rpartition("/")[2]

    @property
    def parent(self) -> Address | None:
        """The address of the array above; None at the root."""
        above = self.rpartition("/")[0]
        return Address(above) if above else None

    def __truediv__(self, name: str) -> Address:
        return Address(f"{self}/{name}")


@dataclass(frozen=True)
class Tree:
    """A root array with the nodes below it: what a model's `hyperparameters` offer."""

    root: Array

    def __post_init__(self) -> None:
        for address in self.requests:
            _ = self.queries[address]
            self.requests[address].check_shape(address, self.shapes[address])

    @classmethod
    def of(cls, nodes: Sequence[Node], name: str = "record") -> Tree:
        root = Array(fields=nodes, name=name, max_length=1, overflow=Overflow.error)
        return cls(_addressed(root, Address(name)))

    @cached_property
    def nodes(self) -> Mapping[Address, Node]:
        """All nodes by address, each before those below it."""
        return dict(_walk(self.root, Address(self.root.name)))

    @cached_property
    def arrays(self) -> Mapping[Address, Array]:
        return {at: node for at, node in self.nodes.items() if isinstance(node, Array)}

    @cached_property
    def requests(self) -> Mapping[Address, Leaf]:
        """All leaves."""
        return {at: node for at, node in self.nodes.items() if isinstance(node, Leaf)}

    @cached_property
    def active_requests(self) -> Mapping[Address, Leaf]:
        """The leaves that a batch has."""
        return {at: leaf for at, leaf in self.requests.items() if leaf.active}

    @cached_property
    def target(self) -> Sequence[Address]:
        """The active leaves that are always hidden."""
        return [at for at, leaf in self.active_requests.items() if leaf.target]

    @cached_property
    def shapes(self) -> Mapping[Address, tuple[int, ...]]:
        """The slots of each leaf: (1, L1, …), one axis for the root and one for each array."""
        return {at: tuple(one.max_length for one in self.above(at)) for at in self.requests}

    def overflows(self, address: Address) -> tuple[Overflow, ...]:
        """Return the policies of a leaf's axes: batch, root, then its arrays."""
        policies = (one.overflow for one in self.above(address)[1:])
        return (Overflow.error, Overflow.error, *policies)

    @cached_property
    def queries(self) -> Mapping[Address, Query]:
        """The query of each leaf, its own or the inferred one."""
        found = {}
        for address, leaf in self.requests.items():
            names = [one.name for one in self.above(address)[1:]]
            text = inferred(names, leaf.name) if leaf.query is None else leaf.query
            found[address] = Query(text, f"{type(leaf).__name__} {address!r}")
        return found

    def above(self, address: Address) -> list[Array]:
        """Return the arrays above a node, from the root on."""
        parts = address.parts[:-1]
        return [self.arrays[Address(path)] for path in accumulate(parts, "{}/{}".format)]

    # Edits, which return another tree.

    def mapped(self, chosen: Mapping[Address, Callable[[Node], Node | None]]) -> Tree:
        """Return a tree in which functions replaced nodes; None removes one."""

        def rebuilt(node: Node, at: Address) -> Node | None:
            if isinstance(node, Array):
                below = [rebuilt(one, at / one.name) for one in node.fields]
                node = node.replaced(fields=[one for one in below if one is not None])
            return chosen[at](node) if at in chosen else node

        root = rebuilt(self.root, Address(self.root.name))
        if not isinstance(root, Array) or (root.max_length, root.overflow) != (1, Overflow.error):
            raise OptionError("the root of a schema has one slot, and stays.")
        return Tree(_addressed(root, Address(root.name)))


def _addressed(array: Array, at: Address) -> Array:
    """Return an array in which every node knows its address."""
    below = tuple(
        _addressed(one, at / one.name) if isinstance(one, Array) else one.at(at / one.name)
        for one in array.fields
    )
    return array.at(at, fields=below)


def _walk(node: Node, at: Address) -> Iterator[tuple[Address, Node]]:
    yield at, node
    if isinstance(node, Array):
        for child in node.fields:
            yield from _walk(child, at / child.name)
