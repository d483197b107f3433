"""Options of a loader as a user gives them, checked."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from penstock.decode import OF_A_RECORD
from penstock.errors import CorruptFileError, OptionError
from penstock.order import Plan, Skips, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.loading._fetch import Masked
    from penstock.order._skips import Skip

    Skipped: TypeAlias = Skip | str | os.PathLike[str] | None
    """Record numbers and (start, stop) ranges; or the path of a file with them."""

TORCH_WORDS = {
    "batch_sampler": "batch_size= takes a plan (penstock.order.Plan) that cuts batches of any size",
    "collate_fn": "collate= takes the same function; encode= is faster where field types suffice",
    "dataset": "the source is the first argument",
    "generator": "seed= decides the order",
    "in_order": "batches always come in order",
    "pin_memory_device": "prefetch_to= names the device",
    "prefetch_factor": "batches are made ahead as memory allows",
    "sampler": "shuffle= decides the order, weights= how often records come, skip= which do not",
    "timeout": "stall_timeout= gives the seconds",
    "worker_init_fn": "an encoder or a collate object sets itself up at its first call",
}
"""Arguments of torch's DataLoader, and what there is instead."""
_LINE = re.compile(r"(\d+)(?:\s*:\s*(\d+))?")


def whole_or_none(name: str, value: int | None) -> int | None:
    """Return a whole number of at least 1, or None as it is."""
    return None if value is None else whole_number(name, value, 1)


def seconds(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    raise OptionError(f"{name}={value!r}: expected seconds above 0.")


def check_batch(batch_size: int | Plan | None, global_batch_size: int | None) -> None:
    """Refuse a size of batches that is missing, or given twice."""
    if batch_size is None and global_batch_size is None:
        raise OptionError("give batch_size (of each rank), or global_batch_size (of all).")
    if isinstance(batch_size, Plan) and global_batch_size is not None:
        raise OptionError("a plan as batch_size cuts all batches: leave global_batch_size out.")
    if hasattr(batch_size, "over") and not isinstance(batch_size, Plan):
        raise OptionError(f"batch_size={batch_size!r}: a plan has name, version and over(order).")


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    # 1 == True, but it is not one of the choices.
    if (type(value), value) not in zip(map(type, choices), choices, strict=True):
        raise OptionError(f"{name}={value!r}: expected {' or '.join(map(repr, choices))}.")


def masked_errors(on_error: object) -> Masked:
    """Return the errors that leave a row with `valid` False; data modules name them themselves."""
    if isinstance(on_error, tuple):
        return on_error
    check_choice("on_error", on_error, ("raise", "mask"))
    return (*OF_A_RECORD, CorruptFileError) if on_error == "mask" else ()


def refuse_unknown(unknown: Iterable[str], known_by: type) -> None:
    """Raise for arguments that a class does not have; torch's own words get their counterpart."""
    for word in unknown:
        if word in TORCH_WORDS:
            advice = f"{TORCH_WORDS[word]}. See docs/loading.md, Coming from torch's DataLoader."
        else:
            near = get_close_matches(word, signature(known_by).parameters, 1)
            advice = (
                f"Did you mean {near[0]!r}?" if near else "help(penstock.DataLoader) lists them."
            )
        raise TypeError(f"DataLoader has no argument {word!r}: {advice}")


def read_skips(skip: Skipped, length: int) -> tuple[tuple[int, int], ...]:
    """Return sorted (start, stop) ranges below `length`.

    A file has a number or `start:stop` on each line; a `#` begins a comment.

    >>> read_skips([7, (2, 4), 3], 10)
    ((2, 4), (7, 8))
    """
    if skip is None:
        return ()
    entries = _of_file(Path(skip).expanduser()) if isinstance(skip, str | os.PathLike) else skip
    return Skips(entries, length).ranges


def _of_file(path: Path) -> list[tuple[int, int]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise OptionError(f"skip={str(path)!r}: cannot read this file: {failure}.") from None
    pairs = []
    for number, line in enumerate(text.splitlines(), start=1):
        entry = line.partition("#")[0].strip()
        if found := _LINE.fullmatch(entry):
            pairs.append((int(found[1]), int(found[2] or int(found[1]) + 1)))
        elif entry:
            raise OptionError(
                f"skip: line {number} of {path} is {entry!r}; write a record number, or "
                "start:stop for a range."
            )
    return pairs
