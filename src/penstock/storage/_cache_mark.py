"""Folders that can be made again, marked so that backups and repositories leave them out."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CACHE_TAG = "CACHEDIR.TAG"
"""The file by whose first line backup programs know a cache: https://bford.info/cachedir/"""
_SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55"


def mark_as_cache(folder: Path, what: str) -> None:
    """Write `.gitignore` and `CACHEDIR.TAG` where they are missing; `what` says what lies there.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as name:
    ...     mark_as_cache(Path(name), "Made by Penstock; it can be made again.")
    ...     (Path(name) / CACHE_TAG).read_text().splitlines()[1]
    '# Made by Penstock; it can be made again.'
    """
    # The tag first: another process that comes meanwhile recognises the folder by it.
    for name, text in ((CACHE_TAG, f"{_SIGNATURE}\n# {what}\n"), (".gitignore", "*\n")):
        with suppress(FileExistsError), open(folder / name, "x", encoding="utf-8") as file:
            file.write(text)
