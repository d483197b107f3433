"""Whether batches come out of materialised columns, and why."""

from __future__ import annotations

import logging
import shlex
import shutil
import time
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.datasets import columns_of, estimate_columns, has_columns, type_text
from penstock.errors import OptionError, StorageError
from penstock.loading._order_choice import first_gzip, lies_remote

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.datasets import Source

_log = logging.getLogger("penstock.loading")
Materialize = Literal["auto"] | bool
_MOST_SECONDS = 60.0
_MOST_DISK = 0.1
"""Share of the free disk that is used without being asked."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A choice that was made: the columns there are, those to build, or none."""

    source: Source
    """What batches are read from."""
    why: str
    are_used: bool = False
    to_build: pa.Schema | None = None

    def built(self) -> Columns:
        """Return the choice with its columns, built now if they are not there."""
        if self.to_build is None:
            return self
        began = time.monotonic()
        # What cannot be decoded is told of when its turn comes, just as without columns.
        source = self.source.materialize(self.to_build, progress=None, on_error="mask")
        seconds = time.monotonic() - began
        return Columns(source, f"gathered; they were made in {seconds:.1f} s", are_used=True)


def choose_columns(
    source: Source, schema: pa.Schema | None, materialize: Materialize, *, shuffled: bool
) -> Columns:
    """Return where the fields of `schema` are read from; nothing is built."""
    if schema is None:
        return Columns(source, "none: batches are records as they are, or all their fields")
    if has_columns(source, schema):
        return Columns(source, "gathered; the source has them", are_used=True)
    if materialize is False:
        return Columns(source, "decoded anew for each batch: materialize=False")
    if materialize == "auto" and not source.files:
        return Columns(source, "decoded anew for each batch: the records are in memory")
    there = _existing(source, schema)
    if there is not None:
        return Columns(there, "gathered; they were there", are_used=True)
    if materialize is True:
        return Columns(source, "made with the first batch: materialize=True", to_build=schema)
    needs_them = shuffled and first_gzip(source) is not None
    if lies_remote(source):
        why = "remote data is decoded unasked only as it is needed"
        return _not_unasked(source, schema, why, needs_them=needs_them)
    cost = estimate_columns(source, schema)
    told = f"about {cost.seconds:.1f} s once, and {cost.bytes / 1e6:,.0f} MB"
    if cost.seconds > _MOST_SECONDS:
        why = f"columns take {told}, more than {_MOST_SECONDS:.0f} s"
        return _not_unasked(source, schema, why, needs_them=needs_them)
    if cost.bytes > _MOST_DISK * _free_disk(cost.folder):
        why = f"columns take {told}, more than {_MOST_DISK:.0%} of the free disk"
        return _not_unasked(source, schema, why, needs_them=needs_them)
    return Columns(source, f"made with the first batch: {told}", to_build=schema)


def refuse_without_fields(materialize: Materialize, schema: pa.Schema | None) -> None:
    """Raise where columns are asked for, and nobody knows of what."""
    if materialize is True and schema is None:
        raise OptionError(
            "materialize=True needs to know the fields and their types: give them as encode, as in "
            "{'price': 'float32'}. Records as they are have no columns."
        )


def _existing(source: Source, schema: pa.Schema) -> Source | None:
    try:
        return columns_of(source, schema)
    except StorageError as why:
        # To look for them beside remote data is a convenience, and not worth a run.
        _log.warning("nobody can tell whether there are columns; records are decoded: %s", why)
        return None


def _not_unasked(source: Source, schema: pa.Schema, why: str, *, needs_them: bool) -> Columns:
    command = _command(source, schema)
    if needs_them:
        raise OptionError(
            f"{first_gzip(source)} is compressed with gzip, which can only be read from its "
            f"beginning: it is shuffled through columns, but {why}. Make them: materialize=True, "
            f"or once for all: {command}"
        )
    _log.info("%s; to make columns once, from which batches are gathered: %s", why, command)
    return Columns(source, f"decoded anew for each batch: {why}. To make them: {command}")


def _command(source: Source, schema: pa.Schema) -> str:
    """Return what a user types to make the columns, as far as the files tell."""
    names = source.files
    # Not `commonpath`, which takes s3:// for a folder.
    parts = zip(*(name.split("/") for name in names), strict=False)
    path = "/".join(some[0] for some in takewhile(lambda some: len(set(some)) == 1, parts))
    fields = ",".join(f"{field.name}:{type_text(field.type)}" for field in schema)
    return f"penstock materialize {shlex.quote(path)} {shlex.quote(fields)}"


def _free_disk(folder: str) -> int:
    """Return the free bytes where a folder is, or will be."""
    path = Path(folder)
    return shutil.disk_usage(next(p for p in (path, *path.parents) if p.is_dir())).free
