"""Plans in the hands of a loader: what they look up in a source, and where large ones are kept."""

from __future__ import annotations

import json
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

import numpy as np

from penstock._words import counted
from penstock.datasets import Concatenated, Once, Source, fingerprint_of, kept_arrays, values_of
from penstock.errors import OptionError
from penstock.order import CutPlan, LengthPlan, Plan, padding_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from penstock.order import Batches, Cursor, Padding, RecordOrder

_KEPT_FROM = 1 << 20
"""Records from which on a plan is kept in the cache directory, for all processes of a host."""
_RECENT = 4
"""Plans of epochs that a process remembers."""
_recent: OrderedDict[str, Batches] = OrderedDict()


def bound_plan(plan: Plan | int | None, source: object) -> Plan | None:
    """Return a plan that knows the lengths of the records of a source; None for a batch size."""
    if not isinstance(plan, LengthPlan):
        return plan if isinstance(plan, Plan) else None
    if plan.order is not None:
        raise OptionError(
            "the loader gives its own order to a plan, by shuffle= and seed=: leave order out of "
            f"{type(plan).__name__}."
        )
    if not isinstance(source, Source):
        raise OptionError(
            f"batch_size={type(plan).__name__}(…) needs records that have numbers; give a "
            "batch size in records."
        )
    if plan.field is not None:
        lengths = _once(partial(values_of, source, plan.field))
        lengths()  # A field that does not fit is an error of this call and not of a later one.
        return plan.bound(lengths)
    if len(plan.lengths) != len(source):
        raise OptionError(
            f"{plan.argument} has {counted(len(plan.lengths), 'value')}, and the source "
            f"{counted(len(source), 'record')}: give one for each, or the name of a field."
        )
    return plan


def plan_before(plan: Plan | None, now: Source, then: Source) -> Plan | None:
    """Return a plan over the records that the sources of a mixture had before they grew."""
    if now is then or not isinstance(plan, LengthPlan):
        return plan
    assert isinstance(now, Concatenated)  # noqa: S101 (only a mixture grows in the middle)
    assert isinstance(then, Concatenated)  # noqa: S101
    starts = np.cumsum([0, *now.sizes]).tolist()
    own = [slice(at, at + size) for at, size in zip(starts, then.sizes, strict=False)]
    return plan.bound(_once(partial(_lengths_in, plan, own)))


def _once(find: Callable[[], NDArray[np.integer]]) -> Callable[[], NDArray[np.integer]]:
    found: Once[NDArray[np.integer]] = Once()
    return partial(found.get, find)


def _lengths_in(plan: LengthPlan, parts: list[slice]) -> NDArray[np.integer]:
    return np.concatenate([plan.lengths[part] for part in parts])


def plan_facts(plan: Plan | None, length: int) -> tuple[str, int] | None:
    """Return how a state names a plan over the first `length` records, and its version."""
    if plan is None:
        return None
    lengths = f"-{plan.key(length)}" if isinstance(plan, LengthPlan) else ""
    return plan.name + lengths, plan.version


def check_plan(
    cursor: Cursor, plan: Plan | None, on_changed: Literal["raise", "continue"] = "raise"
) -> Cursor:
    """Return the cursor of a state, if it counts the batches of this plan."""
    now = plan_facts(plan, cursor.length)
    if cursor.plan == now:
        return cursor
    if on_changed == "continue" and None not in (cursor.plan, now):
        return replace(cursor, plan=now)
    then, present = (
        f"batches by the plan {facts[0]!r}, version {facts[1]}" if facts else "equal batches"
        for facts in (cursor.plan, now)
    )
    raise OptionError(
        f"the state counts {then}, and this loader has {present}: give the batch_size that the "
        "state was saved with, a plan with the same arguments and lengths."
    )


def batches_of(
    plan: Plan, order: RecordOrder, cursor: Cursor, blocks: NDArray[np.int64] | None
) -> Batches:
    """Return the batches of a cursor's epoch: those of a large plan are computed once a host."""
    if not isinstance(plan, CutPlan):
        return plan.over(order)
    state = cursor.at(position=0).to_dict()
    state["order"] = [state["order"], plan_facts(plan, cursor.length)]
    borders = b"" if blocks is None else blake2b(blocks.astype("<i8").data).digest()
    key = fingerprint_of("plan", json.dumps(state, sort_keys=True), borders)
    if (known := _recent.get(key)) is not None:
        return known
    if len(order) < _KEPT_FROM:
        batches = plan.over(order)
    else:
        names = [f"{key}-starts", f"{key}-rows"]
        mapped = partial(_mapped, length=len(order))
        batches = plan.cut(*kept_arrays(names, lambda: plan.arrays(order), mapped))
    _recent[key] = batches
    while len(_recent) > _RECENT:
        with suppress(KeyError):  # Another thread was quicker.
            _recent.popitem(last=False)
    return batches


def _mapped(path: Path, length: int) -> NDArray[np.integer]:
    """Map the starts or the rows of a plan; rows are checked when they are used."""
    array: NDArray[np.integer] = np.lib.format.open_memmap(path, mode="r")
    is_wrong = array.dtype.kind != "i" or array.ndim != 1
    if not is_wrong and path.stem.endswith("-starts"):
        is_wrong = not len(array) or array[0] != 0 or array[-1] > length
        is_wrong = is_wrong or bool((array[1:] <= array[:-1]).any())
    if is_wrong or len(array) > length + 1:
        raise ValueError(f"it does not hold a plan of {length:,} records")
    return array


def describe_plan(plan: Plan, order: RecordOrder, batches: Batches) -> tuple[str, Padding | None]:
    """Return what a plan does in a sentence, and what it leaves empty, if it knows lengths."""
    if not isinstance(plan, LengthPlan):
        return f"{counted(len(batches), 'batch')} by the plan {plan.name!r}", None
    padding = padding_of(plan, order, batches)
    by = f"by {plan.field}" if plan.field is not None else f"by the given {plan.argument}"
    text = (
        f"{plan.describe()}, {by}: {counted(len(batches), 'batch')} of {padding.rows:,} records on "
        f"average; {padding.planned:.1%} padding, and {padding.plain:.1%} in plain batches of as "
        "many records"
    )
    return text, padding
