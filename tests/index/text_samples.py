"""Texts to tokenise, and small real tokenizers made from them."""

from __future__ import annotations

import functools
import os
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

import tiktoken
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EOS = "<|endoftext|>"

ODD_TEXTS = [
    "",
    " ",
    "\n",
    "  \t\r\n  \n",
    "a",
    "\u00e4\u00f6\u00fc \u00df \u2014 \u20ac 1,000.50 \u201equoted\u201c",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3002 \u4e2d\u6587 \ud55c\uad6d\uc5b4",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \U0001d518",
    "e\u0301 is not \u00e9, and \ufeff is a mark",
    "nul \x00 bell \x07 escape \x1b delete \x7f",
    'quotes " and \\ back \\\\ slashes \\n \\u00e9 / \b\f',
    EOS,
    f"before{EOS}after",
    f" {EOS} {EOS}{EOS}\n",
    "<|endoftext", "|>", "</s>", "<s>", "[SEP]",
    "a" * 300,
    "line one\nline two\r\nline three\u2028line four\x85line five",
]  # fmt: skip
"""Texts on which shortcuts go wrong: nothing, white space, scripts, special tokens in the text."""

_PROSE = """
the a of and to in is that it was for on are with as at be this from have or by one had not but
what all were when we there can an your which their said if do will each about how tokens records
sample stream river water pipe turbine order shuffle batch epoch index 3.14 2024 don't e.g. (see
below) \u00fcber stra\u00dfe \u2014 caf\u00e9 \u0441\u043b\u043e\u0432\u043e \u6c34
"""


def sample_texts(count: int, seed: int = 0, words: int = 60) -> list[str]:
    """Return texts of up to so many words, the same ones for the same arguments.

    Every tenth is one of `ODD_TEXTS`.
    """
    draw, vocabulary = random.Random(seed), _PROSE.split()
    texts = []
    for number in range(count):
        if number % 10 == 9:
            texts.append(ODD_TEXTS[number // 10 % len(ODD_TEXTS)])
        else:
            length = draw.randrange(words + 1)
            chosen = (draw.choice(vocabulary) for _ in range(length))
            texts.append(" ".join(chosen) + draw.choice(["", ".", "!\n", "\n\n"]))
    return texts


def trained_bpe(texts: Iterable[str] | None = None) -> tokenizers.Tokenizer:
    """Return a byte-level BPE of about 600 tokens, `<|endoftext|>` the first, trained once.

    Without texts it is trained on some of `sample_texts`. Do not change the object: it is shared.
    """
    return _trained(tuple(sample_texts(200) if texts is None else texts))


@functools.cache
def _trained(texts: tuple[str, ...]) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    with _one_thread():
        tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@contextmanager
def _one_thread() -> Iterator[None]:
    # Once its threads have worked, the library complains about every fork of the process.
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@functools.cache
def tiktoken_from(tokenizer: tokenizers.Tokenizer) -> tiktoken.Encoding:
    """Return an encoding of tiktoken with the tokens and ids of a byte-level BPE."""
    special = {
        token.content: number for number, token in tokenizer.get_added_tokens_decoder().items()
    }
    bytes_of = _bytes_of_letters()
    ranks = {
        bytes(bytes_of[letter] for letter in token): number
        for token, number in tokenizer.get_vocab(with_added_tokens=False).items()
        if token not in special
    }
    return tiktoken.Encoding(
        "sample",
        pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks=ranks,
        special_tokens=special,
    )


def _bytes_of_letters() -> dict[str, int]:
    """Return which byte each letter of a byte-level vocabulary stands for."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain}
    return letters | {chr(256 + number): byte for number, byte in enumerate(others)}
