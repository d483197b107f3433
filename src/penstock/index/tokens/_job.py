"""A job of tokenising: its text files, how they become tokens, where these go, the report."""

from __future__ import annotations

import posixpath
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import ObjectNotFoundError, OptionError, StaleIndexError
from penstock.index._formats import LINES, format_by_name
from penstock.index._listing import list_files
from penstock.index._names import refuse_unnamable
from penstock.index.tokens._journal import Reach
from penstock.storage import is_remote, join

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Sequence

    from penstock.index._indexer import IndexStoreInterface
    from penstock.index._listing import IndexPlace, Listing, What
    from penstock.index.tokens._documents import TokenWork
    from penstock.index.tokens._pack import PackOptions
    from penstock.storage import StorageOptions
    from penstock.work import View


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


@dataclass(frozen=True, slots=True)
class TokenJob:
    """Text files, and how and where to they are tokenised."""

    listing: Listing
    options: StorageOptions
    """For these files."""
    work: TokenWork
    pack: PackOptions
    place: IndexPlace
    """Of the index; with a user's own index store, the place beside which the work folder lies."""
    folder: str
    """Of the token files."""
    names: list[str]
    """Of the token files in it, one for each text file."""
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

    @property
    def paths(self) -> list[str]:
        """Of the token files."""
        return [join(self.folder, name) for name in self.names]

    @property
    def reach(self) -> Reach:
        """The folders that the job changes."""
        return Reach(self.place.folder, (self.place.base, self.folder), self.place.options)

    def of_now(self) -> TokenJob:
        """Return the job for the text files as they are now."""
        return replace(self, listing=_listed_again(self.listing, self.options)).checked()

    def checked(self) -> TokenJob:
        """Return the job with the names of its token files, or raise what cannot work."""
        relative = [*map(self.listing.relative, self.listing.files)]
        job = replace(self, names=token_file_names(relative, self.postfix))
        if job.store is None:
            for path in job.paths:
                refuse_unnamable(path.removeprefix(job.place.base.rstrip("/") + "/"))
        if job.overwrite and is_remote(job.folder):
            raise OptionError(
                f"overwrite=True: tokens in {job.folder} cannot be replaced as a whole, for there "
                "objects cannot be put aside. Remove them and their index, or give another folder: "
                "output_base_path="
            )
        return job


def text_files(what: What | Sequence[What], options: StorageOptions) -> Listing:
    """Return the JSON Lines files of a path, a folder, a pattern, or a list of those."""
    listing = list_files(what, LINES.endings, options)
    if not listing.files:
        raise ObjectNotFoundError(
            f"{listing.named[0]} holds no JSON Lines files ({', '.join(LINES.endings)}).",
            path=listing.named[0],
        )
    for found in listing.files:
        if format_by_name(found.path) not in (None, LINES):
            raise OptionError(
                f"{found.path} is no JSON Lines file ({', '.join(LINES.endings)}), and nothing "
                "else is tokenised. Write its text as JSON Lines first, as penstock.writer does."
            )
    return listing


def _listed_again(listing: Listing, options: StorageOptions) -> Listing:
    """List the files again, with new ones."""
    named = listing.named
    return text_files(named if len(named) > 1 else named[0], options)


def refuse_changed(listing: Listing, options: StorageOptions) -> None:
    """Raise if a file changed since it was listed."""
    try:
        now = {found.path: found.entry for found in _listed_again(listing, options).files}
    except ObjectNotFoundError as gone:
        raise _changed(str(getattr(gone, "path", "a file")), "it is gone") from None
    for found in listing.files:
        was, entry = found.entry, now.get(found.path)
        if entry is None:
            raise _changed(found.path, "it is gone")
        if entry.size != was.size:
            raise _changed(found.path, f"{was.size:,} bytes then, {entry.size:,} now")
        if entry != was:
            raise _changed(found.path, "it was written anew")


def _changed(path: str, what: str) -> StaleIndexError:
    return StaleIndexError(
        f"{path} changed while it was tokenised ({what}), so nothing is published. Tokenise again "
        "when it is complete.",
        path=path,
    )


POSTFIX = "tokenized-samples"


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
    levels = [0] * len(paths)
    while True:
        names = [way[level] for way, level in zip(ways, levels, strict=True)]
        counts = Counter(name.casefold() for name in names)
        taken = [
            number
            for number, name in enumerate(names)
            if counts[name.casefold()] > 1 and levels[number] < len(ways[number]) - 1
        ]
        if not taken:
            return [f"{name}-{postfix}.bin" for name in names]
        for number in taken:
            levels[number] += 1


def free_name(path: str, taken: Iterable[str], postfix: str = POSTFIX) -> str:
    """Return the name of one more token file by the same rule; `taken` are the others.

    >>> free_name("b/a.jsonl", ["a-t.bin"], "t")
    'b/a-t.bin'
    """
    token_file_names([], postfix)
    used = {name.casefold() for name in taken}
    names = [f"{name}-{postfix}.bin" for name in _names(path)]
    return next((name for name in names if name.casefold() not in used), names[-1])


def _names(path: str) -> tuple[str, ...]:
    """Return possible names of a token file, the shortest first."""
    folder, base = posixpath.split(path)
    stem = stem_of(base)
    return stem, posixpath.join(folder, stem), path


def stem_of(name: str) -> str:
    """Return a file's name without its JSON Lines suffix.

    >>> stem_of("a.b.JSONL"), stem_of("a.jsonl.zst"), stem_of("a.txt")
    ('a.b', 'a', 'a')
    """
    for suffix in sorted(LINES.endings, key=len, reverse=True):
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return posixpath.splitext(name)[0]
