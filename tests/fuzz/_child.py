"""A child process: one sample, damaged and read thousands of times, within limits."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import resource
import shutil
import stat
import sys
import threading
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from penstock.errors import PenstockError, StaleIndexError
from tests.fuzz._format import CHECK, Refused
from tests.fuzz._mutations import OUTSIDE, mutated
from tests.fuzz._outcomes import REFERENCE, Finding, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz._format import Door, Format, Values

SECONDS = 30
"""After which one mutation counts as hanging."""
GROWTH = 1 << 30
"""Bytes of address space that reading a sample of some kilobytes may take."""
_NO_FILE = 0.03
"""How often a metadata file becomes something that is no file."""
_NOW = 1_700_000_000
_TEXTS = (".jsonl", ".csv", ".txt", ".ndjson", ".tsv", ".json")
_DOCUMENTS = (".json", ".ndjson")


class _File(NamedTuple):
    data: bytes
    status: tuple[int, int, int]


class Sample:
    """A folder that comes back to what it was, and what lies around it."""

    def __init__(self, form: Format, base: Path) -> None:
        self.base, self.folder, self._form = base, base / "data", form
        for name in ("data", "outside/folder", "cache"):
            (base / name).mkdir(parents=True)
        os.environ["PENSTOCK_CACHE"] = str(base / "cache")
        self.outside = base / "outside" / "keep.txt"
        self.outside.write_text("kept")
        (base / "outside" / "folder" / "kept.bin").write_bytes(bytes(64))
        with patch("time.time", lambda: float(_NOW)):  # Else metadata differs from run to run.
            form.make(self.folder)
        self._files: dict[str, _File] = {}
        self._folders = {"data", "outside", "outside/folder", "cache"}
        for path in [*_below(base)]:
            name = str(path.relative_to(base))
            if path.is_dir():
                self._folders.add(name)
            else:
                self._files[name] = _File(path.read_bytes(), _status(path.lstat()))
        inside = [name.removeprefix("data/") for name in self._files if name[:5] == "data/"]
        self.targets = sorted(form.targets(sorted(inside)))

    def damage(self, chance: Random) -> tuple[str, str]:
        """Damage one file; return which, and how."""
        name = chance.choice(self.targets)
        path = self.folder / name
        if self._form.is_metadata(name) and chance.random() < _NO_FILE:
            return name, _replaced(path, chance)
        data, (_, _, modified) = self._files[f"data/{name}"]
        is_json = name.endswith(_DOCUMENTS)
        changed, told = mutated(data, chance, is_json=is_json, is_text=name.endswith(_TEXTS))
        changed = changed.replace(OUTSIDE, str(self.outside).encode())
        new = path.with_name(f"{path.name}.new")
        new.write_bytes(changed)
        if chance.random() < 0.7:  # Damage that a copy did has another time than the index says.
            modified += 1_000_000_000 * chance.randrange(1, 1000)
        os.utime(new, ns=(modified, modified))
        new.replace(path)  # What is mapped stays as it was: a map of a file that shrinks is fatal.
        return name, told

    def restore(self) -> list[str]:
        """Bring everything back; return what was changed where nothing may be."""
        changed, there = [], set()
        for path in _below(self.base):
            name = os.fspath(path)[len(os.fspath(self.base)) + 1 :]
            there.add(name)
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                if name in self._files:
                    there.remove(name)
                if name not in self._folders:
                    shutil.rmtree(path)
                    changed.append(name)
                continue
            known = self._files.get(name)
            if known is None:
                path.unlink(missing_ok=True)
                changed.append(name)
            elif _status(status) != known.status:
                self._write(name, known)
                changed.append(name)
        for name in sorted(self._folders - there):
            (self.base / name).mkdir(exist_ok=True)
            changed.append(name)
        for name in self._files.keys() - there:
            self._write(name, self._files[name])
            changed.append(name)
        return [name for name in changed if not name.startswith(("data/", "cache/"))]

    def _write(self, name: str, known: _File) -> None:
        path = self.base / name
        new = path.with_name(f"{path.name}.new")
        new.write_bytes(known.data)
        os.utime(new, ns=(known.status[2], known.status[2]))
        new.replace(path)
        self._files[name] = known._replace(status=_status(path.lstat()))


def _replaced(path: Path, chance: Random) -> str:
    """Put something else in the place of a file; return what."""
    path.unlink()
    what = chance.choice(("nothing", "a folder", "a pipe", "/dev/zero", "a link to nothing"))
    if what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    elif what != "nothing":
        path.symlink_to(what)
    return f"{what} in its place"


def _below(folder: Path) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            yield Path(at, name)


def _status(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


class _Unraisable:
    """Errors that Python only prints: in a thread, or where an object goes."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        sys.unraisablehook = self._note
        threading.excepthook = self._note

    def _note(self, told: Any) -> None:
        self.seen.append(f"ignored {told.exc_type.__name__}: {told.exc_value}")


