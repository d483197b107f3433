"""Whether a run may continue over a source, and from where."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import ChangedSourceError, OptionError
from penstock.order import Cursor, Skips

if TYPE_CHECKING:
    from penstock.datasets import Source

ENCODER = "encoder"
"""The key of the encoder's part of a state."""


def resumed(
    state: Mapping[str, Any],
    source: Source,
    skip: tuple[tuple[int, int], ...],
    on_changed: Literal["raise", "continue"],
) -> Cursor:
    """Return where a state document stands in a source; records to skip may have been added."""
    cursor = Cursor.from_dict(state)
    length = len(source)
    if not source.was(cursor.fingerprint, cursor.length):
        if on_changed == "raise":
            raise ChangedSourceError(_change(cursor, source))
        cursor = _moved(cursor, source)
    elif length > cursor.length:
        warnings.warn(
            f"{length - cursor.length:,} records were appended since the run began; it goes on "
            f"over the {cursor.length:,} that it began with. Start a new run to use them.",
            stacklevel=4,
        )
    return cursor.with_skips(skip, available=length)


def refuse_other_plan(cursor: Cursor, own: Cursor) -> None:
    """Raise where a state counts other batches than the loader's."""
    if cursor.plan == own.plan:
        return
    then, now = (
        "equal batches" if plan is None else f"batches by the plan {plan[0]!r}, version {plan[1]}"
        for plan in (cursor.plan, own.plan)
    )
    raise OptionError(
        f"the state counts {then}, and this loader has {now}: give the batch_size of then."
    )


def learnt_in(state: Mapping[str, Any], learner: object) -> tuple[dict[str, Any], Any]:
    """Split a state document into the loader's part and the encoder's.

    Raise where one of state and encoder has such a part and the other has not.
    """
    if not isinstance(state, Mapping):
        raise OptionError(f"state: expected what `state_dict()` returned, not {state!r}.")
    rest = dict(state)
    learnt = rest.pop(ENCODER, None)
    if learnt is None and learner is not None:
        raise OptionError(
            f"the state holds nothing of {type(learner).__qualname__}, which learns as batches "
            "come: it was saved with another encoder. Give the encoder of then."
        )
    if learnt is not None and learner is None:
        raise OptionError(
            "the state holds what an encoder learnt, and this one learns nothing. Give the "
            "encoder of then."
        )
    return rest, learnt


def _change(cursor: Cursor, source: Source) -> str:
    now = len(source)
    if now < cursor.length:
        what = f"it had {cursor.length:,} records, and has {now:,} now"
    elif now > cursor.length:
        what = (
            f"it had {cursor.length:,} records and has {now:,} now, and nothing shows that the "
            f"first {cursor.length:,} are the same"
        )
    else:
        what = f"it still has {now:,} records, but they or their numbers are others"
    back = "Bring the files back"
    if source.is_tokens:
        back = "Bring the files back, or give Tokens the length, stride and shift of then"
    return (
        f"the source changed since the state was saved: {what} (fingerprint {cursor.fingerprint} "
        f"then, {source.fingerprint} now). {back}, or give on_changed='continue' to "
        "go on at the same position over what is there."
    )


def _moved(cursor: Cursor, source: Source) -> Cursor:
    """Return the same position over other records; their order is another one."""
    length = len(source)
    skip = [(a, min(b, length), *epoch) for a, b, *epoch in cursor.skip if a < length]
    kept = Skips([(a, b) for a, b, *epoch in skip if not epoch], length).kept
    begun = replace(
        cursor, fingerprint=source.fingerprint, length=length, skip=tuple(skip), position=0
    )
    blocks = source.blocks if cursor.kind == "block" else None
    return begun.at(position=min(cursor.position, kept), lanes=begun.order(blocks).lanes)
