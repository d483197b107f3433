"""What lies on disk is input: names, paths and metadata that a stranger may have written.

Everything that reads metadata, follows a name found in it, or removes what it names asks here.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
from contextlib import closing
from typing import TYPE_CHECKING, BinaryIO

from penstock.errors import CorruptFileError, OptionError

if TYPE_CHECKING:
    from penstock.storage._store import Entry, Store

LARGEST_METADATA = 256 << 20
"""Bytes of one metadata file; an index of a million files has a `meta.json` of about this size."""


def is_plain_name(name: str) -> bool:
    """Whether a name stands for one entry of the folder it is looked up in.

    >>> [is_plain_name(name) for name in ("a.bin", "..", "a/b", "/etc", "")]
    [True, False, False, False, False]
    """
    return name not in {"", ".", ".."} and not {"/", "\0", "\n"} & {*name}


def path_below(base: str, name: str) -> str | None:
    """Return the path of a relative name below a base, local or remote; None where it leaves it.

    Only the text is looked at; links are the business of `leads_through_link`. A name with `..` is
    refused wherever that would lead: behind a link it leads to the folder around the link's target.

    >>> path_below("/data", "a/b.bin"), path_below("/data", "a/../b"), path_below("/data", "/b")
    ('/data/a/b.bin', None, None)
    """
    if not name or name.startswith("/") or "\0" in name or "\n" in name or "://" in name:
        return None
    if ".." in name.split("/") or posixpath.normpath(name) == ".":
        return None
    return f"{base.rstrip('/')}/{name}"


def is_below(base: str, path: str) -> bool:
    """Whether an absolute path or URL that metadata names lies below a base.

    >>> is_below("/data", "/data/a.bin"), is_below("/data", "/data/../a"), is_below("/data", "/d")
    (True, False, False)
    """
    root = base.rstrip("/") + "/"
    return path.startswith(root) and path_below(base, path.removeprefix(root)) is not None


def leads_through_link(base: str, path: str) -> bool:
    """Whether a folder between a local base and a path below it is a symbolic link.

    The base itself is the user's word and may be one. The last part of the path is looked at,
    too: nothing is written through a link, and to remove one is not to remove what it leads to.
    True, too, where `..` follows the base, and where a part cannot be looked at.
    """
    at = base.rstrip("/")
    if ".." in path.removeprefix(at).split("/"):
        return True
    for part in os.path.relpath(path, at).split("/"):
        at = f"{at}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(at).st_mode):
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
    return False


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a folder as far as that is possible; of a link only the link itself."""
    if os.path.islink(path):
        os.unlink(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


def remove_special(folder: str | os.PathLike[str]) -> None:
    """Remove links, pipes and devices in a folder that is found again and written to.

    A folder of ours holds none; writing to one of them would write elsewhere, or wait.
    """
    with os.scandir(folder) as found:
        for entry in found:
            if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
                os.unlink(entry.path)


def open_regular(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> BinaryIO:
    """Open a local file of ours for reading; a pipe, a device or a directory raises at once.

    A plain open would wait for a pipe, and reading a device may never end. `FileNotFoundError` and
    other errors of the file system pass; `CorruptFileError` says that the file is none.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CorruptFileError(f"{path} is not a regular file.", path=os.fspath(path))
    return open(descriptor, "rb")


def read_metadata(
    path: str | os.PathLike[str], *, dir_fd: int | None = None, largest: int = LARGEST_METADATA
) -> bytes:
    """Return the bytes of a local metadata file: a regular file of a sane size.

    Errors are those of `open_regular`, and a `CorruptFileError` for a larger file.
    """
    with open_regular(path, dir_fd=dir_fd) as file:
        if (size := os.fstat(file.fileno()).st_size) > largest:
            raise _too_large(os.fspath(path), size, largest)
        return file.read(size)


def readable_metadata(data: bytes, name: str, remedy: str) -> bytes:
    """Return metadata that is about to be written; raise where it could not be read again."""
    if len(data) > LARGEST_METADATA:
        raise OptionError(
            f"{name} would have {len(data):,} bytes, and metadata of more than "
            f"{LARGEST_METADATA:,} is not read. {remedy}"
        )
    return data


def fetch_metadata(
    store: Store, name: str, known: Entry | None = None, *, largest: int = LARGEST_METADATA
) -> bytes:
    """Return the bytes of a metadata file in a store, as `read_metadata` does.

    `known` is its entry in a listing, which saves a request.
    """
    with closing(store.open(name, known)) as file:
        if file.size > largest:
            raise _too_large(file.path, file.size, largest)
        return file.read_at(0, file.size)


def _too_large(path: str, size: int, largest: int) -> CorruptFileError:
    text = f"{path} has {size:,} bytes; metadata of more than {largest:,} is not read."
    return CorruptFileError(text, path=path)
