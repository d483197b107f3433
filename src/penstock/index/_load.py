"""An index from its folder: checked, mapped, hardly read."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.errors import (
    CorruptFileError,
    CorruptIndexError,
    ObjectNotFoundError,
    StaleIndexError,
)
from penstock.index._aside import appears, refuse_put_aside
from penstock.index._meta import Meta, decode_meta, tells_of_tokens
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
from penstock.index._sample_index import Origin, SampleIndex, map_documents, map_rows
from penstock.storage import (
    join,
    locate,
    open_regular,
    path_below,
    read_metadata,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO, Self

_SCHEMA, _TOKENS = "sample_schema.json", "tokens"
_ROW_BYTES = 24


def load_index(origin: Origin) -> SampleIndex:
    """Return the index in a local folder, or say what is wrong with it.

    Neither the records' rows nor the files themselves are read. An index that is replaced
    meanwhile is loaded as it was or as it is, never half of each.
    """
    while True:
        with _Folder(origin.folder, origin.base) as folder:
            try:
                index = _loaded(origin, folder)
            except (ObjectNotFoundError, CorruptIndexError):
                if not folder.was_replaced():
                    raise
                continue
        if index.meta is None:
            _check_last_rows(index)
        return index


def _loaded(origin: Origin, folder: _Folder) -> SampleIndex:
    if folder.has(_SCHEMA):
        raise CorruptIndexError(
            f"{folder.path} holds token samples with extra arrays ({_SCHEMA}), which only the "
            "tool that made it reads.",
            path=folder.path,
        )
    meta = folder.meta()
    names = [os.fsdecode(name) for name in folder.read(FILES).split(b"\n") if name]
    tokens = folder.names_token_files() if meta is None else meta.kind == _TOKENS
    again = rebuilding(origin.base, tokens=tokens)
    with folder.open(ROWS) as file:
        count, rest = divmod(os.fstat(file.fileno()).st_size, _ROW_BYTES)
        if meta is not None and not rest:
            _check_whole(folder.path, meta, names, count, again)
        rows = map_rows(file, folder.name(ROWS), again)
    files = [_below(origin.base, name, folder.path, again) for name in names]
    index = SampleIndex(files, rows, meta=meta, origin=origin)
    if folder.has(FRAMES):
        with folder.open(FRAMES) as file:
            index.frames = map_rows(file, folder.name(FRAMES), again, 5)
    if folder.has(DOCUMENT_OFFSETS):
        with (
            folder.open(DOCUMENT_ENDS) as ends,
            folder.open(DOCUMENT_OFFSETS) as offsets,
            folder.open(DOCUMENT_GOES_ON) as goes_on,
        ):
            name = folder.name(DOCUMENT_OFFSETS)
            index.documents = map_documents((ends, offsets, goes_on), len(rows), name, again)
    return index


def read_meta(path: str, base: str | None = None) -> Meta | None:
    """Return what the `meta.json` in a folder says; None where there is none.

    Without a `base` the index lies beside what it is of.
    """
    with _Folder(path, base) as folder:
        return folder.meta()


def kind_in(path: str) -> str | None:
    """Return what the index in a folder is of; None where nobody can tell."""
    meta = read_meta(path)
    if meta is not None:
        return meta.kind
    with _Folder(path) as folder:
        return _TOKENS if folder.names_token_files() else None


class _Folder:
    """An open folder: what is read from it belongs together, even when its name is taken anew."""

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
        with self._telling(base_name):
            return open_regular(base_name, dir_fd=self._descriptor)

    def read(self, base_name: str) -> bytes:
        with self._telling(base_name):
            return read_metadata(base_name, dir_fd=self._descriptor)

    @contextmanager
    def _telling(self, base_name: str) -> Iterator[None]:
        """Say which index is damaged where one of its files cannot be read."""
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
        """Return what `meta.json` says; None where there is none."""
        if not self.has(META):
            return None
        text = self.read(META)
        return decode_meta(text, self.name(META), self._base, tokens=self._is_of_tokens(text))

    def names_token_files(self) -> bool:
        return b".bin\n" in self.read(FILES) + b"\n"

    def _is_of_tokens(self, meta: bytes) -> bool | None:
        """Whether this is an index of tokens, by what is left of it; None where nobody can tell."""
        told = tells_of_tokens(meta)
        if told is None and any(map(self.has, DOCUMENT_FILES)):
            return True
        if told is None and self.has(FILES):
            return b".bin\n" in self._readable(FILES) + b"\n"
        return told

    def _readable(self, base_name: str) -> bytes:
        """Return what a file holds; nothing where it cannot be read."""
        with suppress(OSError):
            return read_metadata(base_name, dir_fd=self._descriptor)
        return b""

    def was_replaced(self) -> bool:
        """Whether another folder has this name by now, or none has."""
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


def _check_whole(folder: str, meta: Meta, names: list[str], rows: int, again: str) -> None:
    paths = [file.path for file in meta.files]
    if rows == meta.records and names == paths:
        return
    told = (
        f"speaks of {meta.records:,} records in {len(paths):,} files, the index holds {rows:,} in "
        f"{len(names):,}"
    )
    if rows == meta.records and len(names) == len(paths):
        path, name = next(pair for pair in zip(paths, names, strict=True) if len({*pair}) > 1)
        told = f"names {path!r}, where {FILES} has {name!r}"
    raise CorruptIndexError(
        f"the index in {folder} is damaged: meta.json {told}. Build it again: {again}",
        path=folder,
    )


def _below(base: str, name: str, folder: str, again: str) -> str:
    """Return a file's path; one that leaves the base is refused, whoever wrote the index."""
    path = path_below(base, name)
    if path is None:
        raise CorruptIndexError(
            f"the index in {folder} names {name!r}, which does not lie below {base}; it is not "
            f"opened. Build it again: {again}",
            path=folder,
        )
    return path


def _check_last_rows(index: SampleIndex) -> None:
    """Check a foreign index as far as that is cheap: no file may end before its last row."""
    rows, low = index.sample_locations, 0
    for number, path in enumerate(index.file_locations):
        high = _first_row_after(rows, number, low)
        if high > low:
            _, offset, size = rows[high - 1].tolist()
            actual = _size_of(path)
            if offset + size > actual:
                raise StaleIndexError(
                    f"{path} has {actual:,} bytes, and its index speaks of {offset + size:,}: it "
                    f"shrank since. Build the index again: {_repairing(path)}",
                    path=path,
                )
        low = high


def _first_row_after(rows: object, number: int, low: int) -> int:
    high = len(rows)  # type: ignore[arg-type]
    while low < high:
        middle = (low + high) // 2
        if int(rows[middle, 0]) <= number:  # type: ignore[index]
            low = middle + 1
        else:
            high = middle
    return low


def _repairing(path: str) -> str:
    """Return the command that repairs an index that does not say what it is of."""
    verb = "tokenize SRC DST" if path.endswith(".bin") else "index PATH"
    return f"penstock {verb} --overwrite"


def _size_of(path: str) -> int:
    store, name = locate(path)
    try:
        return store.entry(name).size
    except ObjectNotFoundError:
        raise StaleIndexError(
            f"{path} is gone since its index was made. Bring it back, or build the index again: "
            f"{_repairing(path)}",
            path=path,
        ) from None
