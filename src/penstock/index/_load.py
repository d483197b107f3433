"""Loads an index from its folder: checked and mapped, hardly read."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeVar

import numpy as np

from penstock._words import counted
from penstock.errors import (
    CorruptFileError,
    CorruptIndexError,
    ObjectNotFoundError,
    StaleIndexError,
)
from penstock.index._folder import appears, refuse_put_aside
from penstock.index._meta import Meta, TokensMeta, decode_meta
from penstock.index._names import (
    DOCUMENT_ENDS,
    DOCUMENT_FILES,
    DOCUMENT_GOES_ON,
    DOCUMENT_OFFSETS,
    FILES,
    FRAMES,
    META,
    ROWS,
    TRAINED,
    is_of_tokens,
    rebuilding,
)
from penstock.index._sample_index import Documents, SampleIndex, rows_before
from penstock.index._sample_schema import SAMPLE_SCHEMA, decode_schema
from penstock.storage import (
    fetch_metadata,
    hold_entry,
    join,
    locate,
    open_regular,
    path_below,
    read_metadata,
    translated,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index._listing import IndexPlace
    from penstock.storage import Held

T = TypeVar("T")
_TOKENS = "tokens"


def load_index(origin: IndexPlace) -> SampleIndex:
    """Return the index in a local folder, or raise what is wrong with it.

    The rows of the records and the files themselves are not read. An index that is replaced
    meanwhile is loaded either as it was or as it is.
    """
    while True:
        held = hold_entry(origin.folder)
        with _OpenFolder(origin.folder, origin.base) as folder:
            try:
                return _loaded(origin, folder, held)
            except (ObjectNotFoundError, CorruptIndexError):
                if not folder.was_replaced():
                    raise


def _loaded(origin: IndexPlace, folder: _OpenFolder, held: Held | None) -> SampleIndex:
    meta = folder.meta()
    names = [os.fsdecode(name) for name in folder.read(FILES).split(b"\n") if name]
    rows = folder.mapped(ROWS, "<u8", 3)
    if meta is not None:
        _check_whole(folder, meta, names, len(rows))
    resolved = path_below if meta is not None else _of_other_tool
    files = [resolved(origin.base, name) or "" for name in names]
    if "" in files:
        outside = names[files.index("")]
        what = f"it names {outside!r}, which does not lie below {origin.base}"
        raise folder.damaged(f"{what}; it is not opened")
    index = SampleIndex(files, rows, meta=meta, origin=origin, reload=reload_index, held=held)
    if folder.has(SAMPLE_SCHEMA):
        index.sample_schema = decode_schema(folder.read(SAMPLE_SCHEMA), folder.name(SAMPLE_SCHEMA))
    if folder.has(FRAMES):
        index.frames = folder.mapped(FRAMES, "<u8", 5)
    if folder.has(DOCUMENT_OFFSETS):
        index.documents = _map_documents(folder, len(rows))
    if meta is not None and meta.tokens is not None and meta.trained is not None:
        index.trained = _map_trained(folder, meta.tokens, len(rows))
    if meta is None:
        _check_last_rows(index, folder.again())
    return index


def reload_index(origin: IndexPlace, fingerprint: str, length: int) -> SampleIndex:
    """Return the index that another process loaded, of so many records; raise if it changed."""
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


def read_meta(path: str, base: str | None = None) -> Meta | None:
    """Return the content of the `meta.json` in a folder; None if there is none.

    Without a `base` the index lies beside its data.
    """
    with _OpenFolder(path, base) as folder:
        return folder.meta()


def meta_of(place: IndexPlace) -> Meta | None:
    """Return what an index says of itself, wherever it lies; None where another tool made it."""
    if not place.is_remote:
        return read_meta(place.folder, place.base)
    path = join(place.folder, META)
    return decode_meta(fetch_metadata(*locate(path, place.options)), path, place.base)


def kind_in(path: str) -> str | None:
    """Return the kind of the index in a folder; None if it is unknown."""
    with _OpenFolder(path) as folder:
        meta = folder.meta()
        if meta is not None:
            return meta.kind
        return _TOKENS if is_of_tokens(folder.read(FILES) + b"\n") else None


class _OpenFolder:
    """An open folder: its files belong together, even if another folder takes its name."""

    def __init__(self, path: str, base: str | None = None) -> None:
        self.path = path
        self._base = os.path.dirname(path) if base is None else base

    def __enter__(self) -> Self:
        while True:
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                if appears(self.path, lambda: os.path.isdir(self.path)):
                    continue
                refuse_put_aside(self.path)
                raise ObjectNotFoundError(
                    f"there is no index in {self.path}. Build it: penstock index PATH; or of "
                    "tokens: penstock tokenize SRC DST",
                    path=self.path,
                ) from None
            return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def name(self, base_name: str) -> str:
        return join(self.path, base_name)

    def has(self, base_name: str) -> bool:
        try:
            os.lstat(base_name, dir_fd=self._descriptor)  # A link to nothing is a damaged copy.
        except FileNotFoundError:
            return False
        return True

    def open(self, base_name: str) -> BinaryIO:
        return self._opened(open_regular, base_name)

    def read(self, base_name: str) -> bytes:
        return self._opened(read_metadata, base_name)

    def mapped(self, base_name: str, dtype: str, width: int) -> NDArray[Any]:
        """Map a file of rows of numbers."""
        row_bytes = np.dtype(dtype).itemsize * width
        with self.open(base_name) as file:
            size = os.fstat(file.fileno()).st_size
            if size % row_bytes:
                raise self.damaged(
                    f"{base_name} is cut off or damaged: {size:,} bytes are no whole number of "
                    f"rows of {row_bytes}"
                )
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
            return np.frombuffer(held, dtype).reshape(-1, width)

    def _opened(self, read: Callable[..., T], base_name: str) -> T:
        """Return what `read` makes of a file; an error names the index."""
        try:
            try:
                return read(base_name, dir_fd=self._descriptor)
            except OSError:
                with translated(self.name(base_name), "read"):
                    raise
        except ObjectNotFoundError:
            text = str(self.damaged(f"{base_name} is missing"))
            raise ObjectNotFoundError(text, path=self.path) from None
        except CorruptFileError as why:
            raise self.damaged(str(why).rstrip(".")) from None

    def meta(self) -> Meta | None:
        """Return the content of `meta.json`; None if there is none."""
        if not self.has(META):
            return None
        return decode_meta(self.read(META), self.name(META), self._base, self.again)

    def again(self) -> str:
        """Return the command that builds the index again, by the files that are left of it."""
        left = b""
        for name in (META, FILES):
            with suppress(OSError):
                left += read_metadata(name, dir_fd=self._descriptor) + b"\n"
        tokens = any(map(self.has, DOCUMENT_FILES)) or is_of_tokens(left)
        return rebuilding(self._base, tokens=tokens)

    def damaged(self, why: str) -> CorruptIndexError:
        message = f"the index in {self.path} is damaged: {why}. Build it again: {self.again()}"
        return CorruptIndexError(message, path=self.path)

    def was_replaced(self) -> bool:
        """Whether another folder has this name by now, or none."""
        try:
            return os.stat(self.path).st_ino != os.fstat(self._descriptor).st_ino
        except FileNotFoundError:
            return True


def _map_documents(folder: _OpenFolder, samples: int) -> Documents:
    """Map where the documents of so many samples end."""
    types = {DOCUMENT_ENDS: "<u4", DOCUMENT_OFFSETS: "<u8", DOCUMENT_GOES_ON: "u1"}
    columns = [folder.mapped(name, type_, 1)[:, 0] for name, type_ in types.items()]
    mapped = Documents(*columns)
    is_whole = len(mapped.offsets) == samples + 1 and len(mapped.goes_on) == samples
    if not is_whole or int(mapped.offsets[-1]) != len(mapped.ends):
        raise folder.damaged(
            f"{DOCUMENT_OFFSETS}, or one of document_*.bin beside it, is cut off or damaged: they "
            f"do not describe the documents of {counted(samples, 'sample')}"
        )
    return mapped


def _map_trained(folder: _OpenFolder, tokens: TokensMeta, samples: int) -> NDArray[np.uint8]:
    """Map the bits that say which tokens are trained."""
    mapped = folder.mapped(TRAINED, "u1", 1)[:, 0]
    count = tokens.tokens if tokens.sample_size is None else samples * tokens.sample_size
    if len(mapped) != -(-count // 8):
        raise folder.damaged(f"{TRAINED} has {len(mapped):,} bytes for {count:,} tokens")
    return mapped


def _check_whole(folder: _OpenFolder, meta: Meta, names: list[str], rows: int) -> None:
    paths = [file.path for file in meta.files]
    if rows == meta.records and names == paths:
        return
    difference = (
        f"names {counted(meta.records, 'record')} in {counted(len(paths), 'file')}, the index "
        f"holds {rows:,} in {len(names):,}"
    )
    if rows == meta.records and len(names) == len(paths):
        path, name = next(pair for pair in zip(paths, names, strict=True) if len({*pair}) > 1)
        difference = f"names {path!r}, where {FILES} has {name!r}"
    raise folder.damaged(f"meta.json {difference}")


def _of_other_tool(base: str, name: str) -> str | None:
    """Return a file's path; data-forager before 0.1.6 wrote it as it was given to it.

    That is an absolute path, or one from the folder where the index was built; it holds where it
    leads below the base.
    """
    ways = [path_below(base, one) for one in (name, os.path.relpath(name, base))]
    paths = [path for path in ways if path is not None]
    return next(filter(os.path.exists, paths), paths[0] if paths else None)


def _check_last_rows(index: SampleIndex, again: str) -> None:
    """Check the index of another tool as far as that is cheap: no file ends before its last row."""
    rows, files = index.sample_locations, len(index.file_locations)
    first, last = np.zeros(files, np.int64), np.full(files, len(rows))
    stops = rows_before(lambda at: rows[at, 0], np.arange(1, files + 1), first, last).tolist()
    for low, high, path in zip([0, *stops], stops, index.file_locations, strict=False):
        if high > low:
            _, offset, size = rows[high - 1].tolist()
            store, name = locate(path)
            try:
                actual = store.entry(name).size
            except ObjectNotFoundError:
                raise StaleIndexError(
                    f"{path} is gone since its index was made. Bring it back, or build the index "
                    f"again: {again}. An index of data-forager before 0.1.6 that names paths from "
                    "another folder opens in that folder.",
                    path=path,
                ) from None
            if offset + size > actual:
                raise StaleIndexError(
                    f"{path} has {actual:,} bytes, and its index needs {offset + size:,}: it "
                    f"shrank since. Build the index again: {again}",
                    path=path,
                )
