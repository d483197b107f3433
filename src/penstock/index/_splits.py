"""Which split the name of a file speaks of, as hubs name them; and files that hold the same."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from penstock._words import counted, few
from penstock.errors import OptionError
from penstock.jsonl import COMPRESSED, without_compression

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.index._listing import Found, Listing

_SPLITS = {
    "train": ("training", "train"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("testing", "test", "evaluation", "eval"),
}
_NAMES = {word: split for split, words in _SPLITS.items() for word in words}
_WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(_NAMES)})(?![a-z])", re.IGNORECASE)
_PARTS = ("train", "test", "val", "dev", "-of-")
"""One of them is in every name that speaks of a split."""
_SHARD = re.compile(r"(\w+(?:\.\w+)*)-\d{5}-of-\d{5}")
_SHARDS_OF_ALL = frozenset({"data", "part", "shard"})
_REVISION = re.compile(r"(?:^|/)[0-9a-f]{40}/")
"""A folder of a hub's cache, which holds all files of one version."""
_SHOWN = 3


def split_of(path: str) -> str | None:
    """Return the split that a path below a folder speaks of; None where it names none, or several.

    The outermost folder that names one decides, then the name of the file.

    >>> [split_of(path) for path in ("data/train/a.csv", "en/c4-valid.0001.json", "test_user.csv")]
    ['train', 'validation', 'test']
    >>> split_of("data/train_sft-00000-of-00002.parquet"), split_of("latest/contest.csv")
    ('train_sft', None)
    """
    lower = path.lower()
    if not any(part in lower for part in _PARTS):  # As in most of millions of names.
        return None
    *folders, name = path.split("/")
    for part in (*folders, name):
        shard = _SHARD.match(part) if part is name else None
        if shard is not None and shard[1] not in _SHARDS_OF_ALL:
            return _NAMES.get(shard[1].lower(), shard[1])
        splits = {_NAMES[word.lower()] for word in _WORD.findall(part)}
        if len(splits) == 1:
            return splits.pop()
    return None


def files_of_split(listing: Listing, split: str) -> list[Found]:
    """Return the files of one split; raise where there are none."""
    relative = _relative_paths(listing)
    splits = [split_of(path) for path in relative]
    wanted = _NAMES.get(split.lower(), split)
    are_chosen = [one == wanted for one in splits]
    if not any(are_chosen):  # Another name, such as that of a language.
        parts = [path.partition(".")[0].split("/") for path in relative]
        are_chosen = [split in names for names in parts]
    chosen = [
        found for found, is_chosen in zip(listing.files, are_chosen, strict=True) if is_chosen
    ]
    if not chosen:
        known = few([f"{one} ({count:,})" for one, count in _counts(splits)], _SHOWN)
        has = f"there are files of {known}" if known else "no name speaks of a split"
        raise OptionError(
            f"split={split!r}: {listing.named[0]} has no file of that name: {has}.",
            remedy="A pattern chooses files by any name.",
        )
    return chosen


def doubts_about(listing: Listing) -> Iterator[str]:
    """Yield what may not be meant: files of several splits, and files that hold the same."""
    relative = _relative_paths(listing)
    if listing.split is None and (listing.folder is not None or listing.is_pattern):
        counts = _counts([split_of(path) for path in relative])
        if sum(_WORD.search(split) is not None for split, _ in counts) > 1:
            names = few([f"{split} ({counted(count, 'file')})" for split, count in counts], _SHOWN)
            one = next((split for split, _ in counts if split == "train"), counts[0][0])
            yield (
                f"its files are of several splits by their names, and all are read: {names}. "
                f"split={one!r} (--split {one}) reads one of them"
            )
    for first, other, why in _pairs(listing.files, relative):
        yield f"{other} {why} {first}: records are read twice. A pattern chooses files"


def _relative_paths(listing: Listing) -> list[str]:
    """Return the paths of all files below the base, of which there may be millions."""
    names = [found.entry.name for found in listing.files]
    begin = len(names[0]) - len(listing.relative(listing.files[0])) if names else 0
    return [name[begin:] for name in names]


def _counts(splits: Sequence[str | None]) -> list[tuple[str, int]]:
    return [*Counter(split for split in splits if split is not None).items()]


def _pairs(files: Sequence[Found], relative: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the first two files that hold the same, for each reason to think so."""
    is_packed = any(path.lower().endswith(COMPRESSED) for path in relative)
    reasons: dict[str, list[object]] = {
        "is the same file as": [found.entry.identity for found in files],
        "is, by its name, a copy of": [*map(without_compression, relative)] if is_packed else [],
        "is, by its folder, another version of": [_REVISION.sub("/", path) for path in relative],
    }
    for why, keys in reasons.items():
        if len({*keys}) == len(keys):
            continue
        seen: dict[object, str] = {}
        for key, path in zip(keys, relative, strict=True):
            if key is not None and seen.setdefault(key, path) is not path:
                yield seen[key], path, why
                break
