"""Moving the tensors of a batch: to a device, into pinned memory, along a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import OptionError

if TYPE_CHECKING:
    from typing import Self

    import torch

    Device: TypeAlias = str | int | torch.device | None


class Movable(ABC):
    """An object made of tensors, which are moved together into a new object."""

    __slots__ = ()

    @abstractmethod
    def _parts(self) -> tuple[Any, ...]:
        """Return its parts; those that are no tensors stay as they are."""

    @abstractmethod
    def _of(self, *parts: Any) -> Self:
        """Return a copy with other parts."""

    def to(self, device: Device, *, non_blocking: bool = False) -> Self:
        """Return it with all tensors on a device; arguments are those of `torch.Tensor.to`."""
        if type(device).__name__ == "dtype":
            raise OptionError(
                f"to({device}): a batch moves to a device and keeps its types. Choose them in the "
                f"field types, or convert single tensors"
            )
        return self._of(*(moved(part, device, non_blocking) for part in self._parts()))

    def pin_memory(self) -> Self:
        """Return it with all tensors in page-locked memory, from where a GPU copies faster."""
        return self._of(*map(pinned, self._parts()))

    def record_stream(self, stream: Any) -> None:
        """Keep the memory of all tensors until the work now queued on a CUDA stream is done."""
        for part in self._parts():
            if hasattr(part, "record_stream"):
                part.record_stream(stream)


def moved(part: Any, device: Device, non_blocking: bool) -> Any:  # noqa: FBT001 (as torch calls it)
    """Return a part on a device."""
    return part.to(device, non_blocking=non_blocking) if hasattr(part, "to") else part


def pinned(part: Any) -> Any:
    """Return a part in page-locked memory."""
    return part.pin_memory() if hasattr(part, "pin_memory") else part
