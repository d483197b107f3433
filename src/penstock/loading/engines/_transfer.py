"""Messages between a worker process and the user's: a small head, and one body of all arrays.

Arrays and tensors travel as bytes beside the pickle and arrive in writable memory of their own.
Nothing gets a name in shared memory that a crash could leave behind.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
import sys
import tempfile
from contextlib import suppress
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.storage import no_room

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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
    body = np.empty(sum(size + -size % _ALIGNED for size in sizes), np.uint8).data
    if count:
        connection.recv_bytes_into(body)
    # Only our own workers are at the other end.
    head = memoryview(message)[_COUNT.size * (1 + count) :]
    return pickle.loads(head, buffers=_cut(body, sizes))  # noqa: S301


def _cut(body: memoryview, sizes: Iterable[int]) -> Iterator[memoryview]:
    start = 0
    for size in sizes:
        yield body[start : start + size]
        start += size + -size % _ALIGNED


class SharedPickle(bytes):
    """A pickle whose arrays and tables lie in a file without a name, which all workers map.

    Memory has them once, however many workers there are.
    """

    _file: IO[bytes]
    _sizes: list[int]

    @classmethod
    def of(cls, value: object) -> bytes:
        """Return the pickle of a value: a plain one where there is nothing to share."""
        buffers: list[memoryview] = []
        data = pickle.dumps(value, 5, buffer_callback=lambda one: buffers.append(one.raw()))
        if not buffers:
            return data
        found = cls(data)
        found._sizes = [buffer.nbytes for buffer in buffers]
        try:
            found._file = _written(buffers)
        except OSError as why:
            raise no_room(
                sum(found._sizes),
                Path(tempfile.tempdir or "a temporary folder"),
                "what worker processes share",
                "TMPDIR. multiprocessing_context='fork' needs none",
                why=why.strerror or str(why),
                number=why.errno,
            ) from why
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        # The file itself goes along: only to a process that is being started.
        return MappedPickle, (bytes(self), DupFd(self._file.fileno()), self._sizes)

    def close(self) -> None:
        """Leave the file to the workers that have started."""
        self._file.close()


def _written(buffers: Iterable[memoryview]) -> IO[bytes]:
    """Return a new file without a name that holds these buffers."""
    file = tempfile.TemporaryFile(prefix="penstock-")  # noqa: SIM115 (see `SharedPickle.close`)
    try:
        for buffer in buffers:
            file.write(buffer)
            file.write(bytes(-buffer.nbytes % _ALIGNED))
        file.write(bytes(1))  # Nothing at all could not be mapped.
        file.flush()
    except BaseException:
        with suppress(OSError):  # It tries to write the rest.
            file.close()
        raise
    return file


class MappedPickle(NamedTuple):
    """A `SharedPickle` as it arrives."""

    data: bytes
    file: Any
    sizes: list[int]

    def loads(self) -> Any:  # noqa: ANN401 (whatever was pickled)
        """Return the value; what is written into its arrays stays in this process."""
        number = self.file.detach()
        body = memoryview(mmap.mmap(number, 0, access=mmap.ACCESS_COPY))
        os.close(number)  # The mapping has its own.
        return pickle.loads(self.data, buffers=_cut(body, self.sizes))  # noqa: S301 (the parent's)
