"""Lines into one draft: buffered, compressed, and published at the end or never."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.errors import OptionError
from penstock.jsonl._gzip import GzipEncoder
from penstock.jsonl._zstd import ZstdEncoder
from penstock.order import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.jsonl._names import Compression
    from penstock.storage import Store

_LEVELS: dict[Compression, tuple[int, int]] = {"zstd": (-131072, 22), "gzip": (0, 9)}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How lines become bytes."""

    flush_bytes: int = 1 << 20
    """Text gathered in memory, at most, before it is compressed and written."""
    compression_level: int = 3
    """Of zstd or gzip, where the name asks for one."""
    frame_bytes: int = 256 << 10
    """Text in one independently readable zstd frame."""
    allow_nan: bool = False
    """Write NaN and infinities as Python does instead of `null`."""

    def __post_init__(self) -> None:
        whole_number("flush_bytes", self.flush_bytes, 1)
        whole_number("frame_bytes", self.frame_bytes, 1)
        if not hasattr(self.compression_level, "__index__"):
            message = f"compression_level={self.compression_level!r}: expected a whole number."
            raise OptionError(message)


class _TextEncoder(Protocol):
    """Text in, the file's bytes out."""

    def add(self, text: bytes | bytearray) -> Iterator[bytes | bytearray]: ...
    def flush(self) -> Iterator[bytes]: ...
    def finish(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class DraftWriter:
    """One file on its way; used by one thread at a time."""

    def __init__(
        self,
        store: Store,
        directory: str,
        label: str,
        compression: Compression | None,
        options: WriteOptions,
    ) -> None:
        self._draft = store.draft(directory, label)
        self._encoder = _text_encoder(compression, options)
        self.text_bytes = 0
        self.records = 0

    def add(self, text: bytes | bytearray, records: int) -> None:
        """Take whole lines."""
        self._write(self._encoder.add(text))
        self.text_bytes += len(text)
        self.records += records

    def flush(self) -> None:
        """Hand everything taken so far to the operating system."""
        self._write(self._encoder.flush())

    def finish(self) -> None:
        """Write what is left; after this the draft is ready to be published."""
        self._write(self._encoder.finish())
        self._encoder.close()

    def publish(self, name: str, *, exclusive: bool) -> None:
        """Make the finished file visible; a taken name leaves the draft as it is."""
        self._draft.publish(name, exclusive=exclusive)

    def discard(self) -> None:
        """Leave nothing behind."""
        self._encoder.close()
        self._draft.discard()

    def _write(self, pieces: Iterable[bytes | bytearray]) -> None:
        for piece in pieces:
            if piece:
                self._draft.write(piece)


class _PlainEncoder:
    """Text as it is."""

    def add(self, text: bytes | bytearray) -> Iterator[bytes | bytearray]:
        yield text

    def flush(self) -> Iterator[bytes]:
        yield from ()

    def finish(self) -> Iterator[bytes]:
        yield from ()

    def close(self) -> None:
        """Nothing is held."""


def _text_encoder(compression: Compression | None, options: WriteOptions) -> _TextEncoder:
    check_level(compression, options.compression_level)
    if compression == "zstd":
        return ZstdEncoder(options.compression_level, options.frame_bytes)
    if compression == "gzip":
        return GzipEncoder(options.compression_level)
    return _PlainEncoder()


def check_level(compression: Compression | None, level: int) -> None:
    """Say which levels a compression has."""
    lowest, highest = _LEVELS[compression] if compression else (level, level)
    if not lowest <= level <= highest:
        message = f"compression_level={level}: {compression} takes {lowest} to {highest}."
        raise OptionError(message)
