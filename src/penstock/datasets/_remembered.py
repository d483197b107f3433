"""The files of a source when a state was saved, so that a refused resume names what changed."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

import msgspec

from penstock._words import counted, few
from penstock.datasets._once import from_cache, keep_file
from penstock.datasets.views._views import bare_origins, fingerprint_of
from penstock.errors import StorageError
from penstock.index import file_fingerprint
from penstock.storage import cache_directory, locate, read_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.datasets._source import Source
    from penstock.storage import StorageOptions


_SHOWN = 5
_kept: set[tuple[str, ...]] = set()
"""What this process has kept: fingerprints, each with the first file of every origin."""


class _File(msgspec.Struct, array_like=True):
    path: str
    size: int
    modified: int
    """Nanoseconds since the epoch."""
    version: str | None
    """An ETag, where the file has one."""
    fingerprint: str = ""
    """As the index has it; empty where no index knows the file."""


def remember_files(source: Source, fingerprint: str) -> None:
    """Keep in the cache directory what the files of a source are now, under a fingerprint of it."""
    kept = (fingerprint, *(path for one in bare_origins(source) for path in one.files[:1]))
    if kept in _kept:
        return
    _kept.add(kept)
    files = _files(source)
    path = _folder() / f"{_key(fingerprint)}-{fingerprint_of('paths', *files)}.json"
    if files and not path.exists():
        with suppress(StorageError):  # Without a cache, a refused resume says less.
            keep_file(path, lambda draft: draft.write(msgspec.json.encode([*files.values()])))


def changes_since(source: Source, fingerprint: str) -> str:
    """Return which files are not what they were under a fingerprint, for an error.

    Empty where nothing is known of that fingerprint and any of these paths. Files that grew or are
    new come last: where records only were appended, they are not why numbers changed.
    """
    now = _files(source)
    then = _files_then(fingerprint, now)
    if not then:
        return ""
    options = {path: one.storage_options for one in bare_origins(source) for path in one.files}
    lost: list[str] = []
    more: list[str] = []
    for file in then:
        there = now.pop(file.path, None)
        if there is None or there.size < 0:
            lost.append(f"{file.path} is gone, or without records")
        elif there.size < file.size:
            lost.append(f"{file.path} shrank ({_sizes(file, there)})")
        elif there.size > file.size:
            is_longer = bool(file.fingerprint) and _begins_with(file, options[file.path])
            (more if is_longer else lost).append(
                f"{file.path} {'grew' if is_longer else 'was rewritten'} ({_sizes(file, there)})"
            )
        elif _is_other(file, there):
            lost.append(f"{file.path} was rewritten ({counted(file.size, 'byte')}, as before)")
    changes = [*lost, *more, *(f"{path} is new" for path in now)]
    same = "its files are the same, so the index, a view or options are others"
    return f"; {few(changes, _SHOWN) or same}"


def _folder() -> Path:
    return cache_directory() / "files"


def _key(fingerprint: str) -> str:
    return fingerprint_of("files", fingerprint)


def _files_then(fingerprint: str, now: Mapping[str, _File]) -> list[_File]:
    """Return the files that were kept under a fingerprint, of the source most like the one now.

    Sources of equal bytes at other paths have the same fingerprint.
    """
    kept = [
        from_cache(path, _decoded) or [] for path in _folder().glob(f"{_key(fingerprint)}-*.json")
    ]
    shared = [sum(file.path in now for file in files) for files in kept]
    most = max(shared, default=0)
    return kept[shared.index(most)] if most and shared.count(most) == 1 else []


def _decoded(path: Path) -> list[_File]:
    return msgspec.json.decode(read_metadata(path), type=list[_File])


def _files(source: Source) -> dict[str, _File]:
    files: dict[str, _File] = {}
    for origin in bare_origins(source):
        if (meta := origin.index_meta) is None:
            known = [_File(*msgspec.structs.astuple(file)) for file in origin.file_facts()]
        else:
            known = [
                _File(path, file.size, round(file.modified * 1e9), file.version, file.fingerprint)
                for path, file in zip(origin.files, meta.files, strict=True)
            ]
        files |= {file.path: file for file in known}
    return files


def _is_other(then: _File, now: _File) -> bool:
    if then.fingerprint and now.fingerprint:
        return then.fingerprint != now.fingerprint
    if then.version is not None and now.version is not None:
        return then.version != now.version
    return then.modified != now.modified


def _begins_with(then: _File, options: StorageOptions) -> bool:
    """Whether a file still begins with the bytes that it had."""
    store, name = locate(then.path, options)
    with closing(store.open(name)) as file:
        return file_fingerprint(file, then.size) == then.fingerprint


def _sizes(then: _File, now: _File) -> str:
    return f"{counted(then.size, 'byte')} then, {now.size:,} now"
