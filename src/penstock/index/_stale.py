"""Compares files with their index."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock._words import counted, few
from penstock.errors import StaleIndexError
from penstock.index._fingerprint import file_fingerprint, whole_hash
from penstock.index._listing import Found, Listing
from penstock.storage import StorageOptions, join, locate

if TYPE_CHECKING:
    from penstock.index._meta import FileMeta, Meta

_SHOWN = 5


class Changes(NamedTuple):
    """Changes of the files since they were indexed."""

    grown: list[Found]
    """Longer than they were; the indexed bytes are unchanged."""
    changed: list[tuple[str, str]]
    """Path, and the change."""
    new: list[Found]

    def text(self) -> str:
        """Return the changes in a few words."""
        many = {"new": len(self.new), "longer": len(self.grown), "changed": len(self.changed)}
        verbs = ("is", "are")
        counts = [f"{counted(n, 'file', verbs)} {word}" for word, n in many.items() if n]
        path, what = self.changed[0] if self.changed else ("", "")
        return f"since it was indexed, {', '.join(counts)}" + (path and f" ({path}: {what})")


def changes(listing: Listing, meta: Meta) -> Changes:
    """Compare a listing with an index; read only files whose time differs at equal size."""
    known = {file.path: file for file in [*meta.files, *meta.empty]}
    grown, changed, new = [], [], []
    for found in listing.files:
        was = known.pop(listing.relative(found), None)
        if was is None:
            new.append(found)
        elif found.entry.size > was.size:
            if meta.is_of_tokens or not _is_same(found, was):
                changed.append((found.path, _sizes(was, found)))
            else:
                grown.append(found)
        elif found.entry.size < was.size:
            changed.append((found.path, f"shrank, {_sizes(was, found)}"))
        elif _is_other_version(found, was) and not _is_same(found, was):
            changed.append((found.path, "other content at equal size"))
    changed += [(path, "is gone") for path in known]
    return Changes(grown, changed, new)


class Hashed(NamedTuple):
    """A file whose bytes were all hashed when it was indexed."""

    path: str
    was: FileMeta
    found: Found | None
    """None if it is gone."""

    def change(self) -> str | None:
        """Read all indexed bytes; return the change, None if there is none."""
        if self.found is None:
            return "it was indexed, and is gone"
        if self.found.entry.size < self.was.size:
            return f"it shrank, {_sizes(self.was, self.found)}"
        with self.found.open() as file:
            is_same = whole_hash(file, self.was.size) == self.was.hash
        return None if is_same else "some bytes are not those that were indexed"


def hashed_files(listing: Listing, meta: Meta) -> list[Hashed]:
    """Return the files that can be compared byte by byte: those of `full_hash=True`."""
    found = {listing.relative(one): one for one in listing.files}
    return [
        Hashed(join(listing.base, was.path), was, found.get(was.path))
        for was in [*meta.files, *meta.empty]
        if was.hash is not None
    ]


def refuse_stale(found: Changes, meta: Meta, command: str) -> None:
    """Raise `StaleIndexError` for changes; new files alone are harmless."""
    stale = [f"{path} ({what})" for path, what in found.changed]
    stale += [f"{grown.path} (grew)" for grown in found.grown]
    if stale:
        flag = " --overwrite" if found.changed else " --update"
        flag = "" if meta.is_of_tokens else flag  # Tokens are always rebuilt.
        raise StaleIndexError(
            f"{len(stale):,} of {counted(len(meta.files) + len(meta.empty), 'file')} changed since "
            f"the index was built: {few(stale, _SHOWN)}. Repair it: {command}{flag}",
            path=stale[0],
        )


def _is_other_version(found: Found, was: FileMeta) -> bool:
    if was.version is not None and found.entry.version is not None:
        return was.version != found.entry.version
    return was.modified != found.entry.modified or not was.modified  # 0 says nothing.


def _is_same(found: Found, was: FileMeta) -> bool:
    """Whether the bytes that were indexed are still there."""
    with found.open() as file:
        return file_fingerprint(file, was.size) == was.fingerprint


def _sizes(was: FileMeta, found: Found) -> str:
    return f"{counted(was.size, 'byte')} then, {found.entry.size:,} now"


def listing_of(meta: Meta, base: str, options: StorageOptions | None = None) -> Listing:
    """Return the existing files of an index, by one listing."""
    store, name = locate(base, options)
    known = {join(store.path(name), file.path) for file in [*meta.files, *meta.empty]}
    entries = store.list(name, recursive=True)
    files = [Found(store, entry) for entry in entries if store.path(entry.name) in known]
    return Listing((base,), store.path(name), store.path(name), files)