class Fuzzer:
    """Damages, reads, judges."""

    def __init__(self, form: Format, base: Path, seed: int) -> None:
        self._form, self._seed = form, seed
        self._sample = Sample(form, base)
        self._now = base.with_name("now")
        self._ignored = _Unraisable()
        self._sound: dict[str, dict[str, Values]] = {}
        parts = {form.part(name): name for name in self._sample.targets}
        for name in parts.values():
            self._warm(name)
        self._limit()

    def _warm(self, damaged: str) -> None:
        """Read the sample as it is, so that what doors load is loaded; all must be well."""
        sound = self._sound.setdefault(self._form.part(damaged), {})
        seen = {}
        for door in self._form.doors(self._sample.folder, damaged):
            seen[door.name] = found = door.read()
            if repr(sound.setdefault(door.name, found)) != repr(found):
                raise AssertionError(f"{door.name} differs from time to time: {found!r:.500}")
            told = self._compared([door], seen, "", damaged)
            if told[0] is not Outcome.SAME:
                raise AssertionError(f"undamaged: {told}")
        if wrong := self._form.difference(seen, sound, damaged):
            raise AssertionError(f"undamaged: {wrong}")
        self._sample.restore()

    @staticmethod
    def _limit() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + GROWTH
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    def run(self, number: int) -> Finding:
        """Do the mutation of a number; return what came of it."""
        chance = Random(f"{self._form.name}/{self._seed}/{number}")
        damaged, told = self._sample.damage(chance)
        self._now.write_text(f"{damaged}: {told}", errors="replace")  # Should this be the end.
        self._ignored.seen.clear()
        try:
            outcome, why = self._judged(damaged, chance)
        finally:
            touched = self._sample.restore()
        if self._ignored.seen:
            outcome, why = Outcome.FOREIGN, "; ".join(self._ignored.seen)
        if touched:
            outcome, why = Outcome.DIFFERENT, f"changed {', '.join(touched)}"
        return Finding(self._form.name, self._seed, number, outcome, f"{damaged}: {told}", why)

    def _judged(self, damaged: str, chance: Random) -> tuple[Outcome, str]:
        form, folder = self._form, self._sample.folder
        seen: dict[str, Values] = {}
        doors = form.doors(folder, damaged)
        doors = doors[: form.always] + chance.sample(doors[form.always :], form.more)
        failures: dict[str, PenstockError] = {}
        for door in doors:
            try:
                seen[door.name] = door.read()
            except PenstockError as failure:
                if any(isinstance(one, MemoryError) for one in _chain(failure)):
                    return Outcome.MEMORY, _place(failure)
                failures[door.name] = failure
            except MemoryError as failure:
                return Outcome.MEMORY, _place(failure)
            except Exception as failure:  # noqa: BLE001 (all that is none of ours)
                return Outcome.FOREIGN, f"{door.name}: {_place(failure)}"
        told = next((f"{type(e).__name__}: {e}" for e in failures.values()), "")
        if wrong := form.difference(seen, self._sound[self._form.part(damaged)], damaged):
            return Outcome.DIFFERENT, wrong
        unopened = failures.get("open")
        # A year beyond 9999 is a value of Arrow all the same.
        is_whole = isinstance(unopened, StaleIndexError) or "Python cannot express" in told
        if form.check_tells and seen.get(CHECK) == 0 and unopened and not is_whole:
            return Outcome.DIFFERENT, f"check finds nothing wrong where: {told}"
        return self._compared(doors, seen, told, damaged)

    def _compared(
        self, doors: list[Door], seen: dict[str, Values], told: str, damaged: str
    ) -> tuple[Outcome, str]:
        """Compare with the reference, where there is one."""
        with self._now.open("a") as now:
            now.write(REFERENCE)
        ours = both = False
        for door in doors:
            try:
                expected = self._expected(door, damaged)
            except NotImplementedError:
                if told:
                    return Outcome.OURS, told
                sound = self._sound[self._form.part(damaged)]
                is_same = all(repr(sound[name]) == repr(found) for name, found in seen.items())
                return (Outcome.SAME if is_same else Outcome.OWN), ""
            except (Refused, MemoryError):
                both = True
                if door.name in seen and not (door.name == CHECK and seen[CHECK]):
                    return Outcome.DIFFERENT, f"{door.name} reads what the reference refuses"
                continue
            if door.name not in seen:
                ours = True
            elif door.name != CHECK and repr(seen[door.name]) != repr(expected):
                found = seen[door.name]
                return Outcome.DIFFERENT, f"{door.name}: {found!r:.300}, expected {expected!r:.300}"
        return (Outcome.OURS if ours else Outcome.BOTH if both else Outcome.SAME), told

    def _expected(self, door: Door, damaged: str) -> Values:
        return door.shown(self._form.reference(self._sample.folder, damaged))


def _chain(failure: BaseException | None) -> Iterator[BaseException]:
    while failure is not None:
        yield failure
        failure = failure.__cause__ or failure.__context__


def _place(failure: BaseException) -> str:
    """Return an error and the last lines that it passed through."""
    frames = traceback.extract_tb(failure.__traceback__)
    last = [f"{Path(one.filename).name}:{one.lineno}" for one in frames[-3:]]
    return f"{type(failure).__name__}: {str(failure)[:200]} ({' > '.join(last)})"


def main(form: Format, base: Path, seed: int, numbers: range) -> None:
    """Do the mutations of some numbers; leave one byte for each, and what was found, in `base`."""
    warnings.simplefilter("ignore")
    logging.disable()
    log = (base / "log").open("a")
    faulthandler.enable(log)
    fuzzer = Fuzzer(form, base / "work", seed)
    marks = os.open(base / "marks", os.O_WRONLY | os.O_CREAT)
    with (base / "findings").open("a") as findings:
        for at, number in enumerate(numbers):
            os.pwrite(marks, b"?", at)
            faulthandler.dump_traceback_later(SECONDS, exit=True, file=log)
            found = fuzzer.run(number)
            faulthandler.cancel_dump_traceback_later()
            os.pwrite(marks, found.outcome.value.encode(), at)
            if found.outcome.is_failure or len(numbers) == 1:
                findings.write(json.dumps(found.to_dict()) + "\n")
                findings.flush()
