"""A folder of columns: each published as a whole, found by its path and type."""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import re
import shutil
import stat
import time
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from penstock.datasets.columns._place import FileFacts  # noqa: TC001 (msgspec asks for it)
from penstock.datasets.columns._take import map_column, mapped
from penstock.datasets.columns._write import LevelFiles, check_type, write_column
from penstock.datasets.fields._paths import is_listlike, steps_of
from penstock.datasets.fields._tensor_types import type_text
from penstock.errors import CorruptIndexError
from penstock.storage import (
    HiddenFolder,
    hold_entry,
    is_plain_name,
    publish_folder,
    read_metadata,
    remove_folder,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from numpy.typing import NDArray

_log = logging.getLogger("penstock.datasets")

FORMAT = "penstock-column"
VERSION = 1
META, BAD = "meta.json", "bad.bin"
_OFFSETS = re.compile(r"[^.].*-[0-9a-f]{16}", re.DOTALL)
"""The name of a folder with the offsets of lists; a long one is cut before "-offsets"."""
_LONGEST_NAME = 180
_SAFE = "[]<>(),= :"
_warned: set[Path] = set()
"""Columns that this process has given a warning about since they were made."""


def is_news(column: Path) -> bool:
    """Whether there was no warning about a column yet; the caller gives it now."""
    is_new = column not in _warned
    _warned.add(column)
    return is_new


class ColumnMeta(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """What `meta.json` says of a column."""

    path: str
    """The field, or the path to it."""
    type: str
    """As a user writes it."""
    arrow: str
    """The Arrow schema of this one field, serialised, in base 64."""
    fingerprint: str
    """Of the source, when it had the records that are here."""
    length: int
    """Records."""
    bytes: int
    """Of all files, those that are shared with other columns too."""
    sizes: dict[str, int] = {}
    """Bytes of each of them: of its own by name, of the outermost lists as `lists-0/NAME`."""
    lists: list[str] = []
    """The folders beside this one with the offsets of lists, the outermost first."""
    bad: int = 0
    """Records that cannot be read as this type; their numbers are in `bad.bin`."""
    nulled: int = 0
    """Values that do not fit the type and are null instead, because `on_error="null"` says so."""
    format: str = ""
    version: int = 0
    created: float = 0.0
    """Seconds since the epoch."""
    files: list[FileFacts] = []
    """Those of the source, as they were before it was decoded."""

    @cached_property
    def arrow_type(self) -> pa.DataType:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.arrow, validate=True)))
        return schema.field(0).type

    def folders(self, name: str) -> dict[str, dict[str, int]]:
        """Return the sizes of all files, by folder: those of the lists first, then its own."""
        known: dict[str, dict[str, int]] = {}
        for folder in (*self.lists, name):
            known.setdefault(folder, {})
        for path, size in self.sizes.items():
            level, _, file = path.rpartition("/")
            known[self.lists[int(level.removeprefix("lists-"))] if level else name][file] = size
        return known


class Column:
    """The values of one field of all records of a source, mapped.

    Read by any number of threads, also after a fork.
    """

    def __init__(self, root: Path, name: str, meta: ColumnMeta, type_: pa.DataType) -> None:
        self.meta = meta
        self._held = hold_entry(root)
        folder = root / name
        lists = [*map(root.joinpath, meta.lists)]
        self._sizes = {}
        for one, files in meta.folders(name).items():
            for file, size in files.items():
                self._sizes[f"{root}/{one}/{file}"] = size
        place = LevelFiles(folder, files=self._sizes, lists=lists)
        self.take = map_column(place, type_, meta.length)
        """Return the values of some records, of exactly the type, in the order asked."""
        self.bad: NDArray[np.int64] = np.empty(0, np.int64)
        """Records that cannot be read as this type, ascending; null stands in their place."""
        if meta.bad:
            self.bad = mapped(folder / BAD, "<i8", meta.bad)

    def is_whole(self) -> bool:
        """Whether all files are still there: a map of a file that shrank kills its reader."""
        with suppress(OSError):
            for path, size in self._sizes.items():
                status = os.stat(path)
                if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                    return False
            return True
        return False


def column_name(path: str, type_: pa.DataType, *, nulled: bool = False) -> str:
    """Return the name of a column's folder.

    >>> column_name("items[].price", pa.list_(pa.float32())), column_name("a/b", pa.int8())
    ('items[].price-list<float32>', 'a%2Fb-int8')
    """
    return _name(f"{path}-{type_text(type_)}{'-nulled' * nulled}")


def _name(text: str) -> str:
    name = urllib.parse.quote(text, safe=_SAFE, errors="surrogatepass")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _LONGEST_NAME:
        mark = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        name = f"{name[:_LONGEST_NAME]}-{mark}"
    return name


def publish_column(  # noqa: PLR0913 (what it holds, and what its meta.json says)
    root: Path,
    field: pa.Field,
    arrays: Iterable[pa.Array],
    *,
    fingerprint: str,
    length: int,
    bad: NDArray[np.int64],
    nulled: int = 0,
    files: Sequence[FileFacts] = (),
    pool: Executor | None = None,
) -> ColumnMeta:
    """Write a column and let it appear, as a whole, in place of one of the same name.

    The arrays, one after the other, are the values of all records. They are read several times, so
    an iterable may make them anew each time. `files` are those of the source as they were before.
    Threads of `pool` wait for the disk side by side, which takes no longer than for one file. The
    caller is the only builder in this folder.
    """
    check_type(field.name, field.type)
    name = column_name(field.name, field.type, nulled=nulled > 0)
    root.mkdir(parents=True, exist_ok=True)
    with HiddenFolder(root / name, "column") as hidden:
        folder = hidden.path
        write_column(LevelFiles(folder), field.type, lambda: iter(arrays))
        if len(bad):
            (folder / BAD).write_bytes(np.sort(bad).astype("<i8").tobytes())
        written = sorted(path for path in folder.rglob("*") if path.is_file())
        sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in written}
        lists = [
            _shared(root, _name(f"{path}-offsets"), folder / f"lists-{level}", pool)
            for level, path in enumerate(_list_paths(field.name, field.type))
        ]
        meta = ColumnMeta(
            field.name,
            type_text(field.type),
            base64.b64encode(pa.schema([field]).serialize()).decode(),
            fingerprint,
            length,
            sum(sizes.values()),
            sizes,
            lists,
            len(bad),
            nulled,
            FORMAT,
            VERSION,
            time.time(),
            list(files),
        )
        (folder / META).write_bytes(msgspec.json.format(msgspec.json.encode(meta)) + b"\n")
        publish_folder(folder, root / name, "column", replace=True, pool=pool)
        _warned.discard(root / name)
    return meta


