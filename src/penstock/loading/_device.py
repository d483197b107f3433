"""Batches on their way to a device, one ahead of use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from penstock._lazy import require
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


def pinned(batch: Any) -> Any:  # noqa: ANN401 (what a recipe hands over)
    """Return the batch in memory that a GPU can copy from by itself; as it is without a GPU."""
    torch = require("torch", extra="torch", purpose="pin_memory=True")
    if not torch.cuda.is_available():
        return batch
    return _like(batch.pin_memory(), batch) if hasattr(batch, "pin_memory") else batch


def moved_to(
    batches: Iterator[tuple[T, Any]], device: object, *, is_ahead: bool = True
) -> Iterator[tuple[T, Any]]:
    """Yield what comes with batches, and the batches on a device.

    With `is_ahead` each is moved while the one before is used.

    A GPU copies on a stream of its own; the stream that uses a batch waits for its copy, and the
    memory is not used again before that stream is done with it.
    """
    torch = require("torch", extra="torch", purpose=f"prefetch_to={device!r}")
    target = torch.device(device)
    if target.type != "cuda" or not is_ahead:
        for tag, batch in batches:
            yield tag, _moved(batch, target)
        return
    if not torch.cuda.is_available():
        raise OptionError(f"prefetch_to={device!r}: torch finds no GPU here.")
    side = torch.cuda.Stream(target)
    ahead: tuple[T, Any, Any] | None = None
    for tag, batch in batches:
        with torch.cuda.stream(side):
            moved = _moved(pinned(batch), target, non_blocking=True)
            copied = side.record_event()
        if ahead is not None:
            yield _ready(ahead, torch.cuda.current_stream(target))
        ahead = (tag, moved, copied)
    if ahead is not None:
        yield _ready(ahead, torch.cuda.current_stream(target))


def _moved(batch: Any, target: object, **how: bool) -> Any:  # noqa: ANN401 (what a recipe makes)
    if not hasattr(batch, "to"):
        raise OptionError(
            f"prefetch_to={target}: a {type(batch).__name__} cannot be moved to a device. Give "
            "field types, or an encode that returns a dict of tensors."
        )
    return _like(batch.to(target, **how), batch)


def _like(copy: Any, batch: Any) -> Any:  # noqa: ANN401 (what a recipe makes)
    """Return the copy of a batch, with what a tensor of tokens has beside it."""
    if copy is not batch and "ids" in getattr(batch, "__dict__", ()):
        copy.ids, copy.valid = batch.ids, batch.valid
    return copy


def _ready(ahead: tuple[T, Any, Any], present: Any) -> tuple[T, Any]:  # noqa: ANN401 (a stream)
    tag, batch, copied = ahead
    present.wait_event(copied)
    batch.record_stream(present)
    return tag, batch
