"""Vocabularies and statistics from one pass over a source, before a model is trained."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import numpy as np

from penstock.batch import BatchPosition
from penstock.datasets import Source
from penstock.datasets import open as open_source
from penstock.errors import OptionError
from penstock.schema._nodes import ValueState, check_count
from penstock.schema._statistics import agreed
from penstock.schema._values import in_order_of_appearance, key_label
from penstock.schema.leaves._number import Number
from penstock.work import Bar

if TYPE_CHECKING:
    from typing import Any

    from penstock.schema._schema import Schema
    from penstock.schema._tree import Address

_TOGETHER = 4096


def fit_vocabulary(
    schema: Schema,
    source: Any,
    *,
    min_count: int = 1,
    order: Literal["frequency", "first"] = "frequency",
    freeze: bool = True,
) -> dict[str, int]:
    """Learn the vocabularies and statistics of a schema from all records; return label counts.

    Every process that does so over the same records has the same result.

    Args:
        schema: Its vocabularies and statistics begin anew.
        source: A source, or anything that `penstock.open` takes.
        min_count: How often a label has to occur to be part of a vocabulary.
        order: "frequency" numbers the most frequent label first, equal ones by their text;
            "first" numbers labels as records have them.
        freeze: Whether training adds no more labels.
    """
    check_count("fit_vocabulary", "min_count", min_count)
    if order not in ("frequency", "first"):
        raise OptionError(f"fit_vocabulary: order={order!r}: expected 'frequency' or 'first'.")
    opened = source if isinstance(source, Source) else open_source(source)
    train = schema.for_split("train")
    _, bound = train.bind(opened)
    words = schema.interprocess_encoding_context
    counts: dict[Address, Counter[Any]] = {address: Counter() for address in words}
    schema.reset()
    with Bar(len(opened), what="fitting", unit="records") as progress:
        for start in range(0, len(opened), _TOGETHER):
            ids = np.arange(start, min(start + _TOGETHER, len(opened)))
            arrays = bound.read_arrays(opened, BatchPosition(0, 0, ids, ids))
            for address, leaf in schema.hyperparameters.active_requests.items():
                one = arrays[address]
                if address in counts:
                    codes = one.content["codes"].reshape(-1)
                    found = np.bincount(codes[codes >= 0], minlength=len(one.labels))
                    for code in in_order_of_appearance(codes, len(one.labels)):
                        counts[address][one.labels[code]] += int(found[code])
                elif isinstance(leaf, Number):
                    valued = one.state == ValueState.valued
                    schema.statistics[address].update(one.content[""][valued])
            progress.add(len(ids))
    for numbers in schema.statistics.values():
        # Every rank that makes this pass has seen the same: none has values of its own to share.
        numbers.load_state_dict(agreed([numbers.state_dict()]))
    for address, seen in counts.items():
        kept = [key for key, count in seen.items() if count >= min_count]
        if order == "frequency":
            kept.sort(key=lambda key, seen=seen: (-seen[key], str(key)))  # type: ignore[misc]
        words[address].load_snapshot([*map(key_label, kept)])
        words[address].is_frozen = freeze
    return {address: len(vocabulary) for address, vocabulary in words.items()}
