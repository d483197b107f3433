"""The peer LitData; records go in as text, because lists must all be of one length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import litdata
import orjson
from _litdata import convert
from _load_collate import collate, ids_of
from _load_side import BATCH, Loading

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def _decoded(lines: Sequence[bytes]) -> dict:
    return collate(list(map(orjson.loads, lines)))


def made(path: str, workers: int) -> Iterable[dict]:
    whole = litdata.StreamingDataset(path, shuffle=True)
    return litdata.StreamingDataLoader(
        whole, batch_size=BATCH, num_workers=workers, collate_fn=_decoded
    )


if __name__ == "__main__":
    Loading(made, ids_of, convert).serve()
