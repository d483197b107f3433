"""Token files and their index are published together, or not at all."""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import (
    CorruptIndexError,
    ObjectExistsError,
    ObjectNotFoundError,
    StaleIndexError,
    StorageError,
)
from penstock.index._fingerprint import file_fingerprint
from penstock.index._load import load_index
from penstock.index._meta import FORMAT, VERSION, FileMeta, Meta, RecordRun, encode_meta
from penstock.index._names import FILES, META, PUT_ASIDE
from penstock.index._sample_index import Origin
from penstock.index.tokens._journal import (
    JOURNAL,
    IndexIn,
    MadeFolder,
    PutAside,
    Uploaded,
    meta_digest,
    note,
    put_in,
    take_back,
)
from penstock.storage import (
    NO_HARD_LINKS,
    LocalStore,
    StorageOptions,
    is_remote,
    leads_through_link,
    locate,
    path_below,
    sync,
    take,
    upload_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.index._folder import NewFolder
    from penstock.index._meta import TokensMeta
    from penstock.index._place import Place
    from penstock.index.tokens._job import TokenJob
    from penstock.storage import Store

_LARGEST_EXCLUSIVE = 5 << 30


class TokenBin(NamedTuple):
    """A token file that is not published yet."""

    staged: Path
    """Where it lies now."""
    path: str
    """Where it will: a path or a URL."""
    samples: int
    bad_lines: int


class Publication:
    """Puts token files in place, and their index behind them; undone as a whole if that fails."""

    def __init__(self, folder: Path, job: TokenJob, bins: list[TokenBin]) -> None:
        self._folder, self._bins, self._place = folder, bins, job.place
        self._replace, self._has_index = job.overwrite, job.store is None
        self._options: StorageOptions = job.place.options
        self._reach = job.reach

    @contextmanager
    def files(self) -> Iterator[None]:
        """Put the files in place; when the `with` block fails, nothing of them stays."""
        with _only_publisher(self._place):
            try:
                if is_remote(self._bins[0].path):
                    self._upload()
                else:
                    self._move()
                yield
            except BaseException as why:
                for said in self._taken_back():
                    why.add_note(said)
                raise
            (self._folder / JOURNAL).unlink(missing_ok=True)

    def _taken_back(self) -> list[str]:
        try:
            return take_back(self._folder, self._reach)
        except (OSError, StorageError, CorruptIndexError) as more:
            return [f"What was published so far is not taken back yet: {more}"]

    def index(self, new: NewFolder, tokens: TokensMeta) -> None:
        """Describe the files, which are in place, and let the index appear."""
        described = [self._described(one) for one in self._bins if one.samples]
        empty = [self._described(one) for one in self._bins if not one.samples]
        base = None if self._place.beside else self._place.base
        meta = Meta(
            "tokens",
            described,
            [
                RecordRun(number, file.records, file.fingerprint)
                for number, file in enumerate(described)
            ],
            empty=empty,
            base=base,
            format=FORMAT,
            version=VERSION,
            created=time.time(),
            validated=True,
            tokens=tokens,
        )
        names = "".join(f"{file.path}\n" for file in described)
        (new.path / FILES).write_text(names, encoding="utf-8")
        text = encode_meta(meta)
        (new.path / META).write_bytes(text)
        note(self._folder, [IndexIn(self._place.folder, meta_digest(text))])
        new.publish(replace=False)

    def _move(self) -> None:
        aside = self._replaced() if self._replace else []
        note(self._folder, aside)
        for entry in aside:
            os.rename(entry.path, self._folder / entry.name)
        folders = {os.path.dirname(one.path) for one in self._bins}
        for folder in sorted(folders):
            self._make(folder)
        note(self._folder, [put_in(one.staged, one.path) for one in self._bins])
        for one in self._bins:
            _link(one.staged, one.path)
        for folder in folders:
            sync(Path(folder))

    def _make(self, folder: str) -> None:
        """Make a folder, and those around it that are missing."""
        if os.path.isdir(folder):
            return
        self._make(os.path.dirname(folder))
        with suppress(FileExistsError):
            os.mkdir(folder)
            note(self._folder, [MadeFolder(folder)])

    def _replaced(self) -> list[PutAside]:
        """Return what is there: our index, which goes first, and all token files."""
        files = [one.path for one in self._bins if os.path.lexists(one.path)]
        aside = []
        if self._has_index and os.path.isdir(self._place.folder):
            aside = [PutAside(self._place.folder, PUT_ASIDE)]
            files += self._named()
        names = enumerate(dict.fromkeys(files))
        return [*aside, *(PutAside(path, f"old-{number}") for number, path in names)]

    def _named(self) -> list[str]:
        """Return the token files that the index names."""
        # The files of a damaged index are not known, and stay.
        with suppress(CorruptIndexError, StaleIndexError, ObjectNotFoundError):
            old = load_index(Origin(self._place.folder, self._place.base, self._options))
            empty = [] if old.meta is None else old.meta.empty
            base = self._place.base
            below = (path_below(base, one.path) for one in empty)
            named = [*old.file_locations, *(path for path in below if path is not None)]
            return [
                path
                for path in named
                if path.endswith(".bin")
                and os.path.isfile(path)
                and not leads_through_link(base, os.path.dirname(path))
            ]
        return []

    def _upload(self) -> None:
        index = self._place.folder if self._has_index else None
        for one in self._bins:
            store, name = locate(one.path, self._options)

            def refuse_taken(store: Store = store, name: str = name, path: str = one.path) -> None:
                with suppress(ObjectNotFoundError):
                    store.entry(name)
                    raise taken(path)

            refuse_taken()
            is_exclusive = one.staged.stat().st_size <= _LARGEST_EXCLUSIVE
            try:
                upload_file(store, one.staged, name, exclusive=is_exclusive, before=refuse_taken)
            except ObjectExistsError:
                raise taken(one.path) from None
            entry = store.entry(name)
            note(self._folder, [Uploaded(one.path, entry.size, entry.version, index)])

    def _described(self, one: TokenBin) -> FileMeta:
        store, name = locate(one.path, self._options)
        entry = store.entry(name)
        here = str(one.staged) if one.staged.exists() else name  # Where there are no links.
        file = LocalStore().open(here)
        try:
            fingerprint = file_fingerprint(file)
        finally:
            file.close()
        base, options = self._place.base, self._place.options
        root = locate(base, options)[1].rstrip("/") + "/"
        return FileMeta(
            name.removeprefix(root),
            entry.size,
            entry.modified,
            fingerprint,
            one.samples,
            entry.size,
            entry.version,
            bad_lines=one.bad_lines,
        )


@contextmanager
def _only_publisher(place: Place) -> Iterator[None]:
    """Be the only one who publishes beside an index, on any machine that sees its folder."""
    lock = None
    if not place.is_remote:
        with suppress(OSError):  # No locks on this file system.
            lock = take(os.path.realpath(os.path.dirname(place.folder)), waits=True)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _link(staged: Path, path: str) -> None:
    """Give a file its name, which must be free."""
    try:
        os.link(staged, path)
    except FileExistsError:
        raise taken(path) from None
    except OSError as failure:
        if failure.errno not in NO_HARD_LINKS:
            raise
        if os.path.lexists(path):
            raise taken(path) from None
        os.rename(staged, path)


def taken(path: str) -> ObjectExistsError:
    """Return the error for a token file that is there already."""
    return ObjectExistsError(
        f"the token file {path} exists already.",
        remedy=remedy(path, "replaces it and its index"),
        path=path,
        errno=errno.EEXIST,
    )


def remedy(path: str, overwriting: str) -> str:
    """Return what can be done about tokens that are there already; the way to some says where."""
    if is_remote(path):
        return "Remove those tokens and their index, or give another folder: output_base_path="
    return f"overwrite=True (--overwrite) {overwriting}; output_base_path= leads elsewhere."
