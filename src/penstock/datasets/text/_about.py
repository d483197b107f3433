"""What is asked about a source whose records are runs of bytes, besides its records."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.datasets._about import ColumnHome
from penstock.datasets._source import Source
from penstock.datasets.columns._place import looked_at, noted
from penstock.datasets.text._texts import is_stream
from penstock.errors import PenstockError
from penstock.index import digest, look_at
from penstock.jsonl import compression_of
from penstock.storage import StorageOptions, cache_directory, is_remote

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets.columns._place import FileFacts
    from penstock.index import SampleIndex


class AboutText(Source):
    """A source that an index describes."""

    _sample_index: SampleIndex

    decodes_in_processes = True

    @property
    def sample_index(self) -> SampleIndex:
        return self._sample_index

    @property
    def storage_options(self) -> StorageOptions:
        origin = self._sample_index.origin
        return StorageOptions() if origin is None else origin.options

    @property
    def reads_blocks(self) -> str:  # type: ignore[override]
        is_compressed = any(map(compression_of, self._sample_index.file_locations))
        return "compressed data is read by blocks, each once" if is_compressed else ""

    @cached_property
    def stream_files(self) -> dict[int, str]:
        return {
            at: compression_of(path) or ""
            for at, path in enumerate(self.files)
            if is_stream(self._sample_index, at)
        }

    @property
    def unit_borders(self) -> NDArray[np.int64]:
        """The first records of blocks, but none inside of a file that is read as a whole."""
        borders, meta = self.blocks, self._sample_index.meta
        if meta is None:
            return borders
        starts = meta.starts()
        streams = [run.file in self.stream_files for run in meta.runs]
        runs = np.minimum(np.searchsorted(starts, borders, "right") - 1, len(streams) - 1)
        kept = np.isin(borders, starts) | ~np.array([*streams, False], np.bool_)[runs]
        found: NDArray[np.int64] = borders[kept]
        return found

    def file_sizes(self) -> dict[str, int]:
        meta = self._sample_index.meta
        known = () if meta is None else zip(self.files, meta.files, strict=True)
        return {path: file.size for path, file in known}

    def file_facts(self) -> list[FileFacts]:
        """Return the state of its files; of remote ones what the index says."""
        meta, paths = self._sample_index.meta, self.files
        if any(map(is_remote, paths[:1])):
            return [] if meta is None else [noted(file.path, file) for file in meta.files]
        names = paths if meta is None else map(attrgetter("path"), meta.files)
        return [*map(looked_at, paths, names)]

    @property
    def _reads_as_indexed(self) -> bool:
        """Whether this is a class of Penstock itself, which decodes as the index says."""
        return "_NAME_IN_CACHE" in vars(type(self)) and not self.is_tokens

    def _columns_key(self, where: object) -> list[object]:
        return [self._cache_name(), "utf-8", where]

    def column_home(self) -> ColumnHome:
        """Return where columns lie: beside the index, unless that is a copy of a remote one."""
        place = self._sample_index.origin
        if place is None:
            return ColumnHome(self._columns_key(self.files))
        folder = Path(place.folder)
        is_copy = folder.parent == cache_directory() / "fetched-indexes"
        key = self._columns_key(place.base if is_copy else place.folder)
        if not self._reads_as_indexed:
            return ColumnHome(key)
        remote = place.base if any(map(is_remote, self.files[:1])) else None
        return ColumnHome(key, None if is_copy else folder, remote)

    @property
    def reopens_as(self) -> str | None:
        place, meta = self._sample_index.origin, self._sample_index.meta
        if place is None or meta is None or not self._reads_as_indexed:
            return None
        folder = Path(place.folder)
        if folder == Path(place.base) / "index" or folder.parent.name == "fetched-indexes":
            return place.base
        # In the cache an index has the name of what was opened.
        for path in (place.base, *self.files[:1]):
            if folder.name == digest([meta.kind, meta.options, [path]]):
                if not meta.options:
                    return path
                with suppress(PenstockError):  # Files that are gone have no head to look at.
                    options = look_at(path, self.storage_options).scanner().options()
                    return path if options == meta.options else None
        return None
