"""A job of tokenising: its text files, how they become tokens, where these go, the report."""

from __future__ import annotations

import errno
import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.errors import (
    IndexExistsError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    StorageError,
)
from penstock.index._formats import LINES
from penstock.index._names import refuse_unnamable
from penstock.index._open_index import exists, refuse_other_folder, refuse_other_kind
from penstock.index.tokens._journal import Reach
from penstock.storage import (
    LocalStore,
    is_below,
    is_remote,
    join,
    leads_through_link,
    locate,
    refuse_read_only,
)

if TYPE_CHECKING:
    import logging

    from penstock.index._indexer import IndexStoreInterface
    from penstock.index._listing import IndexPlace
    from penstock.index.tokens._documents import TokenWork
    from penstock.index.tokens._pack import PackOptions
    from penstock.index.tokens._units import TextInput
    from penstock.work import View

POSTFIX = "tokenized-samples"


@dataclass(frozen=True, slots=True)
class TokenReport:
    """Counts of a finished job."""

    documents: int
    tokens: int
    """In all samples, end-of-document tokens included, padding not."""
    samples: int
    dropped: int
    """Tokens behind the last full sample."""
    padding: int
    """Tokens that fill samples up."""
    bad_documents: int
    """Lines set aside."""
    files: int
    """Token files: as many as text files."""
    seconds: float
    trained: int | None = None
    """Tokens that are trained; None: all."""


@dataclass(frozen=True)
class TokenJob:
    """Texts, and how and where to they are tokenised."""

    texts: TextInput
    work: TokenWork
    pack: PackOptions
    place: IndexPlace
    """Of the index; with a user's own index store, the place beside which the work folder lies."""
    folder: str
    """Of the token files."""
    postfix: str
    """Stands behind the name of the text file."""
    store: IndexStoreInterface | None
    """A user's own index store."""
    workers: int | None
    overwrite: bool
    progress: bool | View | None
    unit_bytes: int
    """Text of a unit, at most."""
    log: logging.Logger

    @cached_property
    def paths(self) -> list[str]:
        """Of the token files, one for each text file."""
        names = token_file_names(self.texts.names, self.postfix)
        return [join(self.folder, name) for name in names]

    @property
    def reach(self) -> Reach:
        return Reach(self.place.folder, (self.place.base, self.folder), self.place.options)

    def checked(self) -> TokenJob:
        """Return the job, or raise what cannot work."""
        refuse_read_only(self.folder)
        for path in self.paths if self.store is None else ():
            refuse_unnamable(path.removeprefix(self.place.base.rstrip("/") + "/"))
        if self.overwrite and is_remote(self.folder):
            raise OptionError(
                f"tokens in {self.folder} cannot be replaced as a whole, for there objects cannot "
                "be put aside.",
                remedy="Instead of overwrite=True, remove them and their index, or give another "
                "folder: output_base_path=",
                option="overwrite",
            )
        if self.store is not None and self.work.text.is_masked:
            raise OptionError(
                "index_store= of your own has no place for which tokens are trained: leave it out, "
                "or the template."
            )
        return self


def refuse_existing(job: TokenJob) -> None:
    """Raise if tokens or another index exist where those of a job go."""
    _refuse_links(job)
    has_index = _has_index(job)
    if job.overwrite:
        return
    for path in _existing(job):
        raise taken(path)
    if has_index:
        raise IndexExistsError(
            f"there is an index in {job.place.folder} already.",
            remedy=remedy(job.place.folder),
        )


def _refuse_links(job: TokenJob) -> None:
    """Raise if token files would be written through a link below the folder that the user named."""
    base = job.place.base if is_below(job.place.base, job.folder) else job.folder
    for folder in set() if is_remote(job.folder) else {*map(os.path.dirname, job.paths)}:
        if leads_through_link(base, folder):
            raise StorageError(
                f"{folder} is a link, or lies behind one, and token files are not written through "
                "links.",
                remedy="Remove the link, or give another folder: output_base_path=",
                path=folder,
            )


def _has_index(job: TokenJob) -> bool:
    if job.store is not None:
        return job.store.exists()
    if not exists(job.place):
        refuse_other_folder(job.place)
        return False
    refuse_other_kind(job.place, "tokens", unknown="records")
    return True


def _existing(job: TokenJob) -> list[str]:
    """Return the token files of a job that exist."""
    store, name = locate(job.folder, job.place.options)
    if isinstance(store, LocalStore):
        return [path for path in job.paths if os.path.lexists(path)]
    found: set[str] = set()
    with suppress(ObjectNotFoundError):
        found = {store.path(entry.name) for entry in store.list(name, recursive=True)}
    return [path for path in job.paths if path in found]


def taken(path: str) -> ObjectExistsError:
    """Return the error for a token file that is there already."""
    return ObjectExistsError(
        f"the token file {path} exists already.",
        remedy=remedy(path),
        path=path,
        errno=errno.EEXIST,
    )


def remedy(path: str) -> str:
    """Return what can be done about tokens that are there already; the way to some says where."""
    if is_remote(path):
        return "Remove those tokens and their index, or give another folder: output_base_path="
    return "overwrite=True (--overwrite) replaces tokens and index; or give output_base_path="


def token_file_names(paths: Sequence[str], postfix: str = POSTFIX) -> list[str]:
    """Return the name of the token file of each text file, by their relative paths.

    The stem is the name if no other file has it; else folder and stem, and if these are not unique
    either, the whole path. Case does not count, as on some file systems.

    >>> token_file_names(["a.jsonl", "b/c.jsonl.zst"])
    ['a-tokenized-samples.bin', 'c-tokenized-samples.bin']
    >>> token_file_names(["a.jsonl", "b/a.jsonl", "c/a.jsonl", "c/A.jsonl.gz"], "t")
    ['a-t.bin', 'b/a-t.bin', 'c/a.jsonl-t.bin', 'c/A.jsonl.gz-t.bin']
    """
    if not postfix or "/" in postfix or "\n" in postfix:
        raise OptionError(
            f"file_name_postfix={postfix!r}: expected a part of a file's name, as {POSTFIX!r}."
        )
    ways = [_names(path) for path in paths]
    while True:
        counts = Counter(way[0].casefold() for way in ways)
        longer = [(way[1:] or way) if counts[way[0].casefold()] > 1 else way for way in ways]
        if longer == ways:
            return [f"{way[0]}-{postfix}.bin" for way in ways]
        ways = longer


def free_name(path: str, taken: Iterable[str], postfix: str = POSTFIX) -> str:
    """Return the name of one more token file by the same rule; `taken` are the others."""
    token_file_names([], postfix)
    used = {name.casefold() for name in taken}
    names = [f"{name}-{postfix}.bin" for name in _names(path)]
    return next((name for name in names if name.casefold() not in used), names[-1])


def _names(path: str) -> tuple[str, ...]:
    """Return possible names of a token file, the shortest first."""
    folder, base = posixpath.split(path)
    ends = (end for end in LINES.endings if base.lower().endswith(end) and base.lower() != end)
    longest = max(ends, key=len, default="")
    stem = base[: -len(longest)] if longest else posixpath.splitext(base)[0]
    return stem, posixpath.join(folder, stem), path
