"""The records of a run over tokens: windows, as `penstock.Tokens` cuts them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.datasets import is_tokens
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cli._by_number import ByNumber


class Cut(NamedTuple):
    """How rows are cut out of tokens."""

    length: int | None
    stride: int | None


def windows_of(opened: ByNumber, cut: Cut, state: Mapping[str, Any] | None) -> ByNumber:
    """Return the rows that a run with `Tokens` goes over; without a length the records as they are.

    Rows with the token behind them, for `shift=True`, or without: a state tells which it was.
    """
    if cut.length is None:
        if cut.stride is not None:
            raise OptionError("--stride: from window to window of --length N tokens. Give it, too.")
        return opened
    if not is_tokens(opened.source):
        raise OptionError(f"--length: {opened.path} holds records, not tokens. Leave it out.")
    from penstock.batch import Tokens  # noqa: PLC0415 (only for those)

    rows = [
        Tokens(cut.length, cut.stride, shift, boundaries=False).over(opened.source)
        for shift in (True, False)
    ]
    known = state or {}
    was = (str(known.get("fingerprint")), known.get("length", 0))
    return replace(opened, source=next((one for one in rows if one.was(*was)), rows[0]))
