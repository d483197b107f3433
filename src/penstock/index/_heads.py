"""What the first bytes of files say, where a name leaves several formats open."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING, cast

from penstock.decode import decode_as_json
from penstock.errors import CorruptFileError, OptionError
from penstock.index._formats import FORMATS, Format, format_by_bytes, format_named
from penstock.jsonl import BOM, HEAD_BYTES, compression_of, decompressed, refuse_no_text
from penstock.storage import without_query

if TYPE_CHECKING:
    from penstock.index._listing import Found

_HEAD_BYTES = 4096
_BLOCK_BYTES = 64 << 10
_AT_ONCE = 16


def head_of(found: Found, size: int = _HEAD_BYTES) -> bytes:
    """Return the first bytes of a file's text; of a damaged one, those that can be read.

    A file of a kind that is not read here raises.
    """
    with found.open() as file:
        if compression_of(found.path) is None:
            text = file.read_at(0, min(size, file.size))
            refuse_no_text(found.path, text[:HEAD_BYTES])
            return text
        text = b""
        blocks = cast("Generator[bytes]", decompressed(file, _BLOCK_BYTES))
        with suppress(CorruptFileError), closing(blocks):
            for block in blocks:
                text += block
                if len(text) >= size:
                    break
        return text[:size]


def format_by_head(found: Found) -> Format | None:
    """Return the format that the first bytes of a file say, or None.

    Files that are not read here raise, and so does an object over several lines: its records, if it
    has any, lie somewhere inside.
    """
    head = head_of(found) if found.entry.size else b""
    row = format_by_bytes(head)
    if row is not None and row.is_lines and is_document(head):
        raise OptionError(
            f"{found.path} holds a JSON object over several lines. Records are lines, or elements "
            "of an array: write an object a line (jq -c . FILE), or the list inside of the object "
            "that holds them (jq -c '.NAME[]' FILE)."
        )
    is_packed = compression_of(found.path) is not None
    return None if row is None or (is_packed and not row.compressions) else row


def is_document(head: bytes) -> bool:
    r"""Whether a text begins with an object over several lines, as programs print it for people.

    >>> is_document(b'{\n  "a": 1\n}'), is_document(b'{"a": 1}\n{"a": 2}\n')
    (True, False)
    """
    lines = [one for line in head.removeprefix(BOM).splitlines() if (one := line.strip())]
    first, *others = lines or [b""]
    if not others or not first.startswith(b"{"):
        return False
    try:
        decode_as_json(first)
    except ValueError:
        return first.endswith((b"{", b"[", b",", b":")) or not others[0].startswith(b"{")
    return False


def open_by_name(name: str) -> list[Format]:
    """Return the formats that a file of this name may have."""
    lower = without_query(name).lower()
    return [row for row in FORMATS if row.folder is None and lower.endswith(row.endings)]


def check_heads(files: Sequence[Found], kind: str) -> None:
    """Raise for a file of another format than `kind`, if its name leaves that open."""
    asked = [one for one in files if len(open_by_name(one.entry.name)) > 1]
    if not asked:
        return
    expected = format_named(kind)
    with ThreadPoolExecutor(_AT_ONCE, "penstock-heads") as pool:
        for one, row in zip(asked, pool.map(format_by_head, asked), strict=True):
            if row is not None and row is not expected and expected is not None:
                raise OptionError(
                    f"{one.path} holds {row.title}, where {expected.title} are expected: by files "
                    "beside it, or by the format that was given. A source has one format: give "
                    "that of this file, or choose files of one."
                )
