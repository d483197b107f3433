"""Records as text or JSON."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import numpy as np

from penstock.cli._terminal import as_text, echo, echo_json, without_nonfinite
from penstock.cli.show._tokens import ids_text
from penstock.errors import MalformedLineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cli._selection import Record

_log = logging.getLogger("penstock.cli")


class Printed:
    """Prints records as they come, or collects them for one JSON array."""

    def __init__(self, fields: list[str] | None, *, as_json: bool) -> None:
        self._fields = fields
        self._missing = set(fields or ())
        self._document: list[object] | None = [] if as_json else None
        self._nonfinite = False
        self.count = 0

    def add_all(self, records: Iterator[Record]) -> None:
        """Print records, each with its number and its place."""
        for record in records:
            self.count += 1
            value = record.value
            if self._fields is not None:
                value = {name: pick(value, name) for name in self._fields}
                self._missing -= {name for name, picked in value.items() if picked is not None}
            try:
                self._add(record, value)
            except RecursionError:
                what = f"{record.number} – {record.place} is nested too deeply to be shown"
                raise MalformedLineError(f"{what}; --fields shows parts.") from None

    def _add(self, record: Record, value: object) -> None:
        if isinstance(value, np.ndarray):
            text = ids_text(value)
        else:
            text = json.dumps(value, indent=2, ensure_ascii=False, default=as_text)
        if self._document is None:
            # A lone surrogate cannot be printed; its escape is the text of the file.
            printable = text.encode("utf-8", "backslashreplace").decode()
            echo(f"# {record.number} – {record.place}\n{printable}")
            return
        try:
            json.dumps(value, allow_nan=False, default=as_text)
        except ValueError:
            self._nonfinite = True
            value = without_nonfinite(value)
        self._document.append(value)

    def finish(self) -> None:
        """Print the array, and warn of replaced and missing values."""
        if self._document is not None:
            echo_json(self._document)
        if self._nonfinite:
            _log.warning("NaN and infinities are shown as null, because JSON has neither")
        if self.count and self._missing:
            _log.warning("none of the records shown has %s", ", ".join(sorted(self._missing)))


def pick(value: object, path: str) -> object:
    """Return the value at a path of a record; None where there is none.

    >>> record = {"user": {"age": 42}, "items": [{"price": 1}, {"price": 2}], "a.b": 3}
    >>> pick(record, "user.age"), pick(record, "items[].price"), pick(record, "a.b")
    (42, [1, 2], 3)
    """
    if isinstance(value, dict) and path in value:
        return value[path]  # Also a key that has a dot in its name.
    head, dot, rest = path.partition(".")
    key, is_list, _ = head.partition("[]")
    inner = value.get(key) if isinstance(value, dict) else None
    if is_list:
        if not isinstance(inner, list):
            return None
        return [pick(item, rest) for item in inner] if dot else inner
    return pick(inner, rest) if dot else None
