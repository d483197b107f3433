"""Loads an index from its folder: checked and mapped, hardly read."""

from __future__ import annotations

import mmap
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import (
    CorruptFileError,
    CorruptIndexError,
    ObjectNotFoundError,
    StaleIndexError,
)
from penstock.index._aside import appears, refuse_put_aside
from penstock.index._meta import Meta, decode_meta, is_of_tokens
from penstock.index._names import (
    DOCUMENT_ENDS,
    DOCUMENT_FILES,
    DOCUMENT_GOES_ON,
    DOCUMENT_OFFSETS,
    FILES,
    FRAMES,
    META,
    ROWS,
    rebuilding,
)
from penstock.index._sample_index import Documents, Origin, SampleIndex, rows_before
from penstock.index._sample_schema import SAMPLE_SCHEMA, decode_schema
from penstock.storage import (
    is_below,
    join,
    locate,
    open_regular,
    path_below,
    read_metadata,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO, Self

    from numpy.typing import NDArray

_TOKENS = "tokens"


def load_index(origin: Origin) -> SampleIndex:
    """Return the index in a local folder, or raise what is wrong with it.

    The rows of the records and the files themselves are not read. An index that is replaced
    meanwhile is loaded either as it was or as it is.
    """
    while True:
        with _OpenFolder(origin.folder, origin.base) as folder:
            try:
                index = _loaded(origin, folder)
            except (ObjectNotFoundError, CorruptIndexError):
                if not folder.was_replaced():
                    raise
                continue
        if index.meta is None:
            _check_last_rows(index)
        return index


def _loaded(origin: Origin, folder: _OpenFolder) -> SampleIndex:
    meta = folder.meta()
    names = [os.fsdecode(name) for name in folder.read(FILES).split(b"\n") if name]
    tokens = folder.names_token_files() if meta is None else meta.kind == _TOKENS
    again = rebuilding(origin.base, tokens=tokens)
    rows = folder.mapped(ROWS, "<u8", 3, again)
    if meta is not None:
        _check_whole(folder.path, meta, names, len(rows), again)
    resolved = path_below if meta is not None else _of_other_tool
    files = [_below(resolved, origin.base, name, folder.path, again) for name in names]
    index = SampleIndex(files, rows, meta=meta, origin=origin, reload=reload_index)
    if folder.has(SAMPLE_SCHEMA):
        index.sample_schema = decode_schema(folder.read(SAMPLE_SCHEMA), folder.name(SAMPLE_SCHEMA))
    if folder.has(FRAMES):
        index.frames = folder.mapped(FRAMES, "<u8", 5, again)
    if folder.has(DOCUMENT_OFFSETS):
        index.documents = _map_documents(folder, len(rows), again)
    return index


def reload_index(origin: Origin, fingerprint: str, length: int) -> SampleIndex:
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


def kind_in(path: str) -> str | None:
    """Return the kind of the index in a folder; None if it is unknown."""
    with _OpenFolder(path) as folder:
        meta = folder.meta()
        if meta is not None:
            return meta.kind
        return _TOKENS if folder.names_token_files() else None


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
                raise self._missing("") from None
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
        with self._naming_index(base_name):
            return open_regular(base_name, dir_fd=self._descriptor)

    def read(self, base_name: str) -> bytes:
        with self._naming_index(base_name):
            return read_metadata(base_name, dir_fd=self._descriptor)

    def mapped(self, base_name: str, dtype: str, width: int, again: str) -> NDArray[Any]:
        """Map a file of rows of numbers; `again` is the command that builds a damaged one again."""
        row_bytes = np.dtype(dtype).itemsize * width
        with self.open(base_name) as file:
            size = os.fstat(file.fileno()).st_size
            if size % row_bytes:
                path = self.name(base_name)
                raise CorruptIndexError(
                    f"{path} is cut off or damaged: {size:,} bytes are no whole number of rows of "
                    f"{row_bytes}. Build the index again: {again}",
                    path=path,
                )
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
            return np.frombuffer(held, dtype).reshape(-1, width)

    @contextmanager
    def _naming_index(self, base_name: str) -> Iterator[None]:
        """Raise an error that names the index if one of its files cannot be read."""
        try:
            with translated(self.name(base_name), "read"):
                yield
        except ObjectNotFoundError:
            raise self._missing(base_name) from None
        except CorruptFileError as why:
            raise CorruptIndexError(
                f"the index in {self.path} is damaged: {why} Build it again: "
                f"{rebuilding(self._base, tokens=None)}",
                path=self.path,
            ) from None

    def meta(self) -> Meta | None:
        """Return the content of `meta.json`; None if there is none."""
        if not self.has(META):
            return None
        text = self.read(META)
        return decode_meta(text, self.name(META), self._base, tokens=self._is_of_tokens(text))

    def names_token_files(self) -> bool:
        return b".bin\n" in self.read(FILES) + b"\n"

    def _is_of_tokens(self, meta: bytes) -> bool | None:
        """Whether this is an index of tokens, by the files that are left; None if unknown."""
        is_tokens = is_of_tokens(meta)
        if is_tokens is None and any(map(self.has, DOCUMENT_FILES)):
            return True
        if is_tokens is None and self.has(FILES):
            return b".bin\n" in self._readable(FILES) + b"\n"
        return is_tokens

    def _readable(self, base_name: str) -> bytes:
        """Return the content of a file; nothing if it cannot be read."""
        with suppress(OSError):
            return read_metadata(base_name, dir_fd=self._descriptor)
        return b""

    def was_replaced(self) -> bool:
        """Whether another folder has this name by now, or none."""
        try:
            return os.stat(self.path).st_ino != os.fstat(self._descriptor).st_ino
        except FileNotFoundError:
            return True

    def _missing(self, base_name: str) -> ObjectNotFoundError:
        if not base_name:
            message = (
                f"there is no index in {self.path}. Build it: penstock index PATH; or of tokens: "
                "penstock tokenize SRC DST"
            )
        else:
            tokens = self._is_of_tokens(self._readable(META))
            message = (
                f"the index in {self.path} is damaged: {base_name} is missing. Build it again: "
                f"{rebuilding(self._base, tokens=tokens)}"
            )
        return ObjectNotFoundError(message, path=self.path)


def _map_documents(folder: _OpenFolder, samples: int, again: str) -> Documents:
    """Map where the documents of so many samples end."""
    path = folder.name(DOCUMENT_OFFSETS)
    types = {DOCUMENT_ENDS: "<u4", DOCUMENT_OFFSETS: "<u8", DOCUMENT_GOES_ON: "u1"}
    columns = [folder.mapped(name, type_, 1, again)[:, 0] for name, type_ in types.items()]
    mapped = Documents(*columns)
    is_whole = len(mapped.offsets) == samples + 1 and len(mapped.goes_on) == samples
    if not is_whole or int(mapped.offsets[-1]) != len(mapped.ends):
        raise CorruptIndexError(
            f"{path}, or one of document_*.bin beside it, is cut off or damaged: they do not "
            f"describe the documents of {samples:,} samples. Tokenise again: {again}",
            path=path,
        )
    return mapped


def _check_whole(folder: str, meta: Meta, names: list[str], rows: int, again: str) -> None:
    paths = [file.path for file in meta.files]
    if rows == meta.records and names == paths:
        return
    difference = (
        f"names {meta.records:,} records in {len(paths):,} files, the index holds {rows:,} in "
        f"{len(names):,}"
    )
    if rows == meta.records and len(names) == len(paths):
        path, name = next(pair for pair in zip(paths, names, strict=True) if len({*pair}) > 1)
        difference = f"names {path!r}, where {FILES} has {name!r}"
    raise CorruptIndexError(
        f"the index in {folder} is damaged: meta.json {difference}. Build it again: {again}",
        path=folder,
    )


def _below(
    resolved: Callable[[str, str], str | None], base: str, name: str, folder: str, again: str
) -> str:
    """Return a file's path; raise for one outside of the base."""
    path = resolved(base, name)
    if path is None:
        raise CorruptIndexError(
            f"the index in {folder} names {name!r}, which does not lie below {base}; it is not "
            f"opened. Build it again: {again}",
            path=folder,
        )
    return path


def _of_other_tool(base: str, name: str) -> str | None:
    """Return a file's path; data-forager before 0.1.6 wrote it as it was given to it.

    That is an absolute path, or one from the folder where the index was built; it holds where it
    leads below the base.
    """
    path, given = path_below(base, name), os.path.abspath(name)
    if (path is not None and os.path.exists(path)) or not is_below(base, given):
        return path
    return given if path is None or os.path.exists(given) else path


def _check_last_rows(index: SampleIndex) -> None:
    """Check the index of another tool as far as that is cheap: no file ends before its last row."""
    rows, files = index.sample_locations, len(index.file_locations)
    first, last = np.zeros(files, np.int64), np.full(files, len(rows))
    stops = rows_before(lambda at: rows[at, 0], np.arange(1, files + 1), first, last).tolist()
    for low, high, path in zip([0, *stops], stops, index.file_locations, strict=False):
        if high > low:
            _, offset, size = rows[high - 1].tolist()
            actual = _size_of(path)
            if offset + size > actual:
                raise StaleIndexError(
                    f"{path} has {actual:,} bytes, and its index needs {offset + size:,}: it "
                    f"shrank since. Build the index again: {_repairing(path)}",
                    path=path,
                )


def _repairing(path: str) -> str:
    """Return the command that repairs an index without a `meta.json`."""
    verb = "tokenize SRC DST" if path.endswith(".bin") else "index PATH"
    return f"penstock {verb} --overwrite"


def _size_of(path: str) -> int:
    store, name = locate(path)
    try:
        return store.entry(name).size
    except ObjectNotFoundError:
        raise StaleIndexError(
            f"{path} is gone since its index was made. Bring it back, or build the index again: "
            f"{_repairing(path)}. An index of data-forager before 0.1.6 that names paths from "
            "another folder opens in that folder.",
            path=path,
        ) from None
