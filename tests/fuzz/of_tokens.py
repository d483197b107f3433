"""Token folders: packed both ways with borders, documents, trained in part, of another tool."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.datasets.token_folders import (
    as_data_forager,
    some_documents,
    write_best_fit,
    write_concat,
    write_documents,
)
from tests.fuzz._rows import TokenRows
from tests.index.tokenize_samples import indexer

if TYPE_CHECKING:
    from pathlib import Path


class Tokens(TokenRows):
    """Damages tokens, places, borders and metadata."""

    name = "tokens"
    rounds = (100, 35_000)

    def make(self, folder: Path) -> None:
        texts = some_documents(2, 4, most=12)
        write_concat(folder / "concat", texts, 8, pad=True)
        whole = [[*document[:3], 0] for text in texts for document in text]
        write_best_fit(folder / "fit", [whole[at : at + 2] for at in range(0, 8, 2)], 8)
        write_documents(folder / "documents", texts, "uint32")
        rows = [{"asked": "x" * n, "said": "y" * (7 - n)} for n in range(7)]
        options = {"template": "{asked} {said}", "sample_size": 8}
        indexer(input_base_path=rows, output_base_path=folder / "trained", **options)()
        as_data_forager(write_concat(folder / "foreign", texts, 8))
        for path in folder.rglob("*.bin"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
