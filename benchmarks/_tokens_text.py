"""Text to tokenise: made-up words, some of them much more frequent than others, in sentences."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import orjson
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 7
EOS = "<|endoftext|>"
VOCABULARY = 8_000
_WORDS, _AT_A_TIME = 60_000, 1_000
_LONGEST, _SPREAD = 12_000, 0.8
_TYPICAL = 235
"""Words of the median document: with longer ones they are some 500 tokens on average."""
_TRAINED_ON = 5_000
_SHARDS = 4
_ONSETS = [*"bcdfghjklmnprstvw", "br", "ch", "dr", "fl", "gr", "pl", "qu", "sh", "st", "th", "tr"]
_VOWELS = [*"aeiouy", "ai", "ea", "ou"]
_CODAS = ["", "", "", *"nrstl", "nd", "ck", "ng"]
_SYLLABLE = (_ONSETS, _VOWELS, _CODAS)


def write_documents(folder: Path, documents: int) -> None:
    """Write documents as JSON Lines in a few files."""
    folder.mkdir()
    texts = enumerate(_documents(documents))
    for shard in range(_SHARDS):
        with (folder / f"part-{shard}.jsonl").open("wb") as file:
            stop = (shard + 1) * documents // _SHARDS
            for number, text in texts:
                record = {"id": number, "text": text}
                file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
                if number + 1 == stop:
                    break


def write_tokenizer(path: Path, documents: int) -> None:
    """Train a byte-level BPE on some documents, the same in every run, and keep it in a file."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_documents(min(documents, _TRAINED_ON)), trainer)
    tokenizer.save(str(path))


def _documents(count: int) -> Iterator[str]:
    """Yield documents; the first ones are the same however many there are."""
    chance = np.random.default_rng(SEED)
    words = np.array(_words(), object)
    # Zipf's law: the k-th word is as frequent as 1 / k.
    shares = np.cumsum(1 / np.arange(1, _WORDS + 1))
    for start in range(0, count, _AT_A_TIME):
        lengths = np.exp(chance.normal(np.log(_TYPICAL), _SPREAD, _AT_A_TIME)).astype(np.int64)
        lengths = np.clip(lengths, 1, _LONGEST)
        drawn = chance.random(int(lengths.sum())) * shares[-1]
        chosen = words[np.searchsorted(shares, drawn)]
        pieces = np.split(chosen, np.cumsum(lengths)[:-1])
        yield from (_sentences(list(piece)) for piece in pieces[: count - start])


def _sentences(words: list[str]) -> str:
    """Return words with a capital after every full stop, a paragraph after some."""
    for start in range(0, len(words), 14):
        words[start] = words[start].capitalize()
        if start:
            words[start - 1] += ".\n" if start % 70 == 0 else "."
        if start + 6 < len(words):
            words[start + 5] += ","
    return " ".join(words) + "."


def _words() -> list[str]:
    """Return different words, the short ones first, among them some numbers."""
    chance = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < _WORDS:
        syllables = chance.randint(1, 1 + len(found) * 4 // _WORDS + (len(found) > 400))
        word = "".join(chance.choice(part) for part in _SYLLABLE * syllables)
        found[str(chance.randrange(10_000)) if chance.random() < 0.02 else word] = None
    return list(found)
