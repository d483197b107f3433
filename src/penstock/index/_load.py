"""An index from its folder: checked, mapped, hardly read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import CorruptIndexError, ObjectNotFoundError, StaleIndexError
from penstock.index._folder import bring_back_tokens
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
    being_replaced,
    rebuilding,
)
from penstock.index._sample_index import Origin, SampleIndex, map_documents, map_rows
from penstock.storage import LocalStore, join, locate, path_below

if TYPE_CHECKING:
    from typing import BinaryIO, Self

_SCHEMA, _TOKENS = "sample_schema.json", "tokens"
GAP_SECONDS = 3.0
"""For how long an index may be gone while it is replaced."""


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
        rows = map_rows(file, folder.name(ROWS), again)
    if meta is not None:
        _check_whole(folder.path, meta, names, len(rows), again)
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
        deadline = time.monotonic() + GAP_SECONDS
        while True:
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                if being_replaced(self.path) and time.monotonic() < deadline:
                    bring_back_tokens(Path(self.path))
                    time.sleep(0.001)
                    continue
                raise self._missing("") from None
            return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def name(self, base_name: str) -> str:
        return join(self.path, base_name)

    def has(self, base_name: str) -> bool:
        try:
            os.stat(base_name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return False
        return True

    def open(self, base_name: str) -> BinaryIO:
        def opener(name: str, flags: int) -> int:
            return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._descriptor)

        try:
            return open(base_name, "rb", opener=opener)
        except FileNotFoundError:
            raise self._missing(base_name) from None

    def read(self, base_name: str) -> bytes:
        with self.open(base_name) as file:
            return file.read()

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
            return self.names_token_files()
        return told

    def was_replaced(self) -> bool:
        """Whether another folder has this name by now, or is about to."""
        try:
            return os.stat(self.path).st_ino != os.fstat(self._descriptor).st_ino
        except FileNotFoundError:
            return being_replaced(self.path)

    def _missing(self, base_name: str) -> ObjectNotFoundError:
        if not base_name:
            message = (
                f"there is no index in {self.path}. Build it: penstock index PATH; or of tokens: "
                "penstock tokenize SRC DST"
            )
        else:
            tokens = self._is_of_tokens(self.read(META) if self.has(META) else b"")
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
    if not isinstance(store, LocalStore):
        return store.entry(name).size
    try:
        return os.stat(name).st_size
    except FileNotFoundError:
        raise StaleIndexError(
            f"{path} is gone since its index was made. Bring it back, or build the index again: "
            f"{_repairing(path)}",
            path=path,
        ) from None
