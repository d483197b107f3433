"""Batches on their way to a device, one ahead of use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from penstock._lazy import require

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


def pinned(batch: Any) -> Any:  # noqa: ANN401 (what a recipe hands over)
    """Return the batch in memory that a GPU can copy from by itself; as it is without a GPU."""
    torch = require("torch", extra="torch", purpose="pin_memory=True")
    if not torch.cuda.is_available():
        return batch
    return batch.pin_memory() if hasattr(batch, "pin_memory") else batch


def moved_ahead(batches: Iterator[tuple[T, Any]], device: object) -> Iterator[tuple[T, Any]]:
    """Yield what comes with batches, the batches moved to a device while the one before is used.

    A GPU copies on a stream of its own; the stream that uses a batch waits for its copy, and the
    memory is not used again before that stream is done with it.
    """
    torch = require("torch", extra="torch", purpose=f"prefetch_to={device!r}")
    target = torch.device(device)
    if target.type != "cuda":
        for tag, batch in batches:
            yield tag, batch.to(target) if hasattr(batch, "to") else batch
        return
    side = torch.cuda.Stream(target)
    ahead: tuple[T, Any, Any] | None = None
    for tag, batch in batches:
        with torch.cuda.stream(side):
            moved = pinned(batch).to(target, non_blocking=True)
            copied = side.record_event()
        if ahead is not None:
            yield _ready(ahead, torch)
        ahead = (tag, moved, copied)
    if ahead is not None:
        yield _ready(ahead, torch)


def _ready(ahead: tuple[T, Any, Any], torch: Any) -> tuple[T, Any]:  # noqa: ANN401 (torch's own)
    tag, batch, copied = ahead
    present = torch.cuda.current_stream()
    present.wait_event(copied)
    batch.record_stream(present)
    return tag, batch
