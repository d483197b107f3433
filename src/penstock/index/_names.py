"""The names of an index's files, and of its folder while it is not there yet."""

from __future__ import annotations

import os
import re
import secrets
import shlex
from contextlib import suppress
from typing import Literal

from penstock.errors import OptionError
from penstock.storage import is_remote

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
    """Return the command that makes an index of what lies below a base anew.

    `tokens`: whether it is one of tokens; None where nobody can tell, and both are named.
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
    """Raise for a file that an index cannot name: it has a name a line, in UTF-8."""
    if "\n" in relative:
        raise OptionError(
            f"{relative!r}: an index cannot name a file with a newline in it. Rename it."
        )
    if any("\ud800" <= letter <= "\udfff" for letter in relative):
        raise OptionError(
            f"{relative!r}: an index cannot name a file whose name is not UTF-8. Rename it."
        )


def hidden_name(name: str, state: State, key: str | None = None) -> str:
    """Return a name for a folder on its way (`tmp`), or for the one that it replaces (`old`).

    `key`, 16 hexadecimal digits, makes a name that is found again.
    """
    return f".{name}.{key or secrets.token_hex(8)}.penstock-index-{state}"


def is_hidden(found: str, name: str, state: State) -> bool:
    """Whether a name was made by `hidden_name` for this one."""
    return (
        re.fullmatch(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}\.penstock-index-{state}", found)
        is not None
    )


def being_replaced(folder: str) -> bool:
    """Whether an old index was just put aside, so that a new one is about to appear."""
    parent, name = os.path.split(folder)
    with suppress(OSError):
        return any(
            is_hidden(found, name, "old")
            or (is_hidden(found, name, "tmp") and os.path.exists(f"{parent}/{found}/{PUT_ASIDE}"))
            for found in os.listdir(parent)
        )
    return False
