"""Vocabularies and statistics from one pass over a source, before a model is trained."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np

from penstock._words import counted
from penstock.batch import BatchPosition
from penstock.datasets import Source, record_place
from penstock.datasets import open as open_source
from penstock.errors import OptionError, SchemaMismatchError
from penstock.schema._nodes import ValueState, check_count
from penstock.schema._schema import Schema
from penstock.schema._statistics import agreed
from penstock.schema._tree import Address
from penstock.schema._values import in_order_of_appearance, key_label
from penstock.work import Bar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from penstock.schema._arrays import LeafArrays
    from penstock.schema._vocabulary import Vocabulary

_log = logging.getLogger("penstock.schema")

_TOGETHER = 4096


@runtime_checkable
class HasTraining(Protocol):
    """A data module."""

    def training_records(self) -> tuple[Schema, Any]:
        """Return the schema of the model, and a source or an iterator of the records."""


def fit_vocabulary(
    schema: Schema | HasTraining,
    source: Any = None,
    *,
    min_count: int = 1,
    order: Literal["frequency", "first"] = "frequency",
    freeze: bool = True,
) -> dict[str, int]:
    """Learn the vocabularies and statistics of a schema from all records; return label counts.

    Every process that does so over the same records has the same result.

    Args:
        schema: Its vocabularies and statistics begin anew. Or a data module, whose observations
            of training its model's schema learns from.
        source: A source, or anything that `penstock.open` takes; not with a data module.
        min_count: How often a label has to occur to be part of a vocabulary.
        order: "frequency" numbers the most frequent label first, equal ones by their text;
            "first" numbers labels as records have them.
        freeze: Whether training adds no more labels.
    """
    check_count("fit_vocabulary", "min_count", min_count)
    if order not in ("frequency", "first"):
        raise OptionError(f"fit_vocabulary: order={order!r}: expected 'frequency' or 'first'.")
    schema, source = _training(schema, source)
    active = schema.hyperparameters.active_requests
    words = {at: one for at, one in schema.interprocess_encoding_context.items() if at in active}
    counts: dict[Address, Counter[Any]] = {address: Counter() for address in words}
    schema.reset()
    for arrays in _arrays(schema.for_split("train"), source):
        for address, one in arrays.items():
            if address in counts:
                _add_labels(counts[Address(address)], one)
            elif address in schema.statistics:
                valued = one.state == ValueState.valued
                schema.statistics[Address(address)].update(one.content[""][valued])
    for numbers in schema.statistics.values():
        # Every rank that makes this pass has seen the same: none has values of its own to share.
        numbers.load_state_dict(agreed([numbers.state_dict()]))
    for address, seen in counts.items():
        kept = [key for key, count in seen.items() if count >= min_count]
        if order == "frequency":
            kept.sort(key=lambda key, seen=seen: (-seen[key], str(key)))  # type: ignore[misc]
        _hold(words[address], kept, address)
        words[address].is_frozen = freeze
        words[address].warn_of_kinds(address)
    return {address: len(vocabulary) for address, vocabulary in words.items()}


def _training(schema: Schema | HasTraining, source: Any) -> tuple[Schema, Any]:
    if isinstance(schema, Schema):
        if source is None:
            raise OptionError("fit_vocabulary(schema, source): the source is missing.")
        return schema, source
    if not isinstance(schema, HasTraining):
        raise TypeError(
            "fit_vocabulary takes a data module, or a schema and a source, not "
            f"{type(schema).__name__}. The schema of a model with SchemaMixin is model.schema."
        )
    if source is not None:
        raise OptionError("fit_vocabulary: the data module has the records: leave source out.")
    return schema.training_records()


def _with_place(why: SchemaMismatchError, source: Source) -> SchemaMismatchError:
    """Return the error of a record with the place of that record."""
    number = getattr(why, "record", None)
    place = None if number is None else record_place(source, number)
    if place is not None and place.path not in why.fact:
        why.fact = f"{why.fact.rstrip('.')} ({place})."
    why.advise(why.remedy or "Correct the record, or fit without it: source.where(…).")
    return why


def _hold(words: Vocabulary, keys: Sequence[Any], address: Address) -> None:
    words.load_snapshot([*map(key_label, keys)])
    if len(keys) > len(words):
        text = "%s: there are %s, and max_vocab_size=%d keeps the first of them"
        _log.warning(text, address, counted(len(keys), "label"), len(words))


def _add_labels(counts: Counter[Any], leaf: LeafArrays) -> None:
    codes = leaf.content["codes"].reshape(-1)
    found = np.bincount(codes[codes >= 0], minlength=len(leaf.labels))
    for code in in_order_of_appearance(codes, len(leaf.labels)):
        counts[leaf.labels[code]] += int(found[code])


def _arrays(schema: Schema, source: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the arrays of all records of a source, or of an iterator of records."""
    if isinstance(source, Iterator):
        while records := list(islice(source, _TOGETHER)):
            yield from _arrays(schema, records)
        return
    opened = source if isinstance(source, Source) else open_source(source)
    _, bound = schema.bind(opened)
    with Bar(len(opened), what="fitting", unit="records") as progress:
        for start in range(0, len(opened), _TOGETHER):
            ids = np.arange(start, min(start + _TOGETHER, len(opened)))
            where = BatchPosition(0, 0, ids, ids)
            try:
                arrays = bound.read_arrays(opened, where)
            except SchemaMismatchError as why:
                raise _with_place(why, opened) from None
            bound.note_odd(arrays, where)
            yield arrays
            progress.add(len(ids))
