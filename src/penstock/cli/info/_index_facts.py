"""What `penstock info` tells of an index."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli._indexed import index_of, missing_index
from penstock.cli._paths import as_typed
from penstock.cli._units import age_text, counted
from penstock.errors import CorruptIndexError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli._indexed import Indexed
    from penstock.index import Detected

_SHOWN = 5


class IndexFacts(NamedTuple):
    """The index of a PATH, or why it cannot be used, or neither."""

    path: str
    found: Indexed | None
    problem: str | None

    def lines(self) -> list[tuple[str, str]]:
        """Return what a person is told, each line with its heading."""
        if self.problem is not None:
            return [("index", f"cannot be used: {self.problem}")]
        if self.found is None:
            return []
        found, since = self.found, self.found.since
        where = found.place.folder
        where = as_typed(self.path, where) if found.place.beside else where
        state = "" if found.meta is None or found.is_stale or since.new else ", up to date"
        maker = "" if found.meta is not None else ", made by another tool"
        age = age_text(time.time() - found.created)
        told = f"{where}: {counted(found.records, 'record')}, built {age} ago{state}{maker}"
        lines = [("index", told)]
        if found.meta is not None and found.meta.validated:
            bad = found.meta.bad_lines
            lines.append(
                ("bad lines", f"{bad:,} set aside: {where}/bad_lines.ndjson" if bad else "none")
            )
        stale = [f"{as_typed_below(self, name)} ({what})" for name, what in since.changed]
        stale += [f"{as_typed(self.path, grown.path)} (grew)" for grown in since.grown]
        if stale:
            lines.append(("stale", f"{counted(len(stale), 'file')}: {_some(stale)}"))
        if since.new:
            new = [as_typed(self.path, found.path) for found in since.new]
            lines.append(("new", f"{counted(len(new), 'file')} not in it: {_some(new)}"))
        if stale or since.new:
            lines.append(("remedy", f"penstock index {shlex.quote(self.path)} {found.remedy}"))
        return lines

    def document(self) -> dict[str, object] | None:
        """Return the same for a program."""
        if self.problem is not None:
            return {"problem": self.problem}
        if self.found is None:
            return None
        found, since, meta = self.found, self.found.since, self.found.meta
        return {
            "path": found.place.folder,
            "records": found.records,
            "created": found.created,
            "fingerprint": None if meta is None else meta.fingerprint,
            "fresh": None if meta is None else not found.is_stale,
            "bad_lines": meta.bad_lines if meta is not None and meta.validated else None,
            "profiled": meta is not None and meta.profiled,
            "changed": [
                {"path": as_typed_below(self, name), "what": what} for name, what in since.changed
            ],
            "grown": [as_typed(self.path, grown.path) for grown in since.grown],
            "new": [as_typed(self.path, new.path) for new in since.new],
            "problem": None,
        }


def index_facts(path: str, at_path: Detected) -> IndexFacts:
    """Look for the index of a PATH; one that was named must be there."""
    try:
        found = index_of(path, at_path)
    except CorruptIndexError as failure:
        return IndexFacts(path, None, at_path.options.redact(str(failure)))
    if found is None and at_path.index is not None:
        raise missing_index(path, at_path.index)
    return IndexFacts(path, found, None)


def as_typed_below(facts: IndexFacts, name: str) -> str:
    """Return the path of a file that changed; of one that is gone the index knows less."""
    if facts.found is None or "://" in name or name.startswith("/"):
        return as_typed(facts.path, name)
    return as_typed(facts.path, f"{facts.found.listing.base}/{name}")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
