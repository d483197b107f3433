"""A corpus, and a tokenizer that is trained on it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from pathlib import Path

END = "<|endoftext|>"
WORDS = [
    "the",
    "river",
    "feeds",
    "a",
    "mill",
    "and",
    "the",
    "mill",
    "feeds",
    "the",
    "whole",
    "town",
]
TEXTS = [" ".join(WORDS[n % 5 : n % 5 + 1 + n % 6] * (1 + n % 4)) + f" {n}" for n in range(120)]


def corpus(folder: Path, texts: list[str] = TEXTS, files: int = 2) -> Path:
    """Write texts as JSON Lines into some files of a folder; return it."""
    folder.mkdir(parents=True)
    share = -(-len(texts) // files)
    for number in range(files):
        some = texts[number * share : (number + 1) * share]
        lines = (json.dumps({"text": text, "meta": {"body": text.upper()}}) for text in some)
        (folder / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def bpe(path: Path, end: str | None = END) -> Tokenizer:
    """Train a tokenizer, save it, and return it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=[end] if end else [],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.save(str(path))
    return tokenizer
