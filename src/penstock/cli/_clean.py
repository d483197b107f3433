"""`penstock clean`: away with what killed writers left, and with what files that are gone left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli._paths import leftover_document
from penstock.cli._terminal import Report
from penstock.cli._units import bytes_text, counted, parse_age
from penstock.cli._verb import FAILED, VerbCall, flag, option, verb
from penstock.datasets import files_of_entry
from penstock.errors import ObjectNotFoundError, OptionError
from penstock.index import leftover_problem, put_aside_in, remove_leftover
from penstock.storage import (
    Entry,
    Leftover,
    cache_directory,
    cache_entries,
    drafts_in,
    hidden_folders_in,
    is_remote,
    locate,
    remove_entry,
    user_of,
)

if TYPE_CHECKING:
    from penstock.storage import StorageOptions

_REMOTE = (
    "in object storage a killed writer leaves no file. Only the upload of a file above 64 MiB can "
    "stay incomplete, unseen but billed: set a lifecycle rule for the bucket that aborts "
    "incomplete multipart uploads after a day."
)

_WHY_KEPT = {
    "at work": "its writer is at work",
    "gone": "it cannot be removed",
    "unknown": "its writer cannot be determined; --older-than AGE removes it by age",
}


@verb(
    "penstock clean logs --dry-run",
    "penstock clean logs",
    "penstock clean /mnt/shared --older-than 2d",
    path=False,
)
@click.argument("below", metavar="[PATH]", required=False)
@option(
    "--older-than AGE",
    "Also what is older (30m, 12h, 2d) and on a file system without locks.",
    type=parse_age,
)
@flag("--dry-run", "Only say what would be removed.")
def clean(call: VerbCall, *, below: str | None, older_than: float | None, dry_run: bool) -> Report:
    """Remove what killed writers and builders of indexes, columns and tokens left below PATH.

    An index or tokens that a killed builder had put aside to replace them are brought back first.
    Without PATH in Penstock's cache directory, and there also indexes and columns of local files
    that are gone. What a living process holds is never touched. What a killed penstock index,
    materialize or tokenize had finished goes, too: without this it is used by the same command,
    run again.
    """
    errors: list[str] = []
    if below is not None and is_remote(below):
        return _report(below, [], [], [], errors, dry_run=dry_run, note=_REMOTE)
    root = str(cache_directory()) if below is None else locate(below)[1]
    if below is not None and not Path(root).is_dir():
        if Path(root).exists():
            raise OptionError(f"{below} is a file; give the directory that it lies in.")
        raise ObjectNotFoundError(f"cannot clean {below}: there is no such directory.", path=below)
    removed: list[Leftover] = []
    kept: list[Leftover] = []
    restored = [*_restored_below(root, errors, dry_run=dry_run)]
    entries = _entries_of_gone_files() if below is None else {}
    for leftover in [*_leftovers_below(root, errors), *entries]:
        undecided = older_than is not None and leftover.entry.modified < time.time() - older_than
        going = leftover.writer == "gone" or (leftover.writer == "unknown" and undecided)
        if leftover in entries:
            going = going and (dry_run or remove_entry(Path(leftover.entry.name), undecided=True))
        elif going and dry_run:
            going = leftover_problem(leftover.entry.name, call.options) is None
        elif going:
            going = _removed(leftover, call.options, errors, undecided=undecided)
        if going or os.path.lexists(leftover.entry.name):  # Its writer may have ended meanwhile.
            (removed if going else kept).append(leftover)
    return _report(below or root, removed, kept, restored, errors, dry_run=dry_run, of=entries)


def _restored_below(root: str, errors: list[str], *, dry_run: bool) -> Iterator[str]:
    """Give indexes that killed builders have put aside their places again; yield those."""
    for directory, _, _ in os.walk(root):
        for aside, final in put_aside_in(directory):
            try:
                if not dry_run:
                    aside.rename(final)
            except FileNotFoundError:
                continue  # A builder has brought it back meanwhile.
            except OSError as failure:
                errors.append(f"cannot bring back {final}: {failure.strerror}.")
                continue
            yield str(final)


def _leftovers_below(root: str, errors: list[str]) -> Iterator[Leftover]:
    def note(failure: OSError) -> None:
        if not isinstance(failure, FileNotFoundError):  # A builder may end meanwhile.
            errors.append(f"cannot list {failure.filename}: {failure.strerror}.")

    for directory, nested, _ in os.walk(root, onerror=note):
        folders = hidden_folders_in(directory)
        nested[:] = sorted({*nested} - {Path(found.entry.name).name for found in folders})
        yield from folders
        yield from drafts_in(directory)


def _entries_of_gone_files() -> dict[Leftover, str]:
    """Return the indexes and columns in the cache none of whose files are there, with the first."""
    found = {}
    for entry in cache_entries():
        files = files_of_entry(entry.path)
        if files is not None and not any(map(os.path.lexists, files)):
            facts = Entry(str(entry.path), entry.bytes, entry.used)
            found[Leftover(facts, user_of(entry.path))] = files[0]
    return found


def _removed(
    leftover: Leftover, options: StorageOptions, errors: list[str], *, undecided: bool
) -> bool:
    name = leftover.entry.name
    try:
        return remove_leftover(name, options, undecided=undecided)
    except FileNotFoundError:
        pass
    except OSError as failure:
        errors.append(f"cannot remove {name}: {failure.strerror or failure}.")
    return False


def _report(  # noqa: PLR0913 (what became of what)
    path: str,
    removed: list[Leftover],
    kept: list[Leftover],
    restored: list[str],
    errors: list[str],
    *,
    dry_run: bool,
    note: str | None = None,
    of: Mapping[Leftover, str] | None = None,
) -> Report:
    """Report what became of leftovers; `of` are the files that entries of the cache had."""
    made_of = of or {}
    in_use = [one for one in made_of if one.writer == "at work"]
    did, brought = ("would remove", "would bring") if dry_run else ("removed", "brought")
    size = sum(leftover.entry.size for leftover in removed)
    total = f"{did} {counted(len(removed), 'leftover')}, {bytes_text(size)}"
    report = Report(
        *(f"{brought} back {final}" for final in restored),
        *(
            f"{did} {one.entry.name} ({bytes_text(one.entry.size)})"
            + (f": {made_of[one]} is gone" if one in made_of else "")
            for one in removed
        ),
        *(
            f"kept {one.entry.name} "
            f"({'a process uses it' if one in in_use else _WHY_KEPT[one.writer]})"
            for one in kept
        ),
        f"{path}: {note or total}",
        path=path,
        dry_run=dry_run,
        removed=[leftover_document(one) | {"of": made_of.get(one)} for one in removed],
        bytes=size,
        kept=[leftover_document(one) for one in kept],
        restored=restored,
        note=note,
        errors=errors,
    )
    report.complain(FAILED, *errors)
    return report
