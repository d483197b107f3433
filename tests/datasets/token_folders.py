"""Token folders written by hand: what the format says, in a few lines of NumPy."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.index._fingerprint import file_fingerprint
from penstock.index._meta import FORMAT, VERSION, FileMeta, Meta, RecordRun, TokensMeta, encode_meta
from penstock.storage import LocalStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import DTypeLike, NDArray

EOS = 0
Document = list[int]


class Folder(NamedTuple):
    """A folder that was written, and what is in it."""

    path: Path
    rows: list[list[int]]
    """Every sample."""
    ends: list[list[int]]
    """Where documents, or pieces of some, end in each."""
    stream: list[int]
    """All tokens of the samples, without those that only fill up."""
    borders: list[int]
    """Where documents really end in the stream."""

    @property
    def is_filled_up(self) -> bool:
        """Whether the last sample of a stream has room for more."""
        return 0 < len(self.stream) < sum(map(len, self.rows))


def some_documents(
    files: int, documents: int, seed: int = 0, most: int = 40
) -> list[list[Document]]:
    """Return documents of 0 to `most` tokens from 1 on, for each file."""
    chance = np.random.default_rng(seed)
    return [
        [
            chance.integers(1, 60_000, chance.integers(0, most + 1)).tolist()
            for _ in range(documents)
        ]
        for _ in range(files)
    ]


def write_concat(
    path: Path,
    texts: Sequence[Sequence[Document]],
    size: int,
    dtype: DTypeLike = np.uint16,
    *,
    pad: bool = False,
) -> Folder:
    """Write documents with EOS as one stream, cut into samples."""
    stream, borders, files = _stream(texts)
    rows = [stream[at : at + size] for at in range(0, len(stream) - size + 1, size)]
    goes_on = [at not in borders for at in range(size, len(rows) * size + 1, size)]
    rest = len(stream) - len(rows) * size
    ends = [_ends_in(at * size, (at + 1) * size, borders) for at in range(len(rows))]
    shares = [after // size - before // size for before, after in pairwise(files)]
    real = stream[: len(rows) * size]
    if pad and rest:
        ends.append(_ends_in(len(rows) * size, len(stream), borders))
        rows.append(stream[len(rows) * size :] + [EOS] * (size - rest))
        goes_on.append(False)
        shares[-1] += 1
        real = stream
    tokens = TokensMeta(
        np.dtype(dtype).name, size, EOS, "concat", EOS if pad else None, len(borders), len(real),
        0 if pad else rest, size - rest if pad and rest else 0,
    )  # fmt: skip
    _write(path, rows, shares, dtype, tokens, (ends, goes_on))
    return Folder(path, rows, ends, real, [at for at in borders if at <= len(real)])


def write_best_fit(
    path: Path, rows: Sequence[Sequence[Document]], size: int, dtype: DTypeLike = np.uint16
) -> Folder:
    """Write samples of whole documents, filled up with EOS; one file."""
    goes_on = [False] * len(rows)
    ends = [np.cumsum([len(document) for document in row]).tolist() for row in rows]
    flat = [[token for document in row for token in document] for row in rows]
    tokens = TokensMeta(
        np.dtype(dtype).name, size, EOS, "best_fit", EOS, sum(map(len, rows)), sum(map(len, flat)),
        0, sum(size - len(row) for row in flat),
    )  # fmt: skip
    full = [row + [EOS] * (size - len(row)) for row in flat]
    _write(path, full, [len(full)], dtype, tokens, (ends, goes_on))
    return Folder(path, full, ends, [], [])


def write_documents(
    path: Path, texts: Sequence[Sequence[Document]], dtype: DTypeLike = np.uint16
) -> Folder:
    """Write a sample for each document, without EOS."""
    rows = [document for text in texts for document in text]
    stream = [token for row in rows for token in row]
    tokens = TokensMeta(np.dtype(dtype).name, None, None, None, None, len(rows), len(stream))
    _write(path, rows, [len(text) for text in texts], dtype, tokens, None)
    borders = np.unique(np.cumsum([len(row) for row in rows])).tolist()
    return Folder(path, rows, [[len(row)] for row in rows], stream, borders)


def as_data_forager(folder: Folder) -> Folder:
    """Leave of an index what data-forager writes."""
    for path in (folder.path / "index").iterdir():
        if path.name not in {"file_location.txt", "sample_locations.bin"}:
            path.unlink()
    return folder


def _stream(texts: Sequence[Sequence[Document]]) -> tuple[list[int], list[int], list[int]]:
    """Return the tokens, where documents end in them, and where files do, from 0 on."""
    stream: list[int] = []
    borders, files = [], [0]
    for text in texts:
        for document in text:
            stream += [*document, EOS]
            borders.append(len(stream))
        files.append(len(stream))
    return stream, borders, files


def _ends_in(begin: int, stop: int, borders: list[int]) -> list[int]:
    inside = [at - begin for at in borders if begin < at < stop]
    return [*inside, stop - begin]


def _write(  # noqa: PLR0913, PLR0917
    base: Path,
    rows: Sequence[Sequence[int]],
    shares: Sequence[int],
    dtype: DTypeLike,
    tokens: TokensMeta,
    documents: tuple[Sequence[Sequence[int]], Sequence[bool]] | None,
) -> None:
    index, kind = base / "index", np.dtype(dtype).newbyteorder("<")
    index.mkdir(parents=True)
    (base / "tokenized-samples").mkdir()
    files: list[FileMeta] = []
    places: list[NDArray[np.uint64]] = []
    runs, first = [], 0
    for number, share in enumerate(shares):
        part = [np.array(row, kind) for row in rows[first : first + share]]
        first += share
        name = f"tokenized-samples/text-{number}-tokenized-samples.bin"
        data = b"".join(row.tobytes() for row in part)
        (base / name).write_bytes(data)
        if not part:
            continue
        sizes = np.array([row.nbytes for row in part], np.uint64)
        offsets = np.cumsum(sizes) - sizes
        places.append(np.stack([np.full(len(part), len(files), np.uint64), offsets, sizes], 1))
        file = LocalStore().open(str(base / name))
        fingerprint = file_fingerprint(file)
        file.close()
        modified = (base / name).stat().st_mtime
        runs.append(RecordRun(len(files), len(part), fingerprint))
        files.append(FileMeta(name, len(data), modified, fingerprint, len(part), len(data)))
    (index / "file_location.txt").write_text("".join(f"{file.path}\n" for file in files))
    (index / "sample_locations.bin").write_bytes(b"".join(place.tobytes() for place in places))
    meta = Meta("tokens", files, runs, format=FORMAT, version=VERSION, tokens=tokens)
    (index / "meta.json").write_bytes(encode_meta(meta))
    if documents is not None:
        ends, goes_on = documents
        offsets = np.cumsum([0, *map(len, ends)], dtype=np.uint64)
        (index / "document_offsets.bin").write_bytes(offsets.tobytes())
        flat = np.array([end for some in ends for end in some], np.uint32)
        (index / "document_ends.bin").write_bytes(flat.tobytes())
        (index / "document_goes_on.bin").write_bytes(np.array(goes_on, np.uint8).tobytes())
