"""The table of outcomes at the end of a long run, also where workers of xdist did the work."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.fuzz._outcomes import Outcome, Tally, table
from tests.rounds import LONG

if TYPE_CHECKING:
    import pytest

OUTCOMES = "outcomes of fuzzing"
"""The property of a test's report that holds a format and its counts."""


def told(tally: Tally) -> dict[str, object]:
    """Return a tally in types that travel with a report."""
    counts = {outcome.value: count for outcome, count in tally.counts.items()}
    return {"form": tally.form, "counts": counts}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, if this run was a long one."""
    reports = [one for some in terminalreporter.stats.values() for one in some]
    found = {
        value["form"]: Tally(value["form"], Counter(_counts(value["counts"])))
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == OUTCOMES
    }
    if found and LONG:
        terminalreporter.section("outcomes of damage")
        terminalreporter.write_line(table([*found.values()]))


def _counts(letters: dict[str, int]) -> dict[Outcome, int]:
    return {Outcome(letter): count for letter, count in letters.items()}
