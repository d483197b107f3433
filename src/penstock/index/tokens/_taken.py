"""What may not be overwritten by tokens."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import CorruptIndexError, IndexExistsError, ObjectNotFoundError, StorageError
from penstock.index._load import kind_in
from penstock.index._open_index import exists, local_folder, refuse_other_folder
from penstock.index.tokens._publish import remedy, taken
from penstock.storage import LocalStore, is_below, is_remote, leads_through_link, locate

if TYPE_CHECKING:
    from penstock.index.tokens._job import TokenJob


def refuse_existing(job: TokenJob) -> None:
    """Raise where tokens, or anything else, lie already where a job's would."""
    _refuse_links(job)
    has_index = _has_index(job)
    if job.overwrite:
        return
    for path in _there(job):
        raise taken(path)
    if has_index:
        raise IndexExistsError(
            f"there is an index in {job.place.folder} already.",
            remedy=remedy(job.place.folder, "builds it and its token files anew"),
        )


def _refuse_links(job: TokenJob) -> None:
    """Raise where token files would be written through a link; the user's own word is none."""
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
    with suppress(CorruptIndexError, ObjectNotFoundError):  # What is damaged may be replaced.
        kind = kind_in(local_folder(job.place))
        if kind != "tokens":
            raise IndexExistsError(
                f"{job.place.folder} holds an index of {kind or 'records'}, and is not overwritten "
                "by one of tokens.",
                remedy="Give another folder: output_base_path=",
            )
    return True


def _there(job: TokenJob) -> list[str]:
    """Return the token files that are there."""
    store, name = locate(job.folder, job.place.options)
    if isinstance(store, LocalStore):
        return [path for path in job.paths if os.path.lexists(path)]
    found: set[str] = set()
    with suppress(ObjectNotFoundError):
        found = {store.path(entry.name) for entry in store.list(name, recursive=True)}
    return [path for path in job.paths if path in found]
