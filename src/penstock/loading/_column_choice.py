"""Whether batches come out of materialised columns, and why."""

from __future__ import annotations

import logging
import re
import shlex
import threading
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from penstock._words import warn_once
from penstock.datasets import (
    bare_origins,
    columns_of,
    estimate_columns,
    gone_columns,
    missing_columns,
    type_text,
    typed_schema,
    without_columns,
)
from penstock.errors import (
    BadRecordsError,
    OptionError,
    PenstockError,
    StorageError,
    StorageTimeoutError,
)
from penstock.jsonl import compression_of
from penstock.loading._order_choice import (
    first_sequential,
    first_stream,
    lies_remote,
)
from penstock.storage import Meter, free_bytes, metered

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.datasets import Source
    from penstock.loading._feed import FeedOptions

_log = logging.getLogger("penstock.loading")
_MOST_SECONDS = 60.0
_MOST_DISK = 0.1
"""Share of the free disk that "auto" may use."""
_MOST_COLUMNS = 1_000
"""Each is a folder of two to four files."""
_MANY_COLUMNS, _FEW_RECORDS = 100, 1_000
"""More columns of fewer records do not pay: a column takes 2 to 10 ms even if it is empty, and
decoding a value takes a microsecond."""
_AMBIGUOUS = re.compile(r"[,:]|^\s|\s$")
"""In a name, what stands between names and types in a list of them."""
_DECODED = "decoded anew for each batch"
_LOADER_REMEDY = (
    "Give the fields types that hold their values; or leave such records out: skip=; or have rows "
    "with valid=False for as many as there are: on_error='mask', max_bad=. penstock check PATH "
    "names bad lines."
)


@dataclass(frozen=True, slots=True)
class Columns:
    """A choice: use the columns that exist, build them, or do without."""

    source: Source
    """Batches are read from it."""
    why: str
    are_used: bool = False
    to_build: pa.Schema | None = None
    are_needed: bool = False
    """Whether the run cannot do without them."""

    def built(self, most_bad: int = 0, *, decodes_misfits: bool = False) -> Columns:
        """Return the choice with its columns, built now if they are not there.

        They may hold `most_bad` bad records, or a few, whichever is more. Where columns cannot be
        made and the user did not ask for them, records are decoded; with `decodes_misfits` also
        where the user did, and more records do not fit the types.
        """
        if self.to_build is None:
            return self
        began = time.monotonic()
        try:
            # A bad record raises when its batch is due, just as without columns.
            source = missing_columns(self.source, self.to_build, most_bad=most_bad)
        except PenstockError as why:
            is_misfit = isinstance(why, BadRecordsError)
            if is_misfit:
                why.advise(_LOADER_REMEDY)
            if self.are_needed and not (is_misfit and decodes_misfits):
                raise
            return _without(self.source, why)
        seconds = time.monotonic() - began
        return Columns(source, f"gathered; they were made in {seconds:.1f} s", are_used=True)

    def describe(self, schema: pa.Schema | None) -> str:
        """Return the reason, and which columns are gone by now."""
        if schema is None or not self.are_used:
            return self.why
        gone = dict.fromkeys(gone_columns(self.source, schema))
        if not gone:
            return self.why
        now = f"{_DECODED}: columns are gone, damaged or stale by now ({', '.join(gone)})"
        return now if len(gone) == len(schema) else f"{self.why}; but some fields are {now}"


def without_any(source: Source) -> str:
    """Return why columns of these records cannot be kept; "" where they can."""
    return next(filter(None, map(attrgetter("no_columns"), bare_origins(source))), "")


def choose_columns(
    source: Source, schema: pa.Schema | None, options: FeedOptions, *, shuffled: bool, remote: bool
) -> Columns:
    """Return where the fields of `schema` are read from; nothing is built."""
    materialize = options.materialize
    if schema is None:
        return Columns(source, "none: batches are records as they are, or all their fields")
    # Columns of the source itself stay, with their own way of handling values that do not fit.
    schema = without_columns(source, schema)
    if not len(schema):
        return Columns(source, "gathered; the source has them", are_used=True)
    if materialize is False:
        return Columns(source, f"{_DECODED}: materialize=False")
    if materialize == "auto" and not source.files:
        return Columns(source, f"{_DECODED}: the records are in memory")
    if materialize == "auto" and (against := without_any(source)):
        return Columns(source, f"{_DECODED}: columns cannot be made. {against}")
    try:
        there = _existing(source, schema, options.patience, remote=remote)
        if there is not None:
            return Columns(there, "gathered; they were there", are_used=True)
        if materialize is True:
            why = "made with the first batch: materialize=True"
            return Columns(source, why, to_build=schema, are_needed=True)
        return _if_cheap(source, schema, shuffled=shuffled)
    except PenstockError as failure:
        if materialize is True or (shuffled and first_sequential(source) is not None):
            raise
        return _without(source, failure)


