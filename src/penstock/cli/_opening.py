"""A source to work on: its index is built on the way, where `penstock.open` would put it."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli._by_number import source_of
from penstock.cli._indexed import places_of, usable_index
from penstock.cli._terminal import Progress
from penstock.datasets import column_folders, open_found
from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError, StaleIndexError
from penstock.index import LINES, Detected
from penstock.storage import is_remote, locate

if TYPE_CHECKING:
    from penstock.datasets import Source

_log = logging.getLogger("penstock.cli")


def refuse_tokens(path: str, found: Detected, why: str) -> None:
    """Say that a verb is not for tokens."""
    if found.format.is_tokens:
        shown = shlex.quote(path)
        raise OptionError(
            f"{path} holds tokens, of which this makes nothing: {why}. penstock info {shown} and "
            f"penstock show {shown} --decode TOKENIZER show them; records beside them have a "
            f"pattern: '{path.rstrip('/')}/*{LINES.suffixes[0]}'"
        )


def open_indexed(path: str, found: Detected) -> Source:
    """Return the records of PATH; what needs an index and has none gets it.

    An index that is stale or damaged is an error that names the command which repairs it.
    """
    if found.format.scanner is None:
        return open_found(found.checked())
    indexed = usable_index(path, found, is_needed=True) if found.index is None else None
    if indexed is not None:
        return source_of(indexed, found.options)
    with Progress(found.checked().listing.bytes) as progress:
        return open_found(found, progress=progress)


def open_existing(path: str, found: Detected) -> Source | None:
    """Return the records of PATH where no index has to be built for that, else None.

    A stale or damaged index is as good as none, after a warning.
    """
    if found.format.folder is not None:
        return open_found(found)
    try:
        indexed = usable_index(path, found, is_needed=True)
        if indexed is not None:
            return source_of(indexed, found.options)
    except (CorruptIndexError, ObjectNotFoundError, StaleIndexError) as failure:
        _log.warning("%s", failure)
        return None
    return open_found(found) if found.checked().format.scanner is None else None


def folders_without_index(found: Detected, target: str | None) -> list[Path]:
    """Return where columns of a PATH may lie whose index is stale, damaged or gone."""
    if target is not None and not is_remote(target):
        return [Path(locate(target)[1])]
    return [
        *dict.fromkeys(folder for place in places_of(found) for folder in column_folders(place))
    ]
