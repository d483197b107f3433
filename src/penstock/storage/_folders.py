"""Folders that are there whole or not at all: indexes, columns, and copies of remote ones.

A builder makes its folder under a hidden name beside the final one and locks it. When all files are
on disk, one rename publishes the folder. A folder that is replaced gets a hidden name first: it
comes back if publishing fails, and is removed afterwards. A builder that is killed leaves its
hidden folders without a lock. The next builder, or `penstock clean`, removes those, or brings back
the one that was put aside.

In a store a folder counts from when its marker is there (`meta.json`): when a folder is uploaded,
the marker is deleted first and uploaded last. A fetched folder stays hidden until all its files
are on this machine.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from penstock.errors import ObjectExistsError, ObjectNotFoundError
from penstock.storage._drafts import Leftover, remove_draft, sync
from penstock.storage._files import read_blocks
from penstock.storage._locks import Lock, holder_of, is_same_file, take_folder
from penstock.storage._store import Entry, Store
from penstock.storage._untrusted import is_plain_name, remove_tree

if TYPE_CHECKING:
    from concurrent.futures import Executor


Kind = Literal["index", "column"]
State = Literal["tmp", "old"]
"""Of a hidden folder: on its way to its name, or put aside because another one takes the name."""
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
_COPY_BYTES = 8 << 20
BUILDING = ".penstock-building-"
"""Begins the name of a folder with finished parts of columns."""
COLUMNS_LOCK = ".lock"
"""In a folder of columns: held by the only process that changes them."""
CACHE_TAG = "CACHEDIR.TAG"
"""The file by whose first line backup programs know a cache: https://bford.info/cachedir/"""
_SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55"
_OF_COLUMNS = re.compile(
    rf"{re.escape(BUILDING)}[0-9a-f-]+|\.[0-9a-f]{{16}}\.penstock-column-(tmp|old)"
)


def hidden_name(name: str, state: State, key: str | None = None) -> str:
    """Return a hidden name for a folder that has, or will have, a name.

    `key`, 16 hexadecimal digits, makes a hidden name that is found again.
    """
    return f".{name}.{key or secrets.token_hex(8)}.penstock-index-{state}"


def hidden_of(found: str, state: State) -> str | None:
    """Return the name that `hidden_name` hides; None for any other.

    >>> hidden_of(hidden_name("index", "tmp"), "tmp"), hidden_of(".index.tmp", "tmp")
    ('index', None)
    >>> hidden_of(hidden_name("..", "tmp"), "tmp")
    """
    made = re.fullmatch(rf"\.(.+)\.[0-9a-f]{{16}}\.penstock-index-{state}", found, re.DOTALL)
    return made[1] if made is not None and is_plain_name(made[1]) else None


def hidden_beside(folder: str, state: State) -> list[str]:
    """Return the hidden folders that will have the name of a folder, or had it; links are none."""
    parent, name = os.path.split(folder)
    with suppress(OSError), os.scandir(parent) as beside:
        return sorted(
            found.path
            for found in beside
            if found.name[0] == "."
            and hidden_of(found.name, state) == name
            and found.is_dir(follow_symlinks=False)
        )
    return []


class HiddenFolder:
    """A folder on its way to its name, held by this process; gone after its `with` block.

    With a `key` a folder that an earlier builder of the same left is found again. Where another
    process holds that one, the folder has a random name, and `key` is None.
    """

    def __init__(self, final: Path, kind: Kind = "index", key: str | None = None) -> None:
        self.final, self.kind, self.key = final, kind, key
        self.path = Path()
        self._lock: Lock | None = None

    def __enter__(self) -> Self:
        self.path = _hidden(self.final, self.kind, "tmp", self.key)
        try:
            while (lock := take_folder(self.path)) is None:
                self.key = None
                self.path = _hidden(self.final, self.kind, "tmp")
        except BaseException:
            with suppress(OSError):  # A folder that an earlier builder left is not empty.
                self.path.rmdir()
            raise
        self._lock = lock
        return self

    @property
    def is_held(self) -> bool:
        """Whether this process has the folder; one that was forked from it has not."""
        return self._lock is not None and self._lock.descriptor >= 0

    def close(self, *, keep: bool = False) -> None:
        """Let go of the folder, and remove it unless a later builder should find it."""
        if self._lock is None:
            return
        # After it was published, another builder may have a folder of the same key.
        if self.is_held and not keep and is_same_file(self._lock.descriptor, self.path):
            remove_tree(self.path)
        self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.close()


