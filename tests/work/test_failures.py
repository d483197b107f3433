"""Errors go from one process to another and are still the same."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest

from penstock.errors import SchemaMismatchError, WorkerError
from penstock.work import error_of, failure_of
from tests.work import units
from tests.work.units import FormedError, MuteError, OddError, TwoWordsError


def raised(how: Any) -> BaseException:
    try:
        how()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def sent(error: BaseException) -> BaseException:
    return error_of(pickle.loads(pickle.dumps(failure_of(error))))


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        (units.odd, OddError, "too odd"),
        (units.two_words, TwoWordsError, "odd: by nature"),
        (units.key, KeyError, "'missing'"),
        (units.leave, SystemExit, "3"),
        # Where the type itself cannot be kept, its name is.
        (units.formed, WorkerError, "FormedError: because of nature"),
        (units.unknown, WorkerError, "unknown.<locals>.InnerError: not known elsewhere"),
        (units.mute, WorkerError, "MuteError: (it cannot say what went wrong)"),
    ],
)
def test_type_and_text_arrive_or_else_a_text_that_names_the_type(
    how: Any, kind: type[BaseException], text: str
) -> None:
    error = sent(raised(how))
    assert (type(error), str(error)) == (kind, text)
    shown = "".join(traceback.format_exception(error))
    assert f"in {how.__name__}" in shown  # Where it arose.


def test_notes_arrive_once_and_causes_are_told() -> None:
    error = sent(raised(units.odd))
    assert error.__notes__ == ["In truth, a note"]
    assert "KeyError: 'missing'" in str(error.__cause__)


def test_details_of_our_own_errors_arrive() -> None:
    error = sent(SchemaMismatchError("does not fit", path="a.jsonl", line_number=7))
    assert vars(error) == {
        "fact": "does not fit", "remedy": "", "path": "a.jsonl", "line_number": 7,
    }  # fmt: skip


@pytest.mark.parametrize("kind", [FormedError, MuteError])
def test_whatever_arrives_can_be_shown(kind: type[Exception]) -> None:
    error = sent(raised(units.formed if kind is FormedError else units.mute))
    assert kind.__name__ in "".join(traceback.format_exception(error))
