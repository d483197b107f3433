"""Tables of Delta Lake, Iceberg and Hudi, whose logs say which files count: they are refused."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import OptionError, StorageError
from penstock.storage import LocalStore, is_read_only, join, locate

if TYPE_CHECKING:
    from penstock.index._listing import Found, Listing
    from penstock.storage import StorageOptions, Store

_ENDINGS = (".parquet", ".orc", ".avro")
"""Of files with the rows of such a table."""


class _Lake(NamedTuple):
    title: str
    folder: str
    """Where its log is, in the folder of the table."""
    log: str
    """The path of a file of the log: that of the table comes first."""
    remedy: str


_LAKES = (
    _Lake(
        "Delta Lake",
        "_delta_log",
        r"(?:(.*)/)?_delta_log/.+",
        "Give its current version: penstock.open(deltalake.DeltaTable({root!r}).to_pyarrow_table())"
        ", or write that to a folder of its own: pyarrow.dataset.write_dataset("
        "deltalake.DeltaTable({root!r}).to_pyarrow_dataset(), 'FOLDER', format='parquet').",
    ),
    _Lake(
        "Iceberg",
        "metadata",
        r"(?:(.*)/)?metadata/(?:v\d+|\d+-[0-9a-f-]{36})(?:\.gz)?\.metadata\.json(?:\.gz)?",
        "Give its current version: penstock.open(table.scan().to_arrow()), where table is what "
        "pyiceberg loads from its catalog, or write that to a folder of its own: "
        "pyarrow.dataset.write_dataset(table.scan().to_arrow_batch_reader(), 'FOLDER', "
        "format='parquet').",
    ),
    _Lake(
        "Hudi",
        ".hoodie",
        r"(?:(.*)/)?\.hoodie/.+",
        "Write its current version as plain Parquet to a folder of its own, with Spark.",
    ),
)
_DELTA, _ICEBERG, _ = _LAKES
_FOLDERS = frozenset(lake.folder for lake in _LAKES)


def is_log(name: str) -> bool:
    """Whether a file is of the log of such a table."""
    return _table_of(name) is not None


def refuse_lakes(
    listing: Listing, options: StorageOptions | None, others: Sequence[Found] = ()
) -> None:
    """Raise where files of a listing, or others, belong to a table whose log says which count.

    Looks into all folders around local files. In an object store it looks only into that in which
    the table of the first file begins, by its name, and at what the listing saw.
    """
    store, name = locate(listing.named[0], options)
    files = (found.entry.name for found in [*listing.files, *others])
    tables = (file for file in files if file.lower().endswith(_ENDINGS))
    folders = dict.fromkeys(file.rpartition("/")[0] for file in tables)
    folders |= {} if listing.folder is None else {name: None}
    # A user who names files of the log means them.
    asked = [folder for folder in folders if folder.rpartition("/")[2] not in _FOLDERS]
    if isinstance(store, LocalStore):
        seen: set[str] = set()
        for folder in asked:
            _refuse_around(store, folder, seen)
    elif asked:
        for log in listing.logs:
            _refuse_log(store, log)
        if not is_read_only(listing.base):
            _refuse_begin(store, None if listing.folder is None else name, asked[0])


def _refuse_around(store: Store, folder: str, seen: set[str]) -> None:
    """Raise where a local folder, or one around it that was not seen, is such a table."""
    while folder and folder not in seen:
        seen.add(folder)
        for lake in _LAKES:
            with suppress(OSError):  # There is no such folder, or it is closed to us.
                for name in os.listdir(f"{folder}/{lake.folder}"):
                    _refuse_log(store, f"{folder}/{lake.folder}/{name}")
        folder = folder.rpartition("/")[0]


def _refuse_begin(store: Store, listed: str | None, folder: str) -> None:
    """Raise where a remote folder is a partition of such a table, or its folder of data."""
    *above, _ = f"{folder}/".split("/data/")
    roots = {_ICEBERG: "/data/".join(above)} if above else {}
    while "=" in folder.rpartition("/")[2]:
        folder = folder.rpartition("/")[0]
    for lake, root in {_DELTA: folder, **roots}.items():
        if listed is None or not f"{root}/".startswith(f"{listed}/"):  # Else its log is known.
            with suppress(StorageError):
                for entry in store.list(join(root, lake.folder)):
                    _refuse_log(store, entry.name)


def _table_of(log: str) -> tuple[_Lake, str] | None:
    """Return the kind of a table, and its folder, by the name of a file of its log."""
    for lake in _LAKES:
        if lake.folder in log and (match := re.fullmatch(lake.log, log)):
            return lake, match[1] or ""
    return None


def _refuse_log(store: Store, name: str) -> None:
    if (table := _table_of(name)) is None:
        return
    lake, root = table[0], store.path(table[1])
    raise OptionError(
        f"{root} is a table of {lake.title}, which is not read here: its log ({lake.folder}/) says "
        "which files hold present rows; the others hold rows that were deleted or replaced.",
        remedy=lake.remedy.format(root=root),
    )
