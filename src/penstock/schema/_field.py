"""The field of a leaf in a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from penstock.batch import Movable, tensor
from penstock.schema._nodes import MASKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from numpy.typing import NDArray

    from penstock.schema._nodes import Leaf


class LeafField(Movable):
    """The values of one leaf in a batch."""

    __slots__ = ("content", "state", "targets", "trainable")

    state: torch.Tensor
    """`ValueState` of each slot, int64[B, 1, …]."""
    content: torch.Tensor | dict[str, torch.Tensor]
    """The values, with the slots of `state` as first axes; parts of it by name."""
    trainable: torch.Tensor
    """Which slots were hidden and are to be predicted, bool[B, 1, …]."""
    targets: dict[str, Any]
    """`state` and `content` as they were before slots were hidden; empty where none may be."""

    def __init__(self, state: Any, content: Any, trainable: Any, targets: Any) -> None:
        self.state, self.content, self.trainable = state, content, trainable
        self.targets = targets

    def __len__(self) -> int:
        return len(self.state)

    def __iter__(self) -> Iterator[Any]:
        """Yield its parts: Lightning looks for the size of a batch in them."""
        return iter(self._parts())

    def __repr__(self) -> str:
        content = self.content.items() if isinstance(self.content, dict) else [("", self.content)]
        shapes = ", ".join(f"{name} {tuple(part.shape)}".strip() for name, part in content)
        return f"LeafField of {shapes}{', with targets' * bool(self.targets)}"

    def tensors(self) -> dict[str, Any]:
        """Return its parts by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def _parts(self) -> tuple[Any, ...]:
        return tuple(_flat([self.state, self.content, self.trainable, self.targets]))

    def _of(self, *parts: Any) -> Self:
        left = iter(parts)
        whole = (self.state, self.content, self.trainable, self.targets)
        return type(self)(*(_filled(one, left) for one in whole))


def _flat(values: Any) -> Iterator[Any]:
    for one in values.values() if isinstance(values, dict) else values:
        if isinstance(one, dict):
            yield from _flat(one)
        else:
            yield one


def _filled(like: Any, parts: Iterator[Any]) -> Any:
    if isinstance(like, dict):
        return {name: _filled(one, parts) for name, one in like.items()}
    return next(parts)


def leaf_field(
    state: NDArray[np.int64],
    content: dict[str, NDArray[Any]],
    trainable: NDArray[np.bool_],
    before: tuple[NDArray[np.int64], dict[str, NDArray[Any]]] | None,
) -> LeafField:
    """Return a field of arrays; `before` are state and content before slots were hidden."""
    targets = {}
    if before is not None:
        targets = {"state": tensor(before[0]), "content": _content(before[1])}
    return LeafField(tensor(state), _content(content), tensor(trainable), targets)


def _content(parts: dict[str, NDArray[Any]]) -> Any:
    if list(parts) == [""]:
        return tensor(parts[""])
    return {name: tensor(part) for name, part in parts.items()}


def hidden_field(
    leaf: Leaf,
    shape: tuple[int, ...],
    before: Any = None,
    blank: NDArray[np.bool_] | None = None,
) -> LeafField:
    """Return a field of which all slots are hidden.

    Those that have values `before`, and are not `blank`, are to be predicted.
    """
    state, trainable = np.full(shape, MASKED, np.int64), np.full(shape, before is not None)
    if blank is not None:
        trainable[blank] = False
    return leaf_field(state, leaf.empty(shape), trainable, before)
