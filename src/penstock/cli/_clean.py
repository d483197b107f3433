"""`penstock clean`: away with what killed writers left."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli._builders import builders_in, is_builder, remove_builder
from penstock.cli._known_facts import leftover_document
from penstock.cli._paths import leftovers_in
from penstock.cli._terminal import echo, echo_json
from penstock.cli._units import bytes_text, counted, parse_age
from penstock.cli._verb import FAILED, FINE, Verb, examples, json_option, storage_option
from penstock.errors import ObjectNotFoundError, OptionError
from penstock.storage import cache_directory, is_remote, locate, remove_draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cli._paths import Leftover
    from penstock.storage import StorageOptions

_REMOTE = (
    "in object storage a killed writer leaves no file. Only the upload of a file above 64 MiB can "
    "stay incomplete, unseen but billed: set a lifecycle rule for the bucket that aborts "
    "incomplete multipart uploads after a day."
)

_WHY_KEPT = {
    "at work": "its writer is at work",
    "gone": "it could not be removed",
    "unknown": "its writer cannot be determined; --older-than AGE removes it by age",
}


@click.command(
    cls=Verb,
    epilog=examples(
        "penstock clean logs --dry-run",
        "penstock clean logs",
        "penstock clean /mnt/shared --older-than 2d",
    ),
)
@click.argument("path", required=False)
@click.option(
    "--older-than",
    type=parse_age,
    metavar="AGE",
    help="Also what is older than this (30m, 12h, 2d) and whose writer cannot be determined, "
    "because the file system has no locks.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@storage_option
@json_option
def clean(
    *,
    path: str | None,
    older_than: float | None,
    dry_run: bool,
    storage_options: StorageOptions,
    as_json: bool,
) -> int:
    """Remove what killed writers and builders of indexes, columns and tokens left below PATH.

    Without PATH in Penstock's cache directory. What a living process holds is never touched. What
    a killed penstock index, materialize or tokenize had finished goes, too: without this it is
    used by the same command, run again.
    """
    if path is not None and is_remote(path):
        _report(path, [], [], [], as_json=as_json, dry_run=dry_run, note=_REMOTE)
        return FINE
    root = str(cache_directory()) if path is None else locate(path)[1]
    if path is not None and not Path(root).is_dir():
        if Path(root).exists():
            message = f"{path} is a file; give the directory that it lies in."
            raise OptionError(message)
        message = f"cannot clean {path}: there is no such directory."
        raise ObjectNotFoundError(message, path=path)
    errors: list[str] = []
    removed: list[Leftover] = []
    kept: list[Leftover] = []
    for leftover in _leftovers_below(root, errors):
        undecided = older_than is not None and leftover.entry.modified < time.time() - older_than
        going = leftover.writer == "gone" or (leftover.writer == "unknown" and undecided)
        if going and not dry_run:
            going = _removed(leftover, storage_options, errors, undecided=undecided)
        (removed if going else kept).append(leftover)
    _report(path or root, removed, kept, errors, as_json=as_json, dry_run=dry_run)
    return FAILED if errors else FINE


def _leftovers_below(root: str, errors: list[str]) -> Iterator[Leftover]:
    def note(failure: OSError) -> None:
        errors.append(f"cannot list {failure.filename}: {failure.strerror}.")

    for directory, nested, _ in os.walk(root, onerror=note if Path(root).exists() else None):
        builders = builders_in(directory)
        nested[:] = sorted({*nested} - {Path(found.entry.name).name for found in builders})
        yield from builders
        yield from leftovers_in(directory)


def _removed(
    leftover: Leftover, options: StorageOptions, errors: list[str], *, undecided: bool
) -> bool:
    name = leftover.entry.name
    try:
        if is_builder(name):
            return remove_builder(name, options, undecided=undecided)
        return remove_draft(name, undecided=undecided)
    except OSError as failure:
        errors.append(f"cannot remove {leftover.entry.name}: {failure.strerror or failure}.")
        return False


def _report(  # noqa: PLR0913 (what is told, by name)
    path: str,
    removed: list[Leftover],
    kept: list[Leftover],
    errors: list[str],
    *,
    as_json: bool,
    dry_run: bool,
    note: str = "",
) -> None:
    for text in errors:
        echo(f"penstock: {text}", err=True)
    size = sum(leftover.entry.size for leftover in removed)
    if as_json:
        echo_json(
            {
                "path": path,
                "dry_run": dry_run,
                "removed": [leftover_document(leftover) for leftover in removed],
                "bytes": size,
                "kept": [leftover_document(leftover) for leftover in kept],
                "errors": errors,
                "note": note or None,
            }
        )
        return
    if note:
        echo(f"{path}: {note}")
        return
    did = "would remove" if dry_run else "removed"
    for leftover in removed:
        echo(f"{did} {leftover.entry.name} ({bytes_text(leftover.entry.size)})")
    for leftover in kept:
        echo(f"kept {leftover.entry.name} ({_WHY_KEPT[leftover.writer]})")
    echo(f"{path}: {did} {counted(len(removed), 'leftover')}, {bytes_text(size)}")
