"""Folders that `save_to_disk` of Hugging Face datasets wrote: `state.json` names their files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import CorruptFileError, ObjectNotFoundError
from penstock.storage import entry_at, fetch_metadata, join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.index._listing import Found

_STATE, _ENDING = "state.json", ".arrow"
_LARGEST = 16 << 20
_SHARD = re.compile(r"(?:^|/)data(?:set|-\d+-of-\d+)\.arrow$")


class _DataFile(msgspec.Struct):
    filename: str


class _SavedState(msgspec.Struct, rename={"files": "_data_files"}):
    files: list[_DataFile]


def leave_out_unsaved(files: Sequence[Found], *, is_folder: bool) -> list[Found]:
    """Return the Arrow files that lie in saved folders and are not of what was saved last.

    Those are caches, and shards of an earlier save. `is_folder`: all files of the folders are
    given; else a pattern chose some, and where it chose only such files they are meant.
    """
    folders: dict[str, list[Found]] = {}
    for found in files:
        if found.entry.name.endswith(_ENDING):
            folders.setdefault(found.entry.name.rpartition("/")[0], []).append(found)
    if not folders:
        return []
    entries = {found.entry.name: found.entry for found in files}
    left_out: list[Found] = []
    for folder, there in folders.items():
        store, name = there[0].store, join(folder, _STATE)
        known = entries.get(name)
        if not is_folder and any(_SHARD.search(found.entry.name) for found in there):
            known = entry_at(store, name)
        if known is None:
            continue
        try:
            text = fetch_metadata(store, name, known, largest=_LARGEST)
            state = msgspec.json.decode(text, type=_SavedState)
        except (CorruptFileError, msgspec.DecodeError, UnicodeDecodeError):
            continue  # Of another program.
        saved = {join(folder, file.filename) for file in state.files}
        missing = sorted(saved - entries.keys())
        if missing and is_folder:
            raise ObjectNotFoundError(
                f"{store.path(name)} names {missing[0].rpartition('/')[2]!r}, which is not there. "
                "Copy the folder again, or save the dataset again.",
                path=store.path(missing[0]),
            )
        others = [found for found in there if found.entry.name not in saved]
        left_out += others if is_folder or len(others) < len(there) else []
    return left_out
