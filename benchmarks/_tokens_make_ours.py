"""Penstock's side of tokenising: parse, tokenise, pack, write, index."""

from __future__ import annotations

import shutil

from _tokens_library import loaded
from _tokens_side import LENGTH
from _worker import serve

from penstock.index import create_tokenize_and_index_jsonl_text_func


def make(source: str, target: str, tokenizer: str, library: str, workers: int) -> int:
    """Make a token folder; return its tokens, those behind the last sample counted."""
    known = loaded(tokenizer, library)
    report = create_tokenize_and_index_jsonl_text_func(
        known.tokenizer,
        known.eos,
        source,
        output_base_path=target,
        sample_size=LENGTH,
        num_workers=workers,
        progress=False,
    )()
    return report.tokens + report.dropped


def clear(target: str, **_: object) -> None:
    """Forget what was made."""
    shutil.rmtree(target, ignore_errors=True)


if __name__ == "__main__":
    serve({"make": make, "clear": clear})