def _list_paths(path: str, type_: pa.DataType) -> Iterator[str]:
    """Yield the path of each level of lists at the top of a column.

    >>> [*_list_paths("items[].tags", pa.list_(pa.list_(pa.int8())))]
    ['items[]', 'items[].tags[]']
    """
    is_path = len(steps_of(path)) > 1
    ends = [found.end() for found in re.finditer(r"\[\]", path)] if is_path else []
    level = 0
    while is_listlike(type_) and not pa.types.is_fixed_size_list(type_):
        level += 1
        yield path[: ends[level - 1]] if level <= len(ends) else path + "[]" * (level - len(ends))
        type_ = type_.value_type


def _shared(root: Path, name: str, folder: Path, pool: Executor | None) -> str:
    """Give lists of equal lengths one folder, and return its name; a damaged one is replaced."""
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(folder.iterdir()):
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as data:
            while block := data.read(1 << 20):
                digest.update(block)
    name = f"{name}-{digest.hexdigest()}"
    if sizes_in(root / name) == sizes_in(folder):
        shutil.rmtree(folder)
    else:
        publish_folder(folder, root / name, "column", replace=True, pool=pool)
    return name


def sizes_in(folder: Path) -> dict[str, int]:
    """Return the bytes of each file in a folder; nothing where there is no folder."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return {path.name: path.stat().st_size for path in folder.iterdir()}
    return {}


def find_column(
    root: Path, path: str, type_: pa.DataType, *, nulled: bool = False
) -> Column | None:
    """Return the column of a field, mapped; None where there is none that can be used.

    Whether it is one of the present records, its `meta` says.
    """
    name = column_name(path, type_, nulled=nulled)
    try:
        meta = _read_meta(root / name)
        if meta is None or meta.path != path or meta.arrow_type != type_:
            return None
        return Column(root, name, meta, type_)
    except (CorruptIndexError, OSError) as why:
        if is_news(root / name):
            _log.warning(
                "a column cannot be used, and its field is decoded anew for each batch until the "
                "column is made again: %s",
                why,
            )
        return None


def list_columns(root: Path) -> list[ColumnMeta]:
    """Return the `meta.json` of all columns in a folder."""
    return [meta for _, meta in _all(root)]


def drop_columns(root: Path, which: Collection[str] | None = None) -> list[ColumnMeta]:
    """Remove the columns of some paths, or all, and the offsets that no other column needs.

    Of a column that is a link the link goes, and nothing that it leads to.
    """
    dropped, needed = [], set()
    for folder, meta in _all(root):
        if which is None or meta.path in which:
            remove_folder(folder, "column")
            dropped.append(meta)
        else:
            needed.update(meta.lists)
    for name in {name for meta in dropped for name in meta.lists} - needed:
        if not os.path.lexists(root / name / META):  # That would be a column.
            remove_folder(root / name, "column")
    return dropped


def _all(root: Path) -> list[tuple[Path, ColumnMeta]]:
    found = []
    with suppress(FileNotFoundError, NotADirectoryError):
        for folder in sorted(root.iterdir()):
            if folder.name.startswith("."):
                continue
            try:
                meta = _read_meta(folder)
            except CorruptIndexError as why:
                if is_news(folder):
                    _log.warning("a column is left out: %s", why)
                continue
            if meta is not None:
                found.append((folder, meta))
    return found


def _read_meta(folder: Path) -> ColumnMeta | None:
    """Return the `meta.json` of a column; None where there is none, as in a folder of offsets."""
    path = folder / META
    try:
        text = read_metadata(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as why:
        raise CorruptIndexError(f"{path} is damaged ({why}).", path=str(path)) from None
    return decode_column(text, str(path))


def decode_column(text: bytes, path: str) -> ColumnMeta:
    """Return what the text of a column's `meta.json` says, or raise `CorruptIndexError`.

    All names in it are plain: they stand for folders beside the column, and for files in them.
    """
    try:
        meta = msgspec.json.decode(text, type=ColumnMeta)
        names = [*meta.lists, *chain.from_iterable(meta.folders("").values())]
        is_sound = all(map(is_plain_name, names)) and all(map(_OFFSETS.fullmatch, meta.lists))
        is_sound = is_sound and meta.length >= 0 and meta.arrow_type is not None
    except (OSError, ValueError, IndexError, RecursionError, pa.ArrowException) as why:
        raise CorruptIndexError(f"{path} is damaged ({why}).", path=path) from None
    if not is_sound or meta.format != FORMAT:
        raise CorruptIndexError(f"{path} is not the meta.json of a column.", path=path)
    if meta.version > VERSION:
        raise CorruptIndexError(
            f"{path} was written by a newer Penstock (format {meta.version}, this one knows "
            f"{VERSION}). Upgrade Penstock.",
            path=path,
        )
    return meta
