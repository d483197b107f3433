"""The same tokenizer as two libraries have it, from one file: also in environments of peers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tiktoken
import tokenizers

if TYPE_CHECKING:
    from collections.abc import Callable

LIBRARIES = ("tokenizers", "tiktoken")
_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How byte-level BPE splits a text before it merges, in the words of tiktoken."""


class Known(NamedTuple):
    """A tokenizer."""

    tokenizer: tokenizers.Tokenizer | tiktoken.Encoding
    eos: int
    ids_of: Callable[[str], list[int]]
    """From a text to a list of its ids."""


def loaded(path: str, library: str) -> Known:
    """Return the tokenizer of a file as one of the libraries."""
    tokenizer = tokenizers.Tokenizer.from_file(path)
    (eos,) = tokenizer.get_added_tokens_decoder()
    if library == "tokenizers":
        return Known(tokenizer, eos, lambda text: tokenizer.encode(text).ids)
    encoding = _encoding(path, tokenizer.id_to_token(eos), eos)
    return Known(encoding, eos, encoding.encode_ordinary)


def let_use_threads(*, several: bool) -> None:
    """Let `tokenizers` use threads, or only that of the caller; it asks at every call."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if several else "false"


def _encoding(path: str, name: str, eos: int) -> tiktoken.Encoding:
    """Return a file's tokens with the same ids; a merge's rank is its id."""
    vocabulary = json.loads(Path(path).read_text("utf-8"))["model"]["vocab"]
    bytes_of = _bytes_of_letters()
    ranks = {
        bytes(bytes_of[letter] for letter in token): number
        for token, number in vocabulary.items()
        if number != eos
    }
    return tiktoken.Encoding(
        "benchmark", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={name: eos}
    )


def _bytes_of_letters() -> dict[str, int]:
    """Return which byte each letter of a byte-level vocabulary stands for."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain}
    return letters | {chr(256 + number): byte for number, byte in enumerate(others)}