def _hidden(final: Path, kind: Kind, state: State, key: str | None = None) -> Path:
    if kind == "index":
        return final.with_name(hidden_name(final.name, state, key))
    return final.with_name(f".{secrets.token_hex(8)}.penstock-column-{state}")


def publish_folder(  # noqa: PLR0913 (what, where, and what becomes of the old one)
    folder: Path,
    final: Path,
    kind: Kind = "index",
    *,
    replace: bool,
    rescue: Callable[[Path], object] = lambda _: None,
    pool: Executor | None = None,
) -> None:
    """Let a folder appear under its final name, on disk and as a whole.

    With `replace` the folder that is there is put aside: for a moment a reader finds none. It comes
    back if the new one cannot appear; else `rescue` moves out of it what outlives it, and it is
    removed. Without `replace` it stays, and `ObjectExistsError` is raised. Threads of `pool` wait
    for the disk side by side, which takes no longer than for one file.
    """
    paths = [*folder.iterdir(), folder]
    deque(map(sync, paths) if pool is None else pool.map(sync, paths), 0)
    replaced = _put_aside(final, kind) if replace else None
    try:
        folder.rename(final)
    except BaseException as failure:
        if replaced is not None and not os.path.lexists(final):
            replaced.rename(final)
        if isinstance(failure, OSError) and failure.errno in _TAKEN:
            raise ObjectExistsError(
                f"{final} appeared while it was being built; the one that is there stays.",
                path=str(final),
                errno=errno.EEXIST,
            ) from None
        raise
    sync(final.parent)
    if replaced is not None:
        rescue(replaced)
        remove_tree(replaced)


def remove_folder(folder: Path, kind: Kind) -> None:
    """Remove a folder at once, so that no reader finds half of it."""
    aside = _put_aside(folder, kind)
    if aside is not None:
        remove_tree(aside)


def _put_aside(folder: Path, kind: Kind) -> Path | None:
    with suppress(FileNotFoundError):
        return folder.rename(_hidden(folder, kind, "old"))
    return None


def upload_file(
    store: Store,
    path: Path,
    name: str,
    *,
    exclusive: bool = False,
    before: Callable[[], object] = lambda: None,
) -> None:
    """Upload a local file; with `exclusive` a taken name raises `ObjectExistsError`.

    `before` is called when all bytes are there, before the file appears.
    """
    draft = store.draft(*os.path.split(name))
    try:
        with path.open("rb") as data:
            while block := data.read(_COPY_BYTES):
                draft.write(block)
        before()
        draft.publish(name, exclusive=exclusive)
    finally:
        draft.discard()


def upload_folder(  # noqa: PLR0913 (what, where, and what becomes of the old one)
    store: Store,
    folder: Path,
    name: str,
    files: Iterable[str],
    marker: str,
    *,
    replace: bool = True,
    obsolete: Iterable[str] = (),
) -> None:
    """Upload files of a folder, and the marker, which is one of them, last.

    With `replace` the marker in the store goes first, and with it `obsolete` files, which the new
    folder may not have. Else a marker that is there raises `ObjectExistsError`.
    """
    for old in (marker, *obsolete) if replace else ():
        with suppress(ObjectNotFoundError):
            store.delete(f"{name}/{old}")
    for file in sorted(files, key=lambda file: file == marker):
        is_first = file == marker and not replace
        upload_file(store, folder / file, f"{name}/{file}", exclusive=is_first)


