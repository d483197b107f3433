"""The reference of tokenising: a library alone, texts in memory, nothing kept."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

# Asked when its threads begin, so before the library is there.
os.environ["RAYON_NUM_THREADS"] = "2"

import orjson
from _tokens_library import Known, let_use_threads, loaded
from _worker import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

_THREADS = 2


def _of_one(encode: Callable[[list[str]], list]) -> Callable[[str], Sized]:
    return lambda text: encode([text])[0]


def _without_check(known: Known) -> Callable[[str], Sized]:
    encode = known.tokenizer.encode_to_numpy
    return lambda text: encode(text, disallowed_special=())


# Of the objects that come back only the length is taken: a list of ids would cost more.
_ONE: dict[str, dict[str, Callable[[Known], Callable[[str], Sized]]]] = {
    "tokenizers": {
        "encode": lambda known: known.tokenizer.encode,
        "encode_batch_fast of one": lambda known: _of_one(known.tokenizer.encode_batch_fast),
    },
    "tiktoken": {
        "encode_ordinary": lambda known: known.tokenizer.encode_ordinary,
        "encode_to_numpy": _without_check,
    },
}
"""The calls of each library for one document."""


def one(source: str, tokenizer: str, library: str, call: str) -> int:
    """Encode one document after the other; return how many tokens there were, EOS counted."""
    let_use_threads(several=False)
    encode = _ONE[library][call](loaded_once(tokenizer, library))
    texts = _texts(source)
    return len(texts) + sum(len(encode(text)) for text in texts)


def many(source: str, tokenizer: str, library: str) -> int:
    """Encode all documents by the library's own call for many, on two threads."""
    let_use_threads(several=True)
    known, texts = loaded_once(tokenizer, library), _texts(source)
    if library == "tokenizers":
        found = known.tokenizer.encode_batch_fast(texts)
    else:
        found = known.tokenizer.encode_ordinary_batch(texts, num_threads=_THREADS)
    return len(texts) + sum(map(len, found))


def prepare(source: str, tokenizer: str, library: str, **_: object) -> None:
    """Read what is encoded, so that this is no part of the time."""
    loaded_once(tokenizer, library)
    _texts(source)


def calls(library: str) -> list[str]:
    """Return the names of the calls for one document."""
    return list(_ONE[library])


loaded_once = cache(loaded)


@cache
def _texts(source: str) -> list[str]:
    files = sorted(Path(source).glob("*.jsonl"))
    lines = (line for file in files for line in file.read_bytes().splitlines())
    return [orjson.loads(line)["text"] for line in lines]


if __name__ == "__main__":
    serve({"one": one, "many": many, "prepare": prepare, "calls": calls})
