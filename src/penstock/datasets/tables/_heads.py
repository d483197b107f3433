"""The heads of the files of a table, read once for all processes of a host."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError, StaleIndexError
from penstock.index import LARGEST_UNASKED, format_named, load
from penstock.storage import (
    Block,
    CachedFile,
    LocalStore,
    MeteredFile,
    block_cache,
    block_key,
    carried,
)
from penstock.tables import head_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.index import Format, Found
    from penstock.storage import OpenFile, StorageOptions
    from penstock.tables import TableHead

_THREADS = 16


def table_format(kind: str) -> Format:
    """Return the row of a format whose files have a head."""
    form = format_named(kind)
    if form is None or form.head is None:
        raise TypeError(f"{kind} files are no tables")
    return form


def read_heads(
    kind: str, files: Sequence[Found], options: StorageOptions, given: Mapping[str, Any]
) -> Iterator[TableHead]:
    """Yield the head of each file, in order; remote ones are fetched side by side."""
    read = partial(read_head, kind, options=options, given=given, searched=_Searched())
    if len(files) <= 1 or isinstance(files[0].store, LocalStore):
        yield from map(read, files)
        return
    with ThreadPoolExecutor(_THREADS, "penstock-heads") as pool:
        yield from pool.map(carried(read), files)


class _Searched:
    """Bytes of remote files that were read to find their units."""

    bytes = 0

    def add(self, count: int) -> None:
        self.bytes += count

    def refuse_more(self, path: str) -> None:
        if self.bytes > LARGEST_UNASKED:
            raise OptionError(
                f"the records of {path} are found by reading the file, and {self.bytes / 1e9:,.1f} "
                "GB of files before it were read for that. What was found is kept: open the same "
                "again to go on, or copy the files to a local disk."
            )


def read_head(
    kind: str,
    found: Found,
    options: StorageOptions,
    given: Mapping[str, Any],
    searched: _Searched | None = None,
) -> TableHead:
    """Read the head of a file of a format, with `given` options of that.

    Parts that this host has read are not read again.
    """
    form, counts = table_format(kind), searched or _Searched()
    is_local = isinstance(found.store, LocalStore)

    def remember(find: Callable[[OpenFile], bytes]) -> pa.Buffer:
        def make() -> bytes:
            counts.refuse_more(found.path)
            with found.open() as file:
                return find(file if is_local else MeteredFile(file, counts.add))

        key = block_key(options, found.path, found.entry, "units", kind)
        return block_cache(options).get(Block(found.path, 0, found.entry.size, key, make)).data

    with found.open() as opened:
        file = opened if is_local else CachedFile(opened, found.entry, options)
        if file.size != found.entry.size:
            raise StaleIndexError(
                f"{found.path} is being written: {found.entry.size:,} bytes when it was listed, "
                f"{file.size:,} now. Open it again when it is finished.",
                path=found.path,
            )
        return head_of(partial(load(str(form.head)), **given), form.title, file, remember)