def fetch_files(store: Store, files: Mapping[str, Entry], folder: Path) -> None:
    """Bring files of a store into a local folder, each under its plain name.

    A file that is not as its entry says any more raises `ObjectChangedError`.
    """
    for name, entry in files.items():
        if not is_plain_name(name):
            raise ValueError(f"{name!r} is no plain name")
        with closing(store.open(entry.name, entry)) as file, (folder / name).open("wb") as out:
            for block in read_blocks(file, _COPY_BYTES):
                out.write(block)


def hidden_folders_in(directory: str) -> list[Leftover]:
    """Return the hidden folders of builders in a local directory."""
    found = []
    with suppress(OSError):
        for path in filter(is_hidden_folder, sorted(Path(directory).iterdir())):
            size, modified = bytes_and_time(path)
            with holder_of(_lock_of(path)) as holder:
                found.append(Leftover(Entry(str(path), size, modified), holder))
    return found


def is_hidden_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path is, by its name, a folder on its way, or one that was replaced; no link is.

    A folder that was put aside and has no other in its place is neither: it is to be brought back.
    """
    place = Path(path)
    if place.name[:1] != "." or place.is_symlink() or not place.is_dir():
        return False
    if (name := hidden_of(place.name, "old")) is not None:
        return os.path.lexists(place.with_name(name))
    return bool(hidden_of(place.name, "tmp") or is_of_columns(place.name))


def is_of_columns(name: str) -> bool:
    """Whether a name is that of a hidden folder of columns."""
    return _OF_COLUMNS.fullmatch(name) is not None


def has_builder(folder: str) -> bool:
    """Whether a living process is about to put a folder under this name."""
    for found in hidden_beside(folder, "tmp"):
        with holder_of(found) as holder:
            if holder != "gone" and os.path.exists(found):
                return True
    return False


def remove_dead(
    path: str, undo: Callable[[Path], bool] = lambda _: True, *, undecided: bool = False
) -> bool:
    """Remove a file or a folder whose writer is gone; return whether that was so.

    With `undecided` also where that cannot be known. `undo` takes back what the builder of a
    folder had begun to publish, and says whether the folder may go.
    """
    place = Path(path)
    if not is_hidden_folder(place):
        return remove_draft(path, undecided=undecided)
    with holder_of(_lock_of(place)) as holder:
        is_going = holder == "gone" or (holder == "unknown" and undecided)
        if is_going and hidden_of(place.name, "tmp"):
            is_going = undo(place)
        if is_going:
            with suppress(FileNotFoundError):  # Another process removes it, too.
                shutil.rmtree(path)
        return is_going and not os.path.lexists(path)


def bytes_and_time(path: Path) -> tuple[int, float]:
    """Return the bytes of a file, or of all in a folder, and the last change of any of it."""
    size, modified = 0, 0.0
    if not path.is_dir():
        with suppress(OSError):
            status = path.lstat()
            return status.st_size, status.st_mtime
    # Neither fails where a folder is removed while it looks, nor follows links.
    for folder, _, files in os.walk(path):
        for place in (folder, *(f"{folder}/{name}" for name in files)):
            with suppress(OSError):
                status = os.lstat(place)
                size += 0 if place is folder else status.st_size
                modified = max(modified, status.st_mtime)
    return size, modified


def _lock_of(path: Path) -> str:
    """Return what the builder of a hidden folder locks."""
    if is_of_columns(path.name):
        return str(path.with_name(COLUMNS_LOCK))
    # A folder that was put aside does not show who locked it.
    return str(path) if hidden_of(path.name, "tmp") else ""


def mark_as_cache(folder: Path, what: str) -> None:
    """Write `.gitignore` and `CACHEDIR.TAG` where they are missing; `what` says what lies there."""
    # The tag first: another process that comes meanwhile recognises the folder by it.
    for name, text in ((CACHE_TAG, f"{_SIGNATURE}\n# {what}\n"), (".gitignore", "*\n")):
        with suppress(FileExistsError), open(folder / name, "x", encoding="utf-8") as file:
            file.write(text)
