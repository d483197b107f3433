"""The two files of a Megatron-LM dataset: whether a path names them, and where sequences lie.

The `.idx` has a head of 34 bytes (magic, version, code of the dtype, number of sequences, number of
document borders), then int32 lengths in tokens, int64 places in bytes of the `.bin`, int64 document
borders (numbers of sequences, from 0 up to the number of all), and maybe an int8 mode of each
sequence.
"""

from __future__ import annotations

import mmap
import os
import struct
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets._recently_used import Owner
from penstock.errors import (
    CorruptFileError,
    ObjectNotFoundError,
    OptionError,
    PenstockError,
    StorageError,
    TruncatedFileError,
)
from penstock.index import Found, Listing, digest, file_fingerprint, format_by_name
from penstock.storage import (
    Block,
    LocalStore,
    block_cache,
    block_key,
    is_pattern,
    is_remote,
    locate,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.storage import StorageOptions

BIN, IDX = ".bin", ".idx"
_MAGIC = b"MMIDIDX\x00\x00"
_OLD_MAGIC = b"TNTIDX"
_VERSION = 1
_HEAD = struct.Struct("<9sQBQQ")
_DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
_FLOATS = {6: "float64", 7: "float32"}
_SCANNED = 1 << 20


def names_pair(path: str | os.PathLike[str], options: StorageOptions | None = None) -> bool:
    """Whether a path names a dataset, also one of which a file is missing or damaged.

    A `.bin` that is named may be anything, so that there must be an `.idx` with it; a prefix,
    which is no file itself, can be nothing else.
    """
    prefix, is_named = prefix_of(path)
    if is_remote(prefix) and not is_named:
        return False
    if _begins_like_idx(prefix, options):
        return True
    is_pair = not is_named or _is_there(f"{prefix}{IDX}", options)
    return is_pair and _is_there(f"{prefix}{BIN}", options)


def _is_there(path: str, options: StorageOptions | None) -> bool:
    store, name = locate(path, options)
    try:
        return bool(store.entry(name))
    except StorageError:
        return False


def _begins_like_idx(prefix: str, options: StorageOptions | None) -> bool:
    store, name = locate(f"{prefix}{IDX}", options)
    try:
        with closing(store.open(name)) as file:
            return bool(file.size) and file.read_at(0, min(len(_MAGIC), file.size)) == _MAGIC
    except StorageError:
        return False


class MegatronPair:
    """A `.bin` and an `.idx` of one name, named by one of them, by their prefix or by a folder."""

    @staticmethod
    def found(
        path: str, listing: Listing | None, options: StorageOptions, index: str | None
    ) -> str | None:
        """Return one of the two files, or their prefix; raise where the `.bin` is missing."""
        del index
        if is_pattern(path) or (listing is not None and listing.is_pattern):
            return None
        if listing is None or listing.folder is None:
            if not names_pair(path, options):
                return None
            prefix = prefix_of(path)[0]
            _found(f"{prefix}{BIN}", prefix, options)
            return path
        names = {found.path for found in listing.files}
        ends = [name.removesuffix(IDX) for name in sorted(names) if name.endswith(IDX)]
        pairs = [prefix for prefix in ends if f"{prefix}{BIN}" in names] or ends[:1]
        if not pairs or any(map(format_by_name, names)):
            return None
        if not names_pair(f"{pairs[0]}{IDX}", options):
            return None
        if len(pairs) > 1:
            raise OptionError(
                f"{listing.folder} holds {len(pairs):,} pairs of Megatron files. Name one of them, "
                f"as penstock.open({pairs[0] + BIN!r}), or put several together by open(…) + "
                "open(…)."
            )
        return f"{pairs[0]}{BIN}"

    @staticmethod
    def problem(listing: Listing, options: StorageOptions) -> PenstockError | None:
        """Return what to do about a `.bin` without its `.idx`, which may be anything else."""
        names = [found.path for found in listing.files]
        first = next((name for name in names if name.endswith(BIN)), None)
        if first is None or any(map(format_by_name, names)):
            return None
        other = f"{first.removesuffix(BIN)}{IDX}"
        if _is_there(other, options):
            return None
        return OptionError(
            f"cannot tell what {first} holds. If it is of Megatron-LM its {IDX} is missing: there "
            f"is no {other}. Copy both."
        )


class MegatronFiles:
    """The two files, as they are now."""

    def __init__(self, prefix: str, options: StorageOptions) -> None:
        self.owner = Owner()
        self.bin, idx = (_found(f"{prefix}{end}", prefix, options) for end in (BIN, IDX))
        self.index = map_index(idx, options)
        size = self.bin.entry.size
        if self.index.is_cut_at(size):
            raise TruncatedFileError(
                f"{self.bin.path} is cut off: it has {size:,} bytes, and the sequences of "
                f"{idx.path} end at byte {self.index.end:,}. Copy it again.",
                path=self.bin.path,
            )
        self.index.check_ends(size)
        self.fingerprint = digest(["megatron", _print(idx), _print(self.bin)])


def _found(path: str, prefix: str, options: StorageOptions) -> Found:
    store, name = locate(path, options)
    try:
        return Found(store, store.entry(name))
    except ObjectNotFoundError:
        raise ObjectNotFoundError(
            f"there is no {path}: a Megatron-LM dataset is {prefix}{BIN} and {prefix}{IDX}. "
            "Copy both.",
            path=path,
        ) from None


def _print(found: Found) -> str:
    if not found.entry.size:
        return ""
    with found.open() as file:
        return file_fingerprint(file)


def prefix_of(path: str | os.PathLike[str]) -> tuple[str, bool]:
    """Return the prefix of both files, and whether one of them was named."""
    text = os.fspath(path)
    for end in (BIN, IDX):
        if text.endswith(end):
            return text.removesuffix(end), True
    return text, False


class MegatronIndex:
    """The arrays of an `.idx`, mapped: only the parts that are used are read."""

    def __init__(self, data: Any, path: str) -> None:
        size = len(memoryview(data))
        if size < _HEAD.size:
            raise _cut_off(path, f"{size:,} bytes are too few for its head of {_HEAD.size}")
        magic, version, code, sequences, borders = _HEAD.unpack_from(data)
        _check_kind(path, magic, version, code)
        self.path = path
        self.dtype: np.dtype[Any] = np.dtype(_DTYPES[code]).newbyteorder("<")
        parts = [(sequences, 4), (sequences, 8), (borders, 8)]
        wanted = _HEAD.size + sum(count * item for count, item in parts)
        if size < wanted:
            stated = f"{sequences:,} sequences and {borders:,} document borders"
            raise _cut_off(path, f"{stated} take {wanted:,} bytes, and it has {size:,}")
        if size not in (wanted, wanted + sequences):  # A mode of each sequence may follow.
            raise _damaged(path, f"it has {size - wanted:,} bytes more than its head says")
        at = _HEAD.size
        self.lengths: NDArray[np.int32] = np.frombuffer(data, "<i4", sequences, at)
        self.places: NDArray[np.int64] = np.frombuffer(data, "<i8", sequences, at + 4 * sequences)
        self.borders: NDArray[np.int64] = np.frombuffer(data, "<i8", borders, at + 12 * sequences)
        ends = self.borders[[0, -1]].tolist() if borders else [0, 0]
        if ends != [0, sequences]:
            raise _damaged(path, f"its documents go from {ends[0]:,} to {ends[1]:,} sequences")

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def documents(self) -> int:
        return max(0, len(self.borders) - 1)

    @property
    def end(self) -> int:
        """The byte of the `.bin` behind the last sequence."""
        if not len(self):
            return 0
        return int(self.places[-1]) + int(self.lengths[-1]) * self.dtype.itemsize

    def is_stream(self) -> bool:
        """Whether each sequence begins where the one before it ends, the first at byte 0.

        Document borders must rise, too. This looks at everything, a part at a time.
        """
        for start in range(0, len(self), _SCANNED):
            if (self.lengths[start : start + _SCANNED] < 0).any():
                raise _damaged(self.path, "a sequence has fewer than 0 tokens")
            places = self.places[start : start + _SCANNED + 1]
            lengths = self.lengths[start : start + len(places)]
            ends = places + lengths * np.int64(self.dtype.itemsize)
            if (start == 0 and places[0]) or (ends[: len(places) - 1] != places[1:]).any():
                return False
        for start in range(0, len(self.borders), _SCANNED):
            if (np.diff(self.borders[start : start + _SCANNED + 1]) < 0).any():
                raise _damaged(self.path, "its document borders do not rise")
        return True

    def located(
        self, rows: NDArray[np.int64], size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return at which byte sequences begin, and their bytes; both inside of so many bytes."""
        item = self.dtype.itemsize
        begins, sizes = self.places[rows], self.lengths[rows] * np.int64(item)
        wrong = (begins < 0) | (sizes < 0) | (begins > size - sizes) | (begins % item != 0)
        if wrong.any():
            at = int(wrong.argmax())
            raise CorruptFileError(
                f"{self.path} is damaged: sequence {rows[at]:,} has {sizes[at]:,} bytes at byte "
                f"{begins[at]:,} of {size:,}. Copy both files again.",
                path=self.path,
                record=int(rows[at]),
            )
        return begins, sizes

    def check_ends(self, size: int) -> None:
        """Raise where one of the first or last million sequences does not lie in so many bytes.

        Nearly always these are all sequences; a large index is not read whole to open it.
        """
        first = np.arange(min(_SCANNED, len(self)))
        last = np.arange(max(len(first), len(self) - _SCANNED), len(self))
        self.located(first, size)
        self.located(last, size)

    def is_cut_at(self, size: int) -> bool:
        """Whether the last sequences follow each other, over the end of so many bytes."""
        if self.end <= size:
            return False
        low = max(0, len(self) - _SCANNED)
        begins = self.places[low:]
        sizes = self.lengths[low:] * np.int64(self.dtype.itemsize)
        is_stream = (sizes >= 0).all() and (begins[:-1] + sizes[:-1] == begins[1:]).all()
        return bool(is_stream and (begins[0] > 0 if low else begins[0] == 0))


def map_index(found: Found, options: StorageOptions) -> MegatronIndex:
    """Map an `.idx`; a remote one is fetched as a whole, once for all processes of this host."""
    entry, head = found.entry, b""
    if entry.size:
        with found.open() as file:
            head = file.read_at(0, min(_HEAD.size, file.size))
    if not head.startswith(_MAGIC):
        return MegatronIndex(head, found.path)  # The file may be anything, and large.
    if isinstance(found.store, LocalStore):
        with open(entry.name, "rb") as opened:
            return MegatronIndex(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ), found.path)

    def make() -> bytes:
        with found.open() as file:
            return file.read_at(0, entry.size)

    key = block_key(options, found.path, entry, "bytes", 0, entry.size)
    block = Block(found.path, 0, entry.size, key, make)
    return MegatronIndex(block_cache(options).get(block).data, found.path)


def _check_kind(path: str, magic: bytes, version: int, code: int) -> None:
    if magic.startswith(_OLD_MAGIC):
        raise OptionError(
            f"{path} is of Megatron-LM's old formats 'lazy' and 'cached'. Write the data again "
            "with --dataset-impl mmap."
        )
    if magic != _MAGIC:
        raise CorruptFileError(
            f"{path} is no index of Megatron-LM: it begins with {magic!r}. Give the prefix of a "
            ".bin and an .idx that belong together.",
            path=path,
        )
    if version != _VERSION:
        raise OptionError(
            f"{path} is of version {version}: only version {_VERSION} is known. Write the data "
            "again, or upgrade Penstock."
        )
    if code not in _DTYPES:
        kind = _FLOATS.get(code, f"dtype code {code}")
        known = ", ".join(_DTYPES.values())
        raise OptionError(f"{path} holds numbers of {kind}: tokens are integers, one of {known}.")


def _cut_off(path: str, why: str) -> TruncatedFileError:
    return TruncatedFileError(f"{path} is cut off: {why}. Copy it again.", path=path)


def _damaged(path: str, why: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path} is damaged: {why}. Copy it again, or write the data anew.", path=path
    )
