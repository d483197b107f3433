"""The names of an index's files."""

from __future__ import annotations

import re
import shlex

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


def rebuilding(base: str, *, tokens: bool | None) -> str:
    """Return the command that builds the index of a base again.

    `tokens`: whether it is one of tokens; None if unknown, and both commands are named.
    """
    again = f"penstock tokenize SRC {shlex.quote(base)} --overwrite"
    if is_remote(base):  # In an object store nothing is replaced.
        again = f"remove the tokens in {base}, and penstock tokenize SRC {shlex.quote(base)}"
    records = "penstock index PATH --overwrite"
    if tokens is None:
        return f"{records}; or if it was one of tokens: {again}"
    return again if tokens else records


def is_of_tokens(left: bytes) -> bool | None:
    """Whether the rest of a damaged index, or its list of files, is of tokens; None if unknown."""
    if b'"kind": "tokens"' in left or b".bin\n" in left:
        return True
    return False if left.strip(b"{}[] \n") else None


def refuse_unnamable(relative: str) -> None:
    """Raise for a file that an index cannot name: it lists one name a line, in UTF-8."""
    if re.search("[\n\ud800-\udfff]", relative):
        raise OptionError(
            f"{relative!r}: an index cannot name a file with a newline in its name, or whose name "
            "is not UTF-8. Rename it."
        )
