"""The names of an index's files, and of its folder before it is published."""

from __future__ import annotations

import os
import re
import secrets
import shlex
from contextlib import suppress
from typing import Literal

from penstock.errors import OptionError
from penstock.storage import is_plain_name, is_remote

FILES, ROWS, FRAMES, META = "file_location.txt", "sample_locations.bin", "frames.bin", "meta.json"
BAD_LINES, PROFILE, PROFILE_STATE = "bad_lines.ndjson", "profile.json", "profile.state"
COLUMNS = "columns"
TOKEN_FOLDER = "tokenized-samples"  # noqa: S105 (of language models, not of a login)
DOCUMENT_ENDS, DOCUMENT_OFFSETS = "document_ends.bin", "document_offsets.bin"
DOCUMENT_GOES_ON = "document_goes_on.bin"
DOCUMENT_FILES = (DOCUMENT_OFFSETS, DOCUMENT_ENDS, DOCUMENT_GOES_ON)
PUT_ASIDE = "old-index"
"""The index that a builder of tokens replaces, in the builder's hidden folder."""
State = Literal["tmp", "old"]


def rebuilding(base: str, *, tokens: bool | None) -> str:
    """Return the command that builds the index of a base again.

    `tokens`: whether it is one of tokens; None if unknown, and both commands are named.
    """
    again = f"penstock tokenize SRC {shlex.quote(base)}"
    # In an object store nothing is replaced.
    again = (
        f"remove the tokens in {base}, and {again}" if is_remote(base) else f"{again} --overwrite"
    )
    records = "penstock index PATH --overwrite"
    if tokens is None:
        return f"{records}; or if it was one of tokens: {again}"
    return again if tokens else records


def refuse_unnamable(relative: str) -> None:
    """Raise for a file that an index cannot name: it lists one name a line, in UTF-8."""
    if "\n" in relative:
        raise OptionError(
            f"{relative!r}: an index cannot name a file with a newline in it. Rename it."
        )
    if any("\ud800" <= letter <= "\udfff" for letter in relative):
        raise OptionError(
            f"{relative!r}: an index cannot name a file whose name is not UTF-8. Rename it."
        )


def hidden_name(name: str, state: State, key: str | None = None) -> str:
    """Return a hidden name for a folder before it is published (`tmp`) or after (`old`).

    With a `key`, 16 hexadecimal digits, a later build finds the same name.
    """
    return f".{name}.{key or secrets.token_hex(8)}.penstock-index-{state}"


def hidden_of(found: str, state: State) -> str | None:
    """Return the name from which `hidden_name` made a name; None for another name.

    >>> hidden_of(hidden_name("index", "tmp"), "tmp"), hidden_of(".index.tmp", "tmp")
    ('index', None)
    >>> hidden_of(hidden_name("..", "tmp"), "tmp")
    """
    made = re.fullmatch(rf"\.(.+)\.[0-9a-f]{{16}}\.penstock-index-{state}", found, re.DOTALL)
    return made[1] if made is not None and is_plain_name(made[1]) else None


def hidden_beside(folder: str, state: State) -> list[str]:
    """Return the hidden folders beside a folder that were made for it; links are none."""
    parent, name = os.path.split(folder)
    with suppress(OSError), os.scandir(parent) as beside:
        return sorted(
            found.path
            for found in beside
            if hidden_of(found.name, state) == name and found.is_dir(follow_symlinks=False)
        )
    return []
