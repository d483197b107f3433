"""Where every record lies: a row of three numbers each, in a map of a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock._words import counted
from penstock.errors import CorruptIndexError
from penstock.index._fingerprint import digest
from penstock.index._names import rebuilding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index._listing import IndexPlace
    from penstock.index._meta import Meta
    from penstock.index._sample_schema import SampleSchema
    from penstock.storage import Held

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SampleLocation:
    file_path: str
    byte_offset: int
    num_bytes: int


class Documents(NamedTuple):
    """Where documents end in samples of tokens of one size, in maps of files.

    The documents of sample i, or pieces of them, end at `ends[offsets[i]:offsets[i + 1]]`; the last
    end is the number of its tokens, and the rest of the sample is padding.
    """

    ends: NDArray[np.integer]
    offsets: NDArray[np.integer]
    goes_on: NDArray[np.integer | np.bool_]
    """uint8[samples]: 1 if the last document of a sample is cut, and goes on in the next one."""

    def bounds(
        self, samples: NDArray[np.int64], size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the ends of samples of `size` tokens begin in `ends`, and where they stop.

        Raises for offsets that give a sample no end, or more ends than tokens.
        """
        lows, highs = self.offsets[samples], self.offsets[samples + 1]
        wrong = (highs <= lows) | (highs > len(self.ends)) | (highs - lows > size)
        if wrong.any():
            raise self.damaged(int(samples[wrong.argmax()]))
        return lows.astype(np.int64), highs.astype(np.int64)

    def damaged(self, sample: int) -> CorruptIndexError:
        """Return the error for a sample with impossible document borders."""
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
    sample_schema: SampleSchema | None = None
    """Of samples of several arrays: their names and types."""
    _: KW_ONLY
    meta: Meta | None = None
    """The content of `meta.json`; None for the index of another tool."""
    frames: NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 5), np.uint64))
    """Of compressed files: (file, offset, bytes, text offset, text bytes) of each frame."""
    documents: Documents | None = None
    """Of tokens in samples of one size: where documents end; None if the index has no borders."""
    trained: NDArray[np.uint8] | None = field(default=None, repr=False)
    """A bit for each token of all samples, the lowest of a byte first; None: all are trained."""
    origin: IndexPlace | None = None
    """The local folder that it was loaded from, so that another process can load it."""
    reload: Callable[[IndexPlace, str, int], SampleIndex] | None = field(default=None, repr=False)
    """Loads the index from its origin, with the fingerprint and the number of records of this one;
    so a pickle is small."""
    held: Held | None = field(default=None, repr=False)
    """Keeps the folder in the cache directory while this index is used."""
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
        """Return the error for impossible numbers in this index."""
        folder, base = (
            ("", "PATH") if self.origin is None else (self.origin.folder, self.origin.base)
        )
        tokens = None if self.meta is None else self.meta.is_of_tokens
        return CorruptIndexError(
            f"the index{folder and f' in {folder}'} is damaged: {why}. Build it again: "
            f"{rebuilding(base, tokens=tokens)}",
            path=folder or None,
        )

    def rows_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return file, offset and bytes of some records, int64[records, 3].

        Raises for files that the index does not name, and for offsets, sizes and ends of records
        that int64 does not hold.
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
                    f"and the index names {counted(len(self.file_locations), 'file')}"
                )
        return rows

    def frames_of(self, file: int) -> NDArray[np.uint64]:
        """Return the frames of one file, which follow each other without gaps in its text."""
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
                    f"frames.bin does not describe the frames of {self.file_locations[file]}"
                )
        return frames

    @property
    def fingerprint(self) -> str:
        """Changes whenever records or their numbers do."""
        if self.meta is not None:
            return self.meta.fingerprint
        ends = self.sample_locations[[0, -1]].tolist() if len(self) else []
        return digest([*self.file_locations, len(self), ends])

    def __reduce__(self) -> Any:  # noqa: ANN401 (what pickle expects)
        if self.origin is None or self.reload is None:
            rows = np.asarray(self.sample_locations)
            return SampleIndex, (self.file_locations, rows, self.sample_schema)
        return self.reload, (self.origin, self.fingerprint, len(self))


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
