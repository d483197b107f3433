"""The columns that a run is tried with: those that are there, or some for this one look."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.batch import FieldEncoder
from penstock.datasets import columns_of, estimate_columns
from penstock.errors import BadRecordsError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.cli.bench._advice import Facts
    from penstock.datasets import Source

_FEW_SECONDS = 5.0
_SMALL_SHARE = 0.1
"""Of what is free in the directory for temporary files."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The same records with columns of all fields."""

    source: Source
    seconds: float | None
    """What it took to make them; None where they were there."""


@contextmanager
def columns_for(
    source: Source, types: Mapping[str, str], facts: Facts
) -> Iterator[Gathered | None]:
    """Give the records with columns, or None where it would take long to make them."""
    if not types:
        yield None
        return
    schema = _schema(types)
    there = columns_of(source, schema)
    if there is not None:
        yield Gathered(there, None)
        return
    cost = estimate_columns(source, schema)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        room = _SMALL_SHARE * shutil.disk_usage(folder).free
        if facts.is_remote or cost.seconds > _FEW_SECONDS or 2 * cost.bytes > room:
            yield None
            return
        began = time.monotonic()
        try:
            made = source.materialize(schema, folder, progress=False, on_error="mask")
        except (BadRecordsError, StorageError):
            yield None  # The runs that decode tell what is wrong with records.
            return
        yield Gathered(made, time.monotonic() - began)


def _schema(types: Mapping[str, str]) -> pa.Schema:
    return pa.schema(list(FieldEncoder(types).fields.items()))
