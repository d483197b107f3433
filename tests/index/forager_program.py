"""data-forager in a process of its own: importing it sets up logging for the whole process."""

from __future__ import annotations

import json
import os
import sys

os.environ["PYBASE_SUPPRESS_LEGACY_WARNINGS"] = "1"

from data_forager.datasets.jsonl import JsonlDataset
from data_forager.indexers.jsonl_indexer import create_default_jsonl_indexer

if __name__ == "__main__":
    what, folder = sys.argv[1:]
    if what == "index":
        create_default_jsonl_indexer(folder)()
    else:
        dataset = JsonlDataset.create_from_index_on_filesystem(folder)
        print(json.dumps([dataset[number] for number in range(len(dataset))]))
