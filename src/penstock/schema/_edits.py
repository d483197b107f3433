"""Edits of a schema: each makes another tree and puts it in the place of the old one, or raises."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError
from penstock.schema._learnt import Learnt
from penstock.schema._nodes import Array, Leaf, Node
from penstock.schema._selectors import as_predicate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.schema._plan import ReadPlan
    from penstock.schema._selectors import Selector
    from penstock.schema._tree import Address, Tree


class SchemaEdits:
    """What can be done to the tree of a schema; loaders that are made keep the tree they have."""

    hyperparameters: Tree
    _learnt: Learnt
    _plan: ReadPlan | None

    def _hold(self, tree: Tree, learnt: Learnt | None = None) -> None:
        """Hold another tree, and what its leaves have learnt; copies of this schema keep theirs."""
        self.hyperparameters, self._plan = tree, None
        self._learnt = learnt or Learnt(tree.requests, self._learnt)

    def select(self, *selectors: Selector, include_root: bool = True) -> list[Node]:
        """Return the nodes that meet all conditions; without any, all nodes."""
        return [*self._selected(selectors, include_root=include_root).values()]

    def _selected(
        self, selectors: tuple[Selector, ...], *, include_root: bool = True
    ) -> dict[Address, Node]:
        conditions = [as_predicate(one) for one in selectors]
        tree = self.hyperparameters
        return {
            at: node
            for at, node in tree.nodes.items()
            if (include_root or node is not tree.root) and all(one(node) for one in conditions)
        }

    def update(
        self,
        *selectors: Selector,
        strict: bool = True,
        allow_extra: bool = False,
        validate: bool = True,
        **values: Any,
    ) -> list[Node]:
        """Set options of the nodes that meet all conditions; return the new nodes.

        Args:
            strict: Raise where a node does not have an option; else such nodes stay as they are.
            allow_extra: Keep options that a leaf does not have as its metadata.
            validate: Kept for code that gives it: options are always checked.
        """
        if not values:
            raise OptionError("update: give the options to set, as in update(p_mask=0.1).")
        chosen = {}
        for address, node in self._selected(selectors).items():
            own = _own_values(node, address, values, strict=strict, allow_extra=allow_extra)
            if own:
                chosen[address] = own
        changes = {at: lambda node, own=own: node.replaced(**own) for at, own in chosen.items()}
        self._hold(self.hyperparameters.mapped(changes))
        return [self.hyperparameters.nodes[at] for at in chosen]

    def extend(self, *parts: Selector | Node) -> Array:
        """Add nodes to the one array that meets all conditions; conditions come first.

        Without conditions nodes are added to the root.
        """
        nodes = tuple(one for one in parts if isinstance(one, Node))
        selectors = parts[: len(parts) - len(nodes)]
        if any(isinstance(one, Node) for one in selectors):
            raise TypeError("extend: conditions come before the nodes to add.")
        if not nodes:
            raise OptionError("extend: give the nodes to add.")
        tree = self.hyperparameters
        found = [at for at, one in self._selected(selectors).items() if isinstance(one, Array)]  # type: ignore[arg-type]
        found = found if selectors else [next(iter(tree.arrays))]
        if len(found) != 1:
            raise OptionError(f"extend: {len(found)} arrays meet the conditions: expected one.")
        change = {found[0]: lambda node: node.replaced(fields=(*node.fields, *nodes))}
        self._hold(tree.mapped(change))
        return self.hyperparameters.arrays[found[0]]

    def delete(self, *selectors: Selector) -> list[Node]:
        """Remove the nodes that meet all conditions, with what lies below; return them."""
        if not selectors:
            raise OptionError("delete: give a condition: not all nodes can go.")
        gone = self._selected(selectors, include_root=False)
        tree = self.hyperparameters.mapped(dict.fromkeys(gone, lambda _: None))
        childless = [at for at, array in tree.arrays.items() if not array.fields]
        if childless:
            raise OptionError(f"delete: nothing would be left below {childless[0]}.")
        self._hold(tree)
        return [*gone.values()]

    def reset(self, *selectors: Selector) -> list[Node]:
        """Forget what the leaves that meet all conditions have learnt; return them."""
        found = self._selected(selectors)
        if not found:
            raise OptionError("reset: no node meets the conditions.")
        for address in found:
            self._learnt.forget(address)
        return [*found.values()]

    @contextmanager
    def override(self, *selectors: Selector, **values: Any) -> Iterator[list[Node]]:
        """Set options for the length of a `with` block."""
        before = (self.hyperparameters, self._learnt)
        try:
            yield self.update(*selectors, **values)
        finally:
            self._hold(*before)


def _own_values(
    node: Node, address: Address, values: dict[str, Any], *, strict: bool, allow_extra: bool
) -> dict[str, Any]:
    """Return the options that a node has, or takes as metadata."""
    known = node.known()
    own = {name: value for name, value in values.items() if name in known}
    others = {name: value for name, value in values.items() if name not in known}
    if allow_extra and isinstance(node, Leaf):
        own |= others
    elif others and strict:
        raise AttributeError(
            f"{address}: {type(node).__name__} has no option {next(iter(others))!r}; give "
            "strict=False to set it where there is one."
        )
    if own.get("target") is not None:
        own["p_prune"] = 1.0 if own.pop("target") else 0.0
    return own
