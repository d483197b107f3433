"""The peer data-forager, tokenising."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import redirect_stdout
from pathlib import Path

from _tokens_library import let_use_threads, loaded
from _tokens_side import LENGTH
from _worker import serve
from data_forager.indexers.tokenization_indexer import create_tokenize_and_index_jsonl_text_func

logging.disable(logging.DEBUG)  # It tells of every file that it opens.


def make(source: str, target: str, tokenizer: str, library: str, workers: int) -> int:
    """Make a token folder; return its tokens, those behind the last sample counted."""
    if workers:
        raise ValueError("it works in one process")
    let_use_threads(several=False)
    known = loaded(tokenizer, library)
    indexer = create_tokenize_and_index_jsonl_text_func(
        known.ids_of,
        known.eos,
        source,
        output_base_path=target,
        sample_size=LENGTH,
    )
    # Its bar cannot be turned off; here it costs the least.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        indexer()
    files = Path(target, "tokenized-samples").glob("*.bin")
    dropped = indexer._sample_generator._rest_tokens or ()  # noqa: SLF001 (it does not tell)
    return sum(file.stat().st_size for file in files) // 2 + len(dropped)


def clear(target: str, **_: object) -> None:
    """Forget what was made."""
    shutil.rmtree(target, ignore_errors=True)


if __name__ == "__main__":
    serve({"make": make, "clear": clear})
