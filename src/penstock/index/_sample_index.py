"""Where every record lies: one row of three numbers each, mapped and not read."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.errors import CorruptIndexError, StaleIndexError
from penstock.index._names import rebuilding

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from numpy.typing import NDArray

    from penstock.index._meta import Meta
    from penstock.storage import StorageOptions

ROW_BYTES = 24
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SampleLocation:
    """Where one sample lies."""

    file_path: str
    byte_offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an index was loaded from; enough to load it again in another process."""

    folder: str
    base: str
    options: StorageOptions


class Documents(NamedTuple):
    """Where documents end in samples of tokens that all have one size, each in a map of a file.

    Sample i has documents, or pieces of some, that end at `ends[offsets[i]:offsets[i + 1]]`; the
    last of those is the number of its tokens, and what stands behind only fills up.
    """

    ends: NDArray[np.uint32]
    offsets: NDArray[np.uint64]
    goes_on: NDArray[np.uint8]
    """uint8[samples]: 1 where the last document of a sample does not end with it, but is cut."""

    def bounds(
        self, samples: NDArray[np.int64], size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the ends of samples of `size` tokens begin in `ends`, and where they stop.

        Each sample has an end at least, and at most one a token; offsets that say otherwise raise.
        """
        lows, highs = self.offsets[samples], self.offsets[samples + 1]
        wrong = (highs <= lows) | (highs > len(self.ends)) | (highs - lows > size)
        if wrong.any():
            raise self.damaged(int(samples[wrong.argmax()]))
        return lows.astype(np.int64), highs.astype(np.int64)

    def damaged(self, sample: int) -> CorruptIndexError:
        """Return the error about a sample whose document borders cannot be."""
        return CorruptIndexError(
            "the index is damaged: document_offsets.bin and document_ends.bin do not say where the "
            f"documents of sample {sample:,} end. Copy the folder again, or tokenise again: "
            "penstock tokenize SRC DST --overwrite"
        )


@dataclass(eq=False)
class SampleIndex:
    """All sample locations; rows are (file, offset, bytes) as uint64, usually a map of a file."""

    file_locations: list[str]
    sample_locations: NDArray[np.uint64]
    meta: Meta | None = field(default=None, kw_only=True)
    """What `meta.json` says; None for an index that another tool made."""
    frames: NDArray[np.uint64] = field(
        default_factory=lambda: np.empty((0, 5), np.uint64), kw_only=True
    )
    """Of compressed files: (file, offset, bytes, text offset, text bytes) of each frame."""
    documents: Documents | None = field(default=None, kw_only=True)
    """Of tokens in samples of one size: where documents end; None where nobody noted it."""
    origin: Origin | None = field(default=None, kw_only=True)
    _frame_borders: NDArray[np.int64] | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        return int(self.sample_locations.shape[0])

    def __getitem__(self, idx: int) -> SampleLocation:
        file, offset, size = self.sample_locations[idx].tolist()
        if file >= len(self.file_locations):
            raise self.damaged(
                f"record {idx:,} lies in file {file:,} of {len(self.file_locations):,}"
            )
        return SampleLocation(self.file_locations[file], offset, size)

    def damaged(self, why: str) -> CorruptIndexError:
        """Return the error about numbers in this index that cannot be."""
        folder, base = (
            ("", "PATH") if self.origin is None else (self.origin.folder, self.origin.base)
        )
        tokens = None if self.meta is None else self.meta.kind == "tokens"
        return CorruptIndexError(
            f"the index{folder and f' in {folder}'} is damaged: {why}. Build it again: "
            f"{rebuilding(base, tokens=tokens)}",
            path=folder or None,
        )

    def rows_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return file, offset and bytes of some records, int64[records, 3].

        Files are ones that the index names, and no number is below 0 or above what int64 holds,
        the end of a record included.
        """
        rows = self.sample_locations[ids].view(np.int64)
        if len(rows):
            ends = rows[:, 1] + rows[:, 2]
            if rows.min() < 0 or ends.min() < 0 or rows[:, 0].max() >= len(self.file_locations):
                wrong = (rows < 0).any(1) | (ends < 0) | (rows[:, 0] >= len(self.file_locations))
                at = int(wrong.argmax())
                file, offset, size = self.sample_locations[ids[at]].tolist()
                raise self.damaged(
                    f"record {ids[at]:,} has {size:,} bytes at byte {offset:,} of file {file:,}, "
                    f"and the index names {len(self.file_locations):,} files"
                )
        return rows

    def frames_of(self, file: int) -> NDArray[np.uint64]:
        """Return the frames of one file; they stand together, and their texts do, too."""
        if self._frame_borders is None:
            files = np.arange(len(self.file_locations) + 1)
            self._frame_borders = np.searchsorted(np.ascontiguousarray(self.frames[:, 0]), files)
        low, high = self._frame_borders[[file, file + 1]].tolist()
        frames = self.frames[low:high]
        if len(frames):
            size = _LARGEST if self.meta is None else self.meta.files[file].size
            offsets, sizes, starts, texts = frames[:, 1:].T
            ends = starts + texts
            is_whole = starts[0] == 0 and (ends[:-1] == starts[1:]).all() and (starts <= ends).all()
            if not is_whole or (offsets > size).any() or (sizes > size - offsets).any():
                raise self.damaged(
                    f"frames.bin does not tell of the frames of {self.file_locations[file]}"
                )
        return frames

    @property
    def fingerprint(self) -> str:
        """Changes whenever records or their numbers do."""
        if self.meta is not None:
            return self.meta.fingerprint
        from penstock.index._fingerprint import digest  # noqa: PLC0415 (rarely needed)

        ends = self.sample_locations[[0, -1]].tolist() if len(self) else []
        return digest([*self.file_locations, len(self), ends])

    def __reduce__(self) -> Any:  # noqa: ANN401 (what pickle expects)
        if self.origin is None:
            return _plain, (self.file_locations, np.asarray(self.sample_locations))
        return _again, (self.origin, self.fingerprint, len(self))


def map_rows(file: BinaryIO, path: str, again: str, width: int = 3) -> NDArray[np.uint64]:
    """Return a file of uint64 rows as an array that the page cache holds, not this process.

    `again` is the command that makes it anew, for a file that is damaged.
    """
    size = os.fstat(file.fileno()).st_size
    if size % (8 * width):
        raise CorruptIndexError(
            f"{path} is cut off or damaged: {size:,} bytes are no whole number of rows of "
            f"{8 * width}. Build the index again: {again}",
            path=path,
        )
    if not size:
        return np.empty((0, width), np.uint64)
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, "<u8").reshape(-1, width)


