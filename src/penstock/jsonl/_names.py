"""Names of files: shard numbers, compression, and which files of a directory are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from natsort import natsort_keygen, ns

from penstock.errors import OptionError
from penstock.storage import without_query

T = TypeVar("T")
Compression = Literal["zstd", "gzip", "bz2"]

SHARD_EXTENSIONS = (".jsonl", ".jsonl.zst", ".jsonl.zstd")
SEQUENTIAL: frozenset[str] = frozenset({"gzip", "bz2"})
"""Compressions that can only be read from the beginning of a file."""
_COMPRESSIONS: dict[str, Compression] = {
    ".zst": "zstd",
    ".zstd": "zstd",
    ".gz": "gzip",
    ".bz2": "bz2",
}
COMPRESSED = tuple(_COMPRESSIONS)
"""Endings of the names of compressed files."""
_OTHER_FORMATS = (
    ".parquet", ".csv", ".tsv", ".feather", ".arrow", ".ipc", ".orc", ".avro", ".json",
)  # fmt: skip
"""Names that promise a format which this release does not write."""
_READ = (".jsonl", *(f".jsonl{end}" for end in COMPRESSED))
_SHARD = re.compile(r"part-(\d+)\.jsonl(?:\.zstd?)?", re.IGNORECASE)
_NUMBERED = re.compile(r"part-(\d+)\.jsonl(?:\..+)?", re.IGNORECASE)
_natural = natsort_keygen(alg=ns.IGNORECASE)


def compression_of(path: str) -> Compression | None:
    """Return how a file of this name is compressed; None for plain text.

    >>> compression_of("a/part-00000.jsonl.zst"), compression_of("c4.json.gz")
    ('zstd', 'gzip')
    """
    lower = without_query(path).lower()
    return _COMPRESSIONS.get(lower[lower.rfind(".") :])


def without_compression(path: str) -> str:
    """Return a name without the ending that says how its file is compressed, in lower case.

    >>> without_compression("C4.json.gz")
    'c4.json'
    """
    lower = without_query(path).lower()
    return next((lower.removesuffix(end) for end in COMPRESSED if lower.endswith(end)), lower)


def is_jsonl(path: str) -> bool:
    """Whether a file of a directory is read as JSON Lines."""
    return without_query(path).lower().endswith(_READ)


def names_file(path: str) -> bool:
    """Whether a path to write to names a file rather than a directory; other formats raise."""
    bare = without_compression(path)
    if bare.endswith(_OTHER_FORMATS) or path.startswith("odps://"):
        raise OptionError(
            f"cannot write {path}: this release writes .jsonl and .ndjson files, plain or with "
            f"{', '.join(COMPRESSED)}, and directories."
        )
    return bare.endswith((".jsonl", ".ndjson"))


def shard_name(number: int, extension: str) -> str:
    """Return the name of a shard.

    >>> shard_name(7, ".jsonl.zst")
    'part-00007.jsonl.zst'
    """
    return f"part-{number:05d}{extension}"


def checked_extension(extension: str) -> str:
    """Return the extension, or say which ones shards may have."""
    if extension not in SHARD_EXTENSIONS:
        message = f"shard_extension={extension!r}: expected one of {', '.join(SHARD_EXTENSIONS)}."
        raise OptionError(message)
    return extension


def next_number(names: Iterable[str]) -> int:
    """Return the number after the highest one present, whatever the extension and the case.

    >>> next_number(["part-00000.jsonl", "PART-00004.JSONL.zst", "notes.txt"])
    5
    """
    matches = (_NUMBERED.fullmatch(base_name(name)) for name in names)
    return max((int(match[1]) for match in matches if match), default=-1) + 1


def in_reading_order(items: Iterable[T], name_of: Callable[[T], str]) -> list[T]:
    """Return what is read of a directory: shards by number, then other files in natural order.

    >>> in_reading_order(["b.jsonl", "part-10.jsonl", "part-9.jsonl", "_x.jsonl", "n.txt"], str)
    ['part-9.jsonl', 'part-10.jsonl', 'b.jsonl']
    """
    read = [i for i in items if is_jsonl(name_of(i)) and base_name(name_of(i))[0] not in "._"]

    def key(item: T) -> tuple[object, ...]:
        name = base_name(name_of(item))
        shard = _SHARD.fullmatch(name)
        return (0, int(shard[1]), name) if shard else (1, _natural(name), name)

    return sorted(read, key=key)


def base_name(name: str) -> str:
    return name.rpartition("/")[2]
