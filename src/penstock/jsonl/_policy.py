"""The error policy: a bad line raises, is skipped and counted, or goes to the user's function."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from penstock.errors import MalformedLineError, OptionError

if TYPE_CHECKING:
    from penstock.jsonl._decode import MalformedLine

ErrorHandler: TypeAlias = Callable[[int, bytes, Exception], object]
"""A function of (line number, raw line, exception)."""
OnError: TypeAlias = Literal["raise", "skip"] | ErrorHandler

_log = logging.getLogger("penstock.jsonl")
_SHOWN_BYTES = 80
_LOGGED_AT_ONCE = 10
_LOG_PAUSE = 1.0


class ErrorPolicy:
    """One `on_error` at work on one stream."""

    def __init__(self, on_error: OnError) -> None:
        if on_error not in ("raise", "skip") and not callable(on_error):
            raise OptionError(
                f"on_error={on_error!r}: expected 'raise', 'skip' or a function of "
                "(line_number, raw_line, exception)."
            )
        self._on_error = on_error
        self._last_log = 0.0
        self._not_logged = 0
        self.skipped = 0
        """Bad lines passed over so far."""

    def handle(self, bad: MalformedLine) -> None:
        """Raise, or note the line and return: then iteration goes on behind it."""
        error = malformed(bad, remedy=self._on_error == "raise")
        if self._on_error == "raise":
            raise error
        self.skipped += 1
        if callable(self._on_error):
            self._on_error(bad.number, bad.line.removesuffix(b"\r"), error)
            return
        now = time.monotonic()
        if self.skipped <= _LOGGED_AT_ONCE or now - self._last_log >= _LOG_PAUSE:
            more = f" (and {self._not_logged} more since)" if self._not_logged else ""
            _log.warning("skipped %s%s", error, more)
            self._last_log, self._not_logged = now, 0
        else:
            self._not_logged += 1

    def finish(self) -> None:
        """Report the count; called when the stream has ended."""
        if self.skipped and self._on_error == "skip":
            lines = "line was" if self.skipped == 1 else "lines were"
            _log.warning("%d malformed %s skipped", self.skipped, lines)


def malformed(bad: MalformedLine, *, remedy: bool = True) -> MalformedLineError:
    """Return the error for a bad line: where, why, and what it looks like."""
    shown = bad.line[:_SHOWN_BYTES]
    dots = " …" if len(bad.line) > _SHOWN_BYTES else ""
    message = (
        f"{bad.path}, line {bad.number:,}: {reason_text(bad.reason)}. "
        f"The line begins {shown!r}{dots}"
    )
    if remedy:
        message += " (on_error='skip' leaves such lines out)"
    place = place_in_line(bad.line, bad.reason)
    return MalformedLineError(message, path=bad.path, line_number=bad.number, **place)


def place_in_line(line: bytes, reason: object) -> dict[str, Any]:
    """Return where in a line its JSON ends, as `json.JSONDecodeError` has it.

    >>> place_in_line(b"[1", json.JSONDecodeError("Expecting ',' delimiter", "[1", 2))
    {'doc': '[1', 'pos': 2, 'colno': 3}
    """
    at = reason.pos if isinstance(reason, json.JSONDecodeError) else 0
    return {"doc": line.decode("utf-8", "replace"), "pos": at, "colno": at + 1}


def reason_text(reason: object) -> str:
    if isinstance(reason, UnicodeDecodeError):
        return f"not UTF-8 at byte {reason.start:,} of the line"
    if isinstance(reason, json.JSONDecodeError):
        # Its own words say "line 1", which beside the number of the line would mislead.
        what = reason.msg.removesuffix(" at")
        return f"{what} at character {reason.pos + 1:,} of the line"
    return str(reason).rstrip(".") or type(reason).__name__
