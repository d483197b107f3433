"""`penstock profile`: what the fields of records hold."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Literal

import click

from penstock.batch import FieldEncoder
from penstock.cli._opening import refuse_tokens
from penstock.cli._terminal import echo
from penstock.cli._units import age_text, counted
from penstock.cli._verb import (
    FINE,
    Verb,
    examples,
    index_option,
    json_option,
    storage_option,
)
from penstock.cli.bench._fields import parse_fields
from penstock.cli.profile._found import Asked, find_profile
from penstock.cli.profile._table import drift_lines, profile_table
from penstock.datasets import paths_in, profile_types
from penstock.errors import OptionError
from penstock.index import look_at

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.cli.profile._found import FoundProfile
    from penstock.datasets import Source
    from penstock.storage import StorageOptions


@click.command(
    cls=Verb,
    epilog=examples(
        "penstock profile logs",
        "penstock profile logs --fields price,user",
        "penstock profile logs --as fields",
        "penstock profile 'tables/*.parquet' --workers 4 --json",
        "penstock profile s3://bucket/logs -o region=eu-west-1",
    ),
)
@click.argument("path")
@click.option(
    "--as",
    "form",
    type=click.Choice(["table", "fields", "json"]),
    default="table",
    show_default=True,
    help="fields: a dict for DataLoader, with types that hold every value seen.",
)
@click.option(
    "--fields", "names", metavar="A,B.C", help="Only these fields, and what is inside of them."
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    metavar="N",
    help="Processes that read, if there is no profile yet; by default one a processor.",
)
@index_option
@storage_option
@json_option
def profile(  # noqa: PLR0913 (one argument an option)
    *,
    path: str,
    form: Literal["table", "fields", "json"],
    names: str | None,
    workers: int | None,
    folder: str | None,
    storage_options: StorageOptions,
    as_json: bool,
) -> int:
    """Show what every field of PATH holds: types, nulls, ranges, examples, and what drifts.

    The profile of the index is shown (penstock index --profile), if it is of the files as they
    are. Else all records are read once, and what was found is kept: in the index, which is built
    if there is none, or in the cache directory for Parquet, remote and read-only data.

    A field marked ! changes on the way, as a line below the table says. Marked ? it may mean
    nothing: a rare field that begins late or ends early, integers beside floats, a CSV column of
    numbers and texts. Numbers with ~ are estimates.
    """
    if as_json and form == "fields":
        raise click.UsageError("give either --json or --as fields, not both.")
    at_path = look_at(path, storage_options, folder)
    refuse_tokens(path, at_path, "they have no fields")
    wanted = None if names is None else list(parse_fields(names))
    found = find_profile(Asked(path, at_path, workers))
    document = found.document if wanted is None else _only(found.document, wanted)
    if as_json or form == "json":
        # What the file holds, but in plain ASCII: nothing in it can fail to be printed.
        click.echo(json.dumps(document, indent=1))
    elif form == "fields":
        echo(_fields(path, document, found))
    else:
        echo(_shown(path, document, found))
    return FINE


def _only(document: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return a profile of some fields, and of all that is inside of them."""
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
    lines = [f"{path}: {_heading(document, found)}", "", profile_table(document)]
    if drift := drift_lines(document):
        lines += ["", *drift]
    return "\n".join(lines)


def _heading(document: dict[str, Any], found: FoundProfile) -> str:
    records = counted(document["records"], "record")
    age = age_text(time.time() - found.created)
    told = f"{records}, read just now" if found.is_new else f"{records}, profile of {age} ago"
    odd = {
        kind: seen["count"] for kind, seen in document["record_types"].items() if kind != "object"
    }
    if odd:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in odd.items())
        told += f"; {sum(odd.values()):,} of them no objects ({kinds})"
    return told


def _fields(path: str, document: dict[str, Any], found: FoundProfile) -> str:
    """Return a dict for `DataLoader` as Python; what is left out is a comment in it."""
    types = profile_types(document, _certain_types(found.source), categories=True)
    ways = types.types | types.left_out
    paths = [field["path"] for field in document["fields"] if field["path"] in ways]
    lines = ["{", f"    # {path}: {_heading(document, found)}"]
    for name in dict.fromkeys(paths):
        if name in types.types:
            lines.append(f"    {_quoted(name)}: {_quoted(types.types[name])},")
        else:
            lines.append(f"    # {_quoted(name)} is left out: {types.left_out[name]}")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _certain_types(source: Source | None) -> dict[str, str] | None:
    """Return the types that a source knows for sure; None where only its records tell."""
    if source is None or not source.schema_is_complete:
        return None
    types: dict[str, str] = {}
    for name in paths_in(source.schema):
        try:
            types |= FieldEncoder.from_schema([name], source.schema).types
        except OptionError:
            continue  # An object, whose fields have paths of their own, or null everywhere.
    return types
