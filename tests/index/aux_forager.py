"""data-forager in a process of its own: `tokenize FOLDER SIZE`, or `read FOLDER`."""

from __future__ import annotations

import json
import os
import sys

os.environ["PYBASE_SUPPRESS_LEGACY_WARNINGS"] = "1"

from data_forager.datasets.tokens_with_aux import TokensWithAuxDataset
from data_forager.indexers.tokenization_indexer import create_tokenize_and_index_with_aux_func
from data_forager.sample_generators.aux import LossMaskGenerator, Part

from tests.index.tokenize_samples import EOS, letters


def parts_of(line: bytes) -> list[Part]:
    return [Part(**part) for part in json.loads(line)["parts"]]


if __name__ == "__main__":
    what, folder, *size = sys.argv[1:]
    if what == "tokenize":
        create_tokenize_and_index_with_aux_func(
            parts_of, letters, EOS, {"loss_mask": LossMaskGenerator()}, folder,
            sample_size=int(size[0]),
        )()  # fmt: skip
    else:
        dataset = TokensWithAuxDataset.create_from_index_on_filesystem(folder)
        samples = [dataset[number] for number in range(len(dataset))]
        print(json.dumps([{name: a.tolist() for name, a in s.items()} for s in samples]))
