"""States of a run: any JSON document may be handed to `load_state_dict`."""

from __future__ import annotations

import json
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock
from tests.fuzz._format import Door, Format

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fuzz._format import Values

_RECORDS = [{"n": n} for n in range(30)]
_PLAIN: tuple[Any, ...] = (False, True, "block")
_OWN = ("weights", "mixture")
"""Orders with which only their own states go on."""


class State(Format):
    """Loads a state in each kind of order, and goes on with it into the next epoch."""

    name = "state"
    rounds = (100, 10_000)
    always = 0

    def make(self, folder: Path) -> None:
        for kind in (*_PLAIN, *_OWN):
            loader = _loader(kind, skip=[3, (10, 14)])
            next(iter(loader))
            (folder / f"{kind}.json").write_text(json.dumps(loader.state_dict()))

    def is_metadata(self, name: str) -> bool:
        return False

    def doors(self, folder: Path, damaged: str) -> list[Door]:
        path = folder / damaged
        kinds = (path.stem,) if path.stem in _OWN else _PLAIN
        return [
            Door(f"{kind}, {changed}", partial(_resumed, path, kind, changed))
            for kind in kinds
            for changed in ("raise", "continue")
        ]


def _loader(kind: Any, **options: Any) -> penstock.DataLoader:
    source: Any = _RECORDS
    if kind == "weights":
        options = {**options, "weights": [n % 5 for n in range(len(_RECORDS))]}
    elif kind == "mixture":
        parts = {"a": penstock.open(_RECORDS[:20]), "b": penstock.open(_RECORDS[20:])}
        source = penstock.Mixture(parts, [(0, {"a": 2, "b": 1}), (9, {"a": 1, "b": 1})])
    else:
        options = {**options, "shuffle": kind}
    return penstock.DataLoader(
        source, {"n": "int64"}, batch_size=4, epochs=2, num_workers=0, output="arrow", **options
    )


def _resumed(path: Path, kind: Any, changed: Any) -> Values:
    try:
        state = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None  # Whoever keeps states reads them by tools of their own.
    loader = _loader(kind, on_changed=changed)
    loader.load_state_dict(state)
    found = []
    for batch in islice(loader, 40):
        ids = np.frombuffer(batch.schema.metadata[b"penstock.ids"], np.int64).tolist()
        rows = batch.column(0).to_pylist()
        found += [number for number, n in zip(ids, rows, strict=True) if n is None or number == n]
        if len(found) > 2 * len(_RECORDS):
            raise AssertionError("more records than two epochs have")
    if json.loads(json.dumps(loader.state_dict())) != loader.state_dict():
        raise AssertionError("the state is no JSON")
    return len(loader) >= 0
