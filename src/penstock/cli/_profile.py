"""`penstock profile`: types, ranges and drift of every field."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import click

from penstock._redact import without_secrets
from penstock.cli._paths import Indexed, index_or_problem, look_at, refuse_tokens
from penstock.cli._terminal import Progress, echo, table
from penstock.cli._typed_fields import parse_fields, schema_types
from penstock.cli._units import age_text, counted
from penstock.cli._verb import FINE, VerbCall, option, verb, workers_option
from penstock.datasets import keep_profile, known_profile, open_found, profile_of, profile_types
from penstock.errors import OptionError
from penstock.index import BuildOptions, make_index, place_of, read_profile
from penstock.schema import proposed

if TYPE_CHECKING:
    from penstock.datasets import Source
    from penstock.index import Detected, Listing, Meta, Mode, Scanner

_log = logging.getLogger("penstock.cli")
_BARS = 16
_HEADER = [
    *("", "field", "type", "null", "missing", "distinct", "min", "median", "max"),
    *("spread".ljust(_BARS), "length", "example"),
]
_LEVELS = "▁▂▃▄▅▆▇█"
_RARE = 0.01
"""The share of values up to which those of another kind do not decide about the type of a field."""
_SIGNS = {"warning": "!", "note": "?"}
_FEW_DIGITS = 6
_EXAMPLE = 28
_BOUND = 20
_NONE = "–"


@dataclass(frozen=True, slots=True)
class FoundProfile:
    """A profile, and the records that it describes."""

    document: dict[str, Any]
    """The contents of `profile.json`."""
    created: float
    source: Source | None
    """None where the index cannot be used."""
    is_new: bool = False
    """Whether it was made just now."""


@dataclass(frozen=True, slots=True)
class ProfileSearch:
    """Finds the profile of a PATH, or makes it if there is none of the present records."""

    path: str
    at_path: Detected
    workers: int | None = None

    def find(self) -> FoundProfile:
        """Return the profile.

        JSON Lines and CSV without an index get one with a profile, in one pass over the files. An
        index without a profile is built again where records keep their numbers. For everything
        else records are read, and their profile is kept in the cache directory.
        """
        if self.at_path.format.folder is not None:
            return self._of_source(open_found(self.at_path))
        indexed, problem = index_or_problem(self.path, self.at_path)
        found = self.at_path.checked()
        if problem is not None or (indexed is not None and indexed.is_stale):
            _log.warning(
                "the index is damaged or stale, and the profile is not kept; penstock index %s %s "
                "--profile repairs it",
                self.path,
                "--overwrite" if indexed is None else indexed.remedy,
            )
            return self._unkept(found.listing, found.scanner())
        if indexed is not None:
            return self._of_index(indexed)
        if found.format.scanner is None:
            return self._of_source(open_found(found))
        place = place_of(found.listing, found.scanner(), found.options, found.index)
        self._build(found.listing, found.scanner(), "new", place.folder, made_by="open")
        return replace(self._of_source(open_found(found)), is_new=True)

    def _build(
        self,
        listing: Listing,
        scanner: Scanner,
        mode: Mode,
        folder: str,
        **options: Any,  # noqa: ANN401 (of `BuildOptions`)
    ) -> None:
        """Build an index with a profile."""
        with Progress(listing.bytes) as progress:
            build = BuildOptions(
                progress=progress, profile=True, num_workers=self.workers, **options
            )
            make_index(
                listing, scanner, mode, options=self.at_path.options, index=folder, build=build
            )

    def _of_index(self, indexed: Indexed) -> FoundProfile:
        source, meta = indexed.source(self.at_path), indexed.meta
        if meta is None or known_profile(source) is not None or not _keeps_numbers(indexed, meta):
            return self._of_source(source)
        self._build(
            indexed.listing,
            indexed.format.scanner_for(meta.options),
            "overwrite",
            indexed.place.folder,
            full_hash=meta.is_hashed,
            validate=meta.validated,
            max_line_bytes=meta.max_line_bytes,
            made_by=meta.made_by,
        )
        return replace(self._of_source(indexed.source(self.at_path)), is_new=True)

    def _of_source(self, source: Source) -> FoundProfile:
        known = known_profile(source)
        if known is not None:
            return FoundProfile(known.document, known.created, source)
        with Progress(len(source), unit="records") as progress:
            document = profile_of(source, workers=self.workers, progress=progress).document()
        keep_profile(source, document)
        return FoundProfile(document, time.time(), source, is_new=True)

    def _unkept(self, listing: Listing, scanner: Scanner) -> FoundProfile:
        """Profile files as they are now, in a temporary index."""
        with TemporaryDirectory(prefix="penstock-profile-") as folder:
            self._build(listing, scanner, "new", f"{folder}/index")
            document = read_profile(f"{folder}/index")
        assert document is not None  # noqa: S101 (it was just built)
        return FoundProfile(document, time.time(), None, is_new=True)


def _keeps_numbers(indexed: Indexed, meta: Meta) -> bool:
    """Whether an index can be built again, and records would keep their numbers."""
    folder = Path(indexed.place.folder)
    if indexed.place.is_remote or indexed.since.new:
        return False
    if not (os.access(folder, os.W_OK | os.X_OK) and os.access(folder.parent, os.W_OK | os.X_OK)):
        return False
    empty = {file.path for file in meta.empty}
    names = [indexed.listing.relative(found) for found in indexed.listing.files]
    in_order = [name for name in names if name not in empty]
    # An update puts new files behind all others, regardless of their names.
    runs = [run.file for run in meta.runs]
    return [file.path for file in meta.files] == in_order and runs == list(range(len(in_order)))


@verb(
    "penstock profile logs",
    "penstock profile logs --fields price,user",
    "penstock profile logs --as fields",
    "penstock profile logs --as schema",
    "penstock profile 'tables/*.parquet' --workers 4 --json",
    "penstock profile s3://bucket/logs -o region=eu-west-1",
    index=True,
)
@option(
    "--as table|fields|schema|json",
    "Form of the output; fields is a dict for DataLoader, with types that change no value; schema "
    "proposes a penstock.Schema, with --json as a file for check --schema.",
    dest="form",
    default="table",
)
@option("--fields A,B.C", "Show only these fields, and those inside of them.", dest="names")
@workers_option("read, if there is no profile yet")
def profile(
    call: VerbCall,
    *,
    form: Literal["table", "fields", "schema", "json"],
    names: str | None,
    workers: int | None,
) -> int:
    """Show what every field of PATH holds: types, nulls, ranges, examples, and what drifts.

    The profile of the index is shown (penstock index --profile), if the files did not change
    since. Else all records are read once, and the profile is kept: in the index, which is built if
    there is none, or in the cache directory for Parquet, remote and read-only data.

    A field marked ! changes on the way, as a line below the table says. Marked ? it may mean
    nothing: a rare field that begins late or ends early, integers beside floats, a CSV column of
    numbers and texts. Numbers with ~ are estimates.
    """
    path, as_json = call.path, call.as_json
    if as_json and form == "fields":
        raise click.UsageError("give either --json or --as fields, not both.")
    at_path = look_at(path, call.options, call.folder)
    refuse_tokens(path, at_path, "they have no fields")
    wanted = None if names is None else list(parse_fields(names))
    found = ProfileSearch(path, at_path, workers).find()
    document = found.document if wanted is None else _only(found.document, wanted)
    if form == "schema":
        echo(proposed(document).text(as_json=as_json))
    elif as_json or form == "json":
        # As in the file, but in plain ASCII, which every locale can print.
        click.echo(json.dumps(document, indent=1))
    elif form == "fields":
        echo(_fields(without_secrets(path), document, found))
    else:
        echo(_shown(without_secrets(path), document, found))
    return FINE


def _only(document: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return a profile of some fields, and of those inside of them."""
    paths = [field["path"] for field in document["fields"]]
    below = tuple(f"{name}{sign}" for name in names for sign in (".", "["))
    chosen = {path for path in paths if path in names or path.startswith(below)}
    for name in names:
        if name not in paths:
            there = ", ".join(paths[:20]) or "none"
            raise OptionError(f"--fields: no record has a field {name!r}; there are: {there}.")
    return {
        **document,
        "fields": [field for field in document["fields"] if field["path"] in chosen],
        "drift": [found for found in document["drift"] if found["path"] in chosen],
    }