def _without(source: Source, failure: PenstockError) -> Columns:
    text = "columns cannot be made, and records are decoded for each batch (materialize=False does "
    warn_once(_log, f"{text}not try): {failure}")
    return Columns(source, f"{_DECODED}: columns cannot be made. {failure}")


def _existing(source: Source, schema: pa.Schema, patience: float, *, remote: bool) -> Source | None:
    if not remote:
        return columns_of(source, schema)
    try:
        return _looked_for(source, schema, patience)
    except StorageError as why:
        # Columns beside remote data only save time, so a failure to look does not end the run.
        text = "storage does not say whether there are columns; records are decoded"
        warn_once(_log, f"{text}: {why}")
        return None


def _looked_for(source: Source, schema: pa.Schema, patience: float) -> Source | None:
    """Look for columns in another thread, since a read that hangs cannot be interrupted."""
    answer: Future[Source | None] = Future()
    meter = Meter()

    def look() -> None:
        try:
            with metered(meter):
                answer.set_result(columns_of(source, schema))
        except BaseException as failure:  # noqa: BLE001 (raised in the caller's thread)
            answer.set_exception(failure)

    threading.Thread(target=look, name="penstock-columns", daemon=True).start()
    before = meter.counts()
    while not wait([answer], patience).done:
        now = meter.counts()
        if now == before:
            text = f"storage did not answer for {patience:g} s."
            raise StorageTimeoutError(text, path=source.files[0])
        before = now  # Large ones take long to fetch.
    return answer.result()


def _if_cheap(source: Source, schema: pa.Schema, *, shuffled: bool) -> Columns:
    price, against = _price(source, schema)
    path = first_sequential(source) if shuffled else None
    if not against:
        why = f"made with the first batch: {price}"
        return Columns(source, why, to_build=schema, are_needed=path is not None)
    command = command_for(source, schema) if len(schema) <= _MANY_COLUMNS else "materialize=True"
    if path is not None:
        raise OptionError(
            f"{path} is compressed with {compression_of(path)}, which can only be read from its "
            f"beginning: it is shuffled through columns, but {against}. Make them: "
            f"materialize=True, or once for all: {command}"
        )
    slow = first_stream(source) if shuffled else None
    text = f"{against}; to make columns, from which batches are gathered: {command}"
    if slow is None:
        _log.info("%s", text)
    else:
        why = f"{slow} has zstd frames so large that a record costs reading what lies before it"
        warn_once(_log, f"{why}, which is slow when shuffled; but {text}")
    return Columns(source, f"{_DECODED}: {against}. To make them: {command}")


def _price(source: Source, schema: pa.Schema) -> tuple[str, str]:
    """Return the cost of columns, and the reason not to build them automatically ("" for none)."""
    if lies_remote(source):
        return "", "remote data is decoded unasked only as it is needed"
    is_wide = len(schema) > _MANY_COLUMNS and len(source) < _FEW_RECORDS
    if is_wide or len(schema) > _MOST_COLUMNS:
        count = f"{len(schema):,} columns of {len(source):,} records"
        return "", f"{count} are more files than they are worth"
    cost = estimate_columns(source, schema)
    price = f"about {cost.seconds:.1f} s once, and {cost.bytes / 1e6:,.0f} MB"
    if cost.seconds > _MOST_SECONDS:
        return price, f"columns take {price}, more than {_MOST_SECONDS:.0f} s"
    if cost.bytes > _MOST_DISK * free_bytes(cost.folder):
        return price, f"columns take {price}, more than {_MOST_DISK:.0%} of the free disk"
    return price, ""


def command_for(source: Source, schema: pa.Schema) -> str:
    """Return the command that makes the columns of `schema`; Python where no command would.

    The command line opens a path, so it finds the columns of what was opened by one, and not those
    of a list of files, of an index somewhere else, or of CSV with options of its own.
    """
    types = {field.name: _spelt(field.type) for field in schema}
    if any(text is None for text in types.values()):
        return "source.materialize(encode.fields)"
    paths = [origin.reopens_as for origin in bare_origins(source)]
    known = [path for path in dict.fromkeys(paths) if path is not None]
    if None in paths or not known or any(map(_AMBIGUOUS.search, types)):
        return f"source.materialize({types})"
    fields = shlex.quote(",".join(f"{name}:{type_}" for name, type_ in types.items()))
    return " && ".join(f"penstock materialize {shlex.quote(path)} {fields}" for path in known)


def _spelt(type_: pa.DataType) -> str | None:
    """Return a type as a user writes it; None for one that has no text."""
    text = type_text(type_)
    try:
        schema = typed_schema({"it": text})
    except OptionError:
        return None
    return text if schema is not None and schema.field(0).type == type_ else None
