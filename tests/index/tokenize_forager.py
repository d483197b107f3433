"""data-forager in a process of its own: `tokenize FOLDER SIZE`, or `read FOLDER`."""

from __future__ import annotations

import json
import os
import sys

os.environ["PYBASE_SUPPRESS_LEGACY_WARNINGS"] = "1"

import numpy as np
from data_forager.datasets.tokens import TokensDataset
from data_forager.indexers.tokenization_indexer import create_tokenize_and_index_jsonl_text_func

from tests.index.tokenize_samples import EOS, letters

if __name__ == "__main__":
    what, folder, *size = sys.argv[1:]
    if what == "tokenize":
        create_tokenize_and_index_jsonl_text_func(
            letters, EOS, folder, sample_size=int(size[0]) or None
        )()
    else:
        dataset = TokensDataset.create_from_index_on_filesystem(folder, token_dtype=np.uint16)
        print(json.dumps([dataset[number].tolist() for number in range(len(dataset))]))