def _shown(path: str, document: dict[str, Any], found: FoundProfile) -> str:
    """Return the fields of a profile, one per row, with a sign and a line for each that drifts."""
    signs: dict[str, str] = {}
    for one in document["drift"]:
        signs.setdefault(one["path"], _SIGNS[one["level"]])
    rows = [[signs.get(field["path"], ""), *_cells(field)] for field in document["fields"]]
    fields = table(_HEADER, rows, left=3) if rows else "(no fields)"
    drift = [f"{_SIGNS[one['level']]} {one['text']}" for one in document["drift"]]
    lines = [f"{path}: {_heading(document, found)}", "", fields, *([""] if drift else []), *drift]
    return "\n".join(lines)


def _heading(document: dict[str, Any], found: FoundProfile) -> str:
    records = counted(document["records"], "record")
    age = age_text(time.time() - found.created)
    text = f"{records}, read just now" if found.is_new else f"{records}, profile of {age} ago"
    odd = {
        kind: seen["count"] for kind, seen in document["record_types"].items() if kind != "object"
    }
    if odd:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in odd.items())
        text += f"; {sum(odd.values()):,} of them no objects ({kinds})"
    return text


def _fields(path: str, document: dict[str, Any], found: FoundProfile) -> str:
    """Return a dict for `DataLoader` as Python, with a comment for each field that is left out."""
    certain = None
    if found.source is not None and found.source.schema_is_complete:
        certain = schema_types(found.source.schema)
    types = profile_types(document, certain, categories=True, rare=_RARE)
    ways = types.types | types.left_out
    paths = [field["path"] for field in document["fields"] if field["path"] in ways]
    lines = ["{", f"    # {path}: {_heading(document, found)}"]
    for name in dict.fromkeys(paths):
        if name in types.types:
            rest = f"except: {types.exceptions[name]}" if name in types.exceptions else ""
            notes = "; ".join(filter(None, (types.notes.get(name), rest)))
            comment = f"  # {_printable(notes)}" if notes else ""
            lines.append(f"    {_quoted(name)}: {_quoted(types.types[name])},{comment}")
        else:
            lines.append(f"    # {_quoted(name)} is left out: {types.left_out[name]}")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _cells(field: Mapping[str, Any]) -> list[str]:
    places = field["count"] + field["missing"]
    main = _main_type(field)
    return [
        _printable(field["path"]),
        _types(field),
        _share(field["nulls"], places),
        _share(field["missing"], places),
        _distinct(field),
        *_range(field, main),
        _spread(main).ljust(_BARS),
        _length(main),
        _example(field),
    ]


