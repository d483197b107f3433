"""Token folders to load from: random tokens, and in front of each sample its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from _tokens_side import BATCH, LENGTH

if TYPE_CHECKING:
    from pathlib import Path

EOS = 0
_SAMPLES = 64
"""That one document fills, the token that ends it counted in."""
FILES = 8


def documents_of(tokens: int) -> int:
    """Return how many documents are about so many tokens; they fill whole batches."""
    return max(1, tokens // (_SAMPLES * LENGTH * FILES)) * FILES


def samples_of(documents: int) -> int:
    """Return how many samples documents fill: whole batches."""
    samples = documents * _SAMPLES
    if samples % BATCH:
        raise ValueError(f"{samples} samples are no whole number of batches of {BATCH}")
    return samples


def write_numbers(folder: Path, documents: int, files: int) -> None:
    """Write JSON Lines whose texts are the numbers that `tokens_of` knows, in so many files."""
    folder.mkdir()
    for file in range(files):
        numbers = range(file * documents // files, (file + 1) * documents // files)
        lines = "".join(f'{{"text": "{number}"}}\n' for number in numbers)
        (folder / f"part-{file}.jsonl").write_text(lines, encoding="ascii")


def tokens_of(text: str) -> np.ndarray:
    """Return the tokens of a document, by its number."""
    document = int(text)
    chance = np.random.default_rng(document)
    tokens = chance.integers(0, 1 << 16, (_SAMPLES, LENGTH), dtype=np.uint16)
    samples = np.arange(document * _SAMPLES, (document + 1) * _SAMPLES)
    tokens[:, 0], tokens[:, 1] = samples & 0xFFFF, samples >> 16
    return tokens.reshape(-1)[:-1]
