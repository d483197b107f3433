"""Columns of remote row groups: read once for a host, and mapped by every process as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.datasets._recently_used import RecentlyUsed
from penstock.storage import Block, block_cache, block_key, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.index import Found
    from penstock.storage import StorageOptions

_VERSION = 1
"""Raised whenever the same columns would be kept otherwise."""
_KEPT_BYTES = 512 << 20
"""Mapped columns, which are in the page cache and not in the process."""
_MEMORY_WEIGHT = 4
"""How much heavier columns weigh that could not be mapped: those take 128 MiB."""
_READ_AT_ONCE_BYTES = 512 << 20
"""Columns that are decoded at the same time, each in memory until it is written."""
_MOST_AT_ONCE = 16

_batches: RecentlyUsed[pa.RecordBatch] = RecentlyUsed(_KEPT_BYTES)


class WantedGroup(NamedTuple):
    """Columns of a row group that are to be read."""

    group: int
    found: Found
    number: int
    """The number of the group in its file."""
    schema: pa.Schema
    span: tuple[int, int]
    """From where to where its columns lie."""
    text_bytes: int
    """How large they are decompressed."""


class GroupBlocks:
    """Row groups of one table by blocks; `read(group, schema)` brings columns of a group."""

    def __init__(
        self,
        token: int,
        options: StorageOptions,
        read: Callable[[int, pa.Schema], pa.RecordBatch],
    ) -> None:
        self._token = token
        self._options = options
        self._read = read

    def get(
        self,
        wanted: Mapping[int, pa.Schema],
        described: Callable[[int, pa.Schema], WantedGroup],
    ) -> dict[int, pa.RecordBatch]:
        """Return columns of row groups; those that are not at hand are brought at once."""
        batches = {group: _batches.get(self._key(group, own)) for group, own in wanted.items()}
        missing = [described(group, wanted[group]) for group, at in batches.items() if at is None]
        if missing:
            most = max(1, _READ_AT_ONCE_BYTES // max(1, *(one.text_bytes for one in missing)))
            blocks = [self._block(one) for one in missing]
            with reading():
                brought = block_cache(self._options).get_all(blocks, min(_MOST_AT_ONCE, most))
            for one, found in zip(missing, brought, strict=True):
                batch = pa.ipc.open_file(found.data).get_batch(0)
                weight = found.data.size * (1 if found.is_mapped else _MEMORY_WEIGHT)
                _batches.put(self._key(one.group, one.schema), batch, weight)
                batches[one.group] = batch
        return batches

    def _key(self, group: int, schema: pa.Schema) -> tuple[object, ...]:
        return self._token, group, tuple(schema.names)

    def _block(self, one: WantedGroup) -> Block:
        def make() -> pa.Buffer:
            batch = self._read(one.group, one.schema)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)
            return sink.getvalue()

        found = one.found
        kept_as = ("columns", _VERSION, pa.__version__, str(one.schema), one.number)
        key = block_key(self._options, found.path, found.entry, *kept_as)
        return Block(found.path, *one.span, key, make)