def _main_type(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the facts of the type that most values have."""
    held = [facts for kind, facts in field["types"].items() if kind != "null"]
    return max(held, key=lambda facts: int(facts["count"]), default={})


def _types(field: Mapping[str, Any]) -> str:
    held = {kind: facts["count"] for kind, facts in field["types"].items() if kind != "null"}
    if len(held) <= 1:
        return next(iter(held), "null")
    total = sum(held.values())
    return ", ".join(f"{kind} {_share(count, total)}" for kind, count in held.items())


def _share(part: int, whole: int) -> str:
    """Return a share in percent, rounded neither to none nor to all.

    >>> _share(0, 10), _share(1, 3), _share(1, 10_000), _share(9_999, 10_000), _share(5, 5)
    ('–', '33 %', '<1 %', '>99 %', '100 %')
    """
    if not part or not whole:
        return _NONE
    percent = 100 * part / whole
    if percent < 1:
        return "<1 %"
    return ">99 %" if part < whole and percent > 99 else f"{percent:.0f} %"  # noqa: PLR2004


def _distinct(field: Mapping[str, Any]) -> str:
    if "distinct" not in field:
        return _NONE
    sign = "" if field.get("distinct_is_exact") else "~"
    return f"{sign}{field['distinct']:,}"


def _range(field: Mapping[str, Any], main: Mapping[str, Any]) -> list[str]:
    """Return minimum, median and maximum, of numbers and times alone."""
    if "quantiles" not in main or "min" not in field:
        return [_NONE] * 3
    return [_value(field["min"]), _value(main["quantiles"]["p50"]), _value(field.get("max"))]


def _value(value: object) -> str:
    """Return a number or a time in few characters.

    >>> _value(1234567), _value(0.1 + 0.2), _value("2024-05-01"), _value(10**30)
    ('1234567', '0.3', '2024-05-01', '1e+30')
    """
    if isinstance(value, int) and len(str(value)) > 2 * _FEW_DIGITS:
        return f"{value:.{_FEW_DIGITS}g}"
    if isinstance(value, float):
        return f"{value:.{_FEW_DIGITS}g}"
    return _cut(str(value), _BOUND)


def _spread(main: Mapping[str, Any]) -> str:
    if "true" in main:
        return f"true {_share(main['true'], main['count'])}"
    bars = main.get("bars") or main.get("lengths", {}).get("bars")
    return bars_text(bars["counts"]) if bars else _NONE


def bars_text(counts: Sequence[int]) -> str:
    """Return counts as small bars; only zero has none.

    >>> bars_text([0, 1, 50, 100])
    ' ▁▅█'
    """
    most = max(counts, default=0)
    if not most:
        return ""
    last = len(_LEVELS) - 1
    return "".join(
        _LEVELS[min(last, math.floor(last * count / most + 0.5))] if count else " "
        for count in counts
    )


def _length(main: Mapping[str, Any]) -> str:
    lengths = main.get("lengths")
    if lengths is None:
        return _NONE
    low, middle, high = lengths["min"], lengths["quantiles"]["p50"], lengths["max"]
    return f"{low:,}" if low == high else f"{low:,} … {middle:,} … {high:,}"


def _example(field: Mapping[str, Any]) -> str:
    examples = field.get("examples")
    if not examples:
        return _NONE
    return _cut(_printable(json.dumps(examples[0], ensure_ascii=False)), _EXAMPLE)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _printable(text: str) -> str:
    """Return a text without characters that break the line."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
