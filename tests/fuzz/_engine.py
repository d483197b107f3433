"""Runs mutations in child processes; a child that dies is one outcome, and the next goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz._known import KNOWN_DEATHS
from tests.fuzz._outcomes import REFERENCE, Finding, Outcome, Tally

ROOT = Path(__file__).parents[2]
_EACH, _FEWEST = 4000, 500
"""Mutations that one child does: at most, and at least where there are as many."""
_MEMORY = Path("/dev/shm")


def fuzz(form: str, seed: int, numbers: range, processes: int = 2) -> Tally:
    """Do the mutations of these numbers; return what came of them."""
    each = min(_EACH, max(_FEWEST, -(-len(numbers) // processes)))
    chunks = [numbers[at : at + each] for at in range(0, len(numbers), each)]
    tally = Tally(form)
    with ThreadPoolExecutor(processes) as pool:
        for part in pool.map(lambda chunk: _chunk(form, seed, chunk), chunks):
            tally.add(part)
    return tally


def _chunk(form: str, seed: int, numbers: range) -> Tally:
    tally = Tally(form)
    while numbers:
        if (form, seed, numbers[0]) in KNOWN_DEATHS:
            tally.counts[Outcome.KNOWN] += 1
            numbers = numbers[1:]
            continue
        known = (n for n in numbers if (form, seed, n) in KNOWN_DEATHS)
        some = range(numbers[0], next(known, numbers[-1] + 1))
        numbers = numbers[_some(form, seed, some, tally) :]
    return tally


def _some(form: str, seed: int, numbers: range, tally: Tally) -> int:
    """Run a child; return how many mutations are done with, the one that ended it included."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as base:
        program = [sys.executable, "-m", "tests.fuzz", "--child", base, "--format", form]
        program += ["--seed", str(seed), "--first", str(numbers[0]), "--count", str(len(numbers))]
        done = subprocess.run(
            program, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False
        )
        marks, now = _read(Path(base, "marks")), _read(Path(base, "now"))
        log = _read(Path(base, "log")) + done.stderr
        found = [json.loads(line) for line in _read(Path(base, "findings")).splitlines()]
    for mark in marks.replace("?", ""):
        tally.counts[Outcome(mark)] += 1
    tally.findings += [Finding.from_dict(one) for one in found]
    if done.returncode and not (marks.endswith("?") and _was_ended(done.returncode, log)):
        raise RuntimeError(f"the child for {form} failed by itself: {log[-3000:]}")
    if marks.endswith("?"):
        outcome = Outcome.DEATH
        if now.endswith(REFERENCE):
            outcome = Outcome.BOTH
        elif "Timeout (" in log:
            outcome = Outcome.TIMEOUT
        elif "bad_alloc" in log or "MemoryError" in log:
            outcome = Outcome.MEMORY
        number = numbers[len(marks) - 1]
        tally.counts[outcome] += 1
        why = f"exit code {done.returncode}: {_last_words(log)}"
        tally.findings.append(Finding(form, seed, number, outcome, now, why))
    return len(marks)


def _was_ended(code: int, log: str) -> bool:
    """Whether a child ended by a signal or for its time; else the fuzzer itself is at fault."""
    return code < 0 or "Timeout (" in log


def _environment() -> dict[str, str]:
    # Allocators that reserve address space ahead would count as growth.
    quiet = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])  # The code beside these tests.
    return {**os.environ, **quiet, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _last_words(log: str) -> str:
    head, _, last = log.rpartition("hread 0x")  # The main thread is told of last.
    calls = [line.rpartition("/")[2] for line in last.splitlines() if "File " in line]
    told = [line for line in head.splitlines() if line.startswith(("Fatal", "Timeout"))]
    return " | ".join([*told[-1:], *calls[:6]])[:600]