def map_documents(
    files: tuple[BinaryIO, BinaryIO, BinaryIO], samples: int, path: str, again: str
) -> Documents:
    """Return where the documents of so many samples end; `path` is that of the offsets."""
    ends, offsets, goes_on = files
    rows = map_rows(offsets, path, again, 1)
    mapped = Documents(_map_numbers(ends, "<u4"), rows[:, 0], _map_numbers(goes_on, "u1"))
    is_whole = len(mapped.offsets) == samples + 1 and len(mapped.goes_on) == samples
    if not is_whole or int(mapped.offsets[-1]) != len(mapped.ends):
        raise CorruptIndexError(
            f"{path}, or one of document_*.bin beside it, is cut off or damaged: they do not tell "
            f"of the documents of {samples:,} samples. Tokenise again: {again}",
            path=path,
        )
    return mapped


def _map_numbers(file: BinaryIO, dtype: str) -> NDArray[Any]:
    size = os.fstat(file.fileno()).st_size // np.dtype(dtype).itemsize
    if not size:
        return np.empty(0, dtype)
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype, size)


def _plain(files: list[str], rows: NDArray[np.uint64]) -> SampleIndex:
    return SampleIndex(files, rows)


def _again(origin: Origin, fingerprint: str, length: int) -> SampleIndex:
    from penstock.index._load import load_index  # noqa: PLC0415 (it makes what this loads)

    index = load_index(origin)
    meta = index.meta
    if meta is not None and len(index) > length and meta.fingerprint_at(length) == fingerprint:
        # Only appended to since: the same records have the same numbers.
        index.sample_locations, index.meta = index.sample_locations[:length], meta.first(length)
    if index.fingerprint != fingerprint:
        raise StaleIndexError(
            f"the index in {origin.folder} was built anew since this dataset was opened; open it "
            "again in every process."
        )
    return index


def rows_before(
    column: Callable[[NDArray[np.int64]], NDArray[np.uint64]],
    keys: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return for each key the first row in [low, high) whose value is not below the key.

    Values rise with the rows. Only the rows that a bisection meets are read, all keys at once,
    so a map of a huge file is hardly touched.
    """
    low, high = low.copy(), high.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        below = np.zeros(len(keys), bool)
        below[open_] = column(middle[open_]).astype(np.int64) < keys[open_]
        low = np.where(open_ & below, middle + 1, low)
        high = np.where(open_ & ~below, middle, high)
    return low
