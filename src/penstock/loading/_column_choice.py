"""Whether batches come out of materialised columns, and why."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal

from penstock.datasets import columns_of, estimate_columns, has_columns
from penstock.errors import OptionError, PenstockError, StorageError, StorageTimeoutError
from penstock.loading._column_command import command_for
from penstock.loading._order_choice import first_gzip, lies_remote
from penstock.storage import Meter, metered

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.datasets import Source

_log = logging.getLogger("penstock.loading")
Materialize = Literal["auto"] | bool
_MOST_SECONDS = 60.0
_MOST_DISK = 0.1
"""Share of the free disk that is used without being asked."""
_DECODED = "decoded anew for each batch"


@dataclass(frozen=True, slots=True)
class Columns:
    """A choice that was made: the columns there are, those to build, or none."""

    source: Source
    """What batches are read from."""
    why: str
    are_used: bool = False
    to_build: pa.Schema | None = None
    are_needed: bool = False
    """Whether there is no run without them."""

    def built(self) -> Columns:
        """Return the choice with its columns, built now if they are not there.

        Those that nobody asked for are a convenience: if they cannot be made, records are decoded.
        """
        if self.to_build is None:
            return self
        began = time.monotonic()
        try:
            # What cannot be decoded is told of when its turn comes, just as without columns.
            source = self.source.materialize(self.to_build, progress=None, on_error="mask")
        except PenstockError as failure:
            if self.are_needed:
                raise
            return _without(self.source, failure)
        seconds = time.monotonic() - began
        return Columns(source, f"gathered; they were made in {seconds:.1f} s", are_used=True)


def choose_columns(
    source: Source,
    schema: pa.Schema | None,
    materialize: Materialize,
    *,
    shuffled: bool,
    patience: float,
) -> Columns:
    """Return where the fields of `schema` are read from; nothing is built.

    Remote storage that does not answer for `patience` seconds is not asked for columns.
    """
    if schema is None:
        return Columns(source, "none: batches are records as they are, or all their fields")
    if has_columns(source, schema):
        return Columns(source, "gathered; the source has them", are_used=True)
    if materialize is False:
        return Columns(source, f"{_DECODED}: materialize=False")
    if materialize == "auto" and not source.files:
        return Columns(source, f"{_DECODED}: the records are in memory")
    needs_them = shuffled and first_gzip(source) is not None
    try:
        there = _existing(source, schema, patience)
        if there is not None:
            return Columns(there, "gathered; they were there", are_used=True)
        if materialize is True:
            why = "made with the first batch: materialize=True"
            return Columns(source, why, to_build=schema, are_needed=True)
        return _if_cheap(source, schema, needs_them=needs_them)
    except PenstockError as failure:
        if materialize is True or needs_them:
            raise
        return _without(source, failure)


def _without(source: Source, failure: PenstockError) -> Columns:
    _log.warning(
        "columns cannot be made, and records are decoded for each batch (materialize=False does "
        "not try): %s",
        failure,
    )
    return Columns(source, f"{_DECODED}: columns cannot be made. {failure}")


def refuse_without_fields(materialize: Materialize, schema: pa.Schema | None) -> None:
    """Raise where columns are asked for, and nobody knows of what."""
    if materialize is True and schema is None:
        raise OptionError(
            "materialize=True needs to know the fields and their types: give them as encode, as in "
            "{'price': 'float32'}. Records as they are have no columns."
        )


def _existing(source: Source, schema: pa.Schema, patience: float) -> Source | None:
    if not lies_remote(source):
        return columns_of(source, schema)
    try:
        return _looked_for(source, schema, patience)
    except StorageError as why:
        # To look for them beside remote data is a convenience, and not worth a run.
        _log.warning("nobody can tell whether there are columns; records are decoded: %s", why)
        return None


def _looked_for(source: Source, schema: pa.Schema, patience: float) -> Source | None:
    """Look for columns in a thread of its own, for nobody can interrupt a read that hangs."""
    answer: SimpleQueue[Source | BaseException | None] = SimpleQueue()
    meter = Meter()

    def look() -> None:
        try:
            with metered(meter):
                answer.put(columns_of(source, schema))
        except BaseException as failure:  # noqa: BLE001 (raised in the caller's thread)
            answer.put(failure)

    threading.Thread(target=look, name="penstock-columns", daemon=True).start()
    while True:
        before = meter.counts()
        try:
            found = answer.get(timeout=patience)
        except Empty:
            if meter.counts() != before:
                continue  # Large ones take long to fetch.
            text = f"storage did not answer for {patience:g} s."
            raise StorageTimeoutError(text, path=source.files[0]) from None
        if isinstance(found, BaseException):
            raise found
        return found


def _if_cheap(source: Source, schema: pa.Schema, *, needs_them: bool) -> Columns:
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
    why = f"made with the first batch: {told}"
    return Columns(source, why, to_build=schema, are_needed=needs_them)


def _not_unasked(source: Source, schema: pa.Schema, why: str, *, needs_them: bool) -> Columns:
    command = command_for(source, schema)
    if needs_them:
        raise OptionError(
            f"{first_gzip(source)} is compressed with gzip, which can only be read from its "
            f"beginning: it is shuffled through columns, but {why}. Make them: materialize=True, "
            f"or once for all: {command}"
        )
    _log.info("%s; to make columns once, from which batches are gathered: %s", why, command)
    return Columns(source, f"{_DECODED}: {why}. To make them: {command}")


def _free_disk(folder: str) -> int:
    """Return the free bytes where a folder is, or will be."""
    path = Path(folder)
    return shutil.disk_usage(next(p for p in (path, *path.parents) if p.is_dir())).free
