"""Penstock's side of token batches."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from _tokens_data import EOS, tokens_of
from _tokens_side import BATCH, LENGTH, Rows, ids_of

import penstock
from penstock.index import create_tokenize_and_index_jsonl_text_func

if TYPE_CHECKING:
    from penstock import DataLoader
    from penstock.datasets import Source


def convert(source: str, target: str) -> None:
    create_tokenize_and_index_jsonl_text_func(
        tokens_of,
        EOS,
        source,
        output_base_path=target,
        sample_size=LENGTH,
        num_workers=0,
        progress=False,
    )()


def made(
    path: str,
    workers: int | str,
    *,
    length: int = LENGTH,
    stride: int | None = None,
    labels: bool = False,
) -> DataLoader:
    encode = penstock.Tokens(length, stride) if labels else None
    return penstock.DataLoader(
        _opened(path), encode, batch_size=BATCH, shuffle=True, num_workers=workers
    )


@cache
def _opened(path: str) -> Source:
    return penstock.open(path)


if __name__ == "__main__":
    Rows(made, ids_of, convert).serve()
