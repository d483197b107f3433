"""Messages between a worker process and the user's: a small head, and one body of all arrays.

Arrays and tensors travel as bytes beside the pickle and arrive in writable memory of their own.
Nothing gets a name in shared memory that a crash could leave behind.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import torch

_COUNT = struct.Struct("<Q")
_ALIGNED = 64
"""Arrays begin at multiples of this, as vector instructions need it."""


class _TensorPickler(pickle.Pickler):
    """Pickles with tensors as arrays; torch's own way would name files in shared memory."""

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 (pickle's own signature)
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor or not _is_plain(value):
            return NotImplemented
        flat = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(flat), str(value.dtype), tuple(value.shape))


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and str(tensor.layout) == "torch.strided"
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_complex()
    )


def _tensor(data: Any, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:  # noqa: ANN401 (a buffer)
    import torch  # noqa: PLC0415 (only where tensors come from)

    kind = getattr(torch, dtype.removeprefix("torch."))
    if not memoryview(data).nbytes:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(data, dtype=torch.uint8).view(kind).reshape(shape)


def send(connection: Connection, value: object) -> None:
    buffers: list[memoryview] = []
    head = io.BytesIO()
    _TensorPickler(head, 5, buffer_callback=lambda buffer: buffers.append(buffer.raw())).dump(value)
    sizes = [buffer.nbytes for buffer in buffers]
    connection.send_bytes(
        _COUNT.pack(len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes) + head.getvalue()
    )
    if sizes:
        parts: list[bytes | memoryview] = []
        for buffer in buffers:
            parts += [buffer, bytes(-buffer.nbytes % _ALIGNED)]
        connection.send_bytes(b"".join(parts))


def receive(connection: Connection) -> Any:  # noqa: ANN401 (whatever was sent)
    """Return what the other side sent; its arrays are views of one body."""
    message = connection.recv_bytes()
    (count,) = _COUNT.unpack_from(message)
    sizes = struct.unpack_from(f"<{count}Q", message, _COUNT.size)
    views: list[memoryview] = []
    if count:
        body = np.empty(sum(size + -size % _ALIGNED for size in sizes), np.uint8)
        connection.recv_bytes_into(body)
        start = 0
        for size in sizes:
            views.append(body[start : start + size].data)
            start += size + -size % _ALIGNED
    # Only our own workers are at the other end.
    return pickle.loads(memoryview(message)[_COUNT.size * (1 + count) :], buffers=views)  # noqa: S301
