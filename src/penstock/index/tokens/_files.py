"""The names of token files: one for each text file, all different."""

from __future__ import annotations

import posixpath
from collections import Counter
from typing import TYPE_CHECKING

from penstock.errors import OptionError
from penstock.index._formats import LINES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

POSTFIX = "tokenized-samples"


def token_file_names(paths: Sequence[str], postfix: str = POSTFIX) -> list[str]:
    """Return the name of the token file of each text file, by their relative paths.

    The stem is the name if no other file has it; else folder and stem, and if these are not unique
    either, the whole path. Case does not count, as on some file systems.

    >>> token_file_names(["a.jsonl", "b/c.jsonl.zst"])
    ['a-tokenized-samples.bin', 'c-tokenized-samples.bin']
    >>> token_file_names(["a.jsonl", "b/a.jsonl", "c/a.jsonl", "c/A.jsonl.gz"], "t")
    ['a-t.bin', 'b/a-t.bin', 'c/a.jsonl-t.bin', 'c/A.jsonl.gz-t.bin']
    """
    if not postfix or "/" in postfix or "\n" in postfix:
        raise OptionError(
            f"file_name_postfix={postfix!r}: expected a part of a file's name, as {POSTFIX!r}."
        )
    ways = [_names(path) for path in paths]
    levels = [0] * len(paths)
    while True:
        names = [way[level] for way, level in zip(ways, levels, strict=True)]
        counts = Counter(name.casefold() for name in names)
        taken = [
            number
            for number, name in enumerate(names)
            if counts[name.casefold()] > 1 and levels[number] < len(ways[number]) - 1
        ]
        if not taken:
            return [f"{name}-{postfix}.bin" for name in names]
        for number in taken:
            levels[number] += 1


def free_name(path: str, taken: Iterable[str], postfix: str = POSTFIX) -> str:
    """Return the name of one more token file by the same rule; `taken` are the others.

    >>> free_name("b/a.jsonl", ["a-t.bin"], "t")
    'b/a-t.bin'
    """
    token_file_names([], postfix)
    used = {name.casefold() for name in taken}
    names = [f"{name}-{postfix}.bin" for name in _names(path)]
    return next((name for name in names if name.casefold() not in used), names[-1])


def _names(path: str) -> tuple[str, ...]:
    """Return possible names of a token file, the shortest first."""
    folder, base = posixpath.split(path)
    stem = stem_of(base)
    return stem, posixpath.join(folder, stem), path


def stem_of(name: str) -> str:
    """Return a file's name without its JSON Lines suffix.

    >>> stem_of("a.b.JSONL"), stem_of("a.jsonl.zst"), stem_of("a.txt")
    ('a.b', 'a', 'a')
    """
    for suffix in sorted(LINES.endings, key=len, reverse=True):
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return posixpath.splitext(name)[0]
