"""Two epochs of json2vec over a JSON Lines file, printed as seconds of processor time.

It runs in the environment of json2vec.
"""

from __future__ import annotations

import json
import sys
import time

import json2vec
import polars as pl
from _schema_fields import fields
from loguru import logger


def main() -> None:
    path, size = sys.argv[1], int(sys.argv[2])
    logger.remove()
    model = json2vec.Model.from_schema(
        *fields(json2vec), d_model=8, n_layers=1, n_heads=2, batch_size=size
    )
    data = json2vec.PolarsDataModule(
        model=model,
        train=pl.read_ndjson(path),
        num_workers=0,
        persistent_workers=False,
        pin_memory=False,
        observation_buffer_size=1,
    )
    found = []
    for _ in range(2):
        began = time.process_time()
        for _ in data.dataloader("train"):
            pass
        found.append(time.process_time() - began)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
