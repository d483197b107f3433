from __future__ import annotations

from typing import Any

from penstock.index import Profile
from tests.rounds import rounds

MANY = rounds(20_000, 1_000_000)


def drift_of(make: Any, count: int = MANY) -> list[dict[str, Any]]:
    profile = Profile()
    for first in range(0, count, 5000):
        profile.add([make(n) for n in range(first, min(count, first + 5000))], first)
    drift: list[dict[str, Any]] = profile.document()["drift"]
    return drift


def test_a_late_field_and_one_that_changes_type_are_both_found() -> None:
    late, half = MANY * 9 // 10, MANY // 2

    def record(n: int) -> dict[str, Any]:
        return {"id": n, "code": n if n < half else str(n)} | ({"new": 1} if n >= late else {})

    found = {(d["kind"], d["path"]): d for d in drift_of(record)}
    assert found.keys() == {("types", "code"), ("late", "new")}
    assert found["types", "code"]["ranges"] == {
        "int": {"count": half, "first": 0, "last": half - 1},
        "string": {"count": MANY - half, "first": half, "last": MANY - 1},
    }
    assert found["types", "code"]["text"] == (
        f"code is int in records 0 to {half - 1:,}, and string from record {half:,} on"
    )
    assert found["late", "new"]["first"] == late
    assert f"before record {late:,}" in found["late", "new"]["text"]
    assert {d["level"] for d in found.values()} == {"warning"}


def test_a_field_that_ends_is_found() -> None:
    (found,) = drift_of(lambda n: {"id": n} | ({"old": n} if n < 5000 else {}), 20_000)
    assert (found["kind"], found["level"], found["last"]) == ("gone", "warning", 4999)
    assert found["text"] == "old is missing or null after record 4,999 (5,000 values before)"


def test_null_is_as_good_as_missing() -> None:
    (found,) = drift_of(lambda n: {"x": n if n >= 15_000 else None}, 20_000)
    assert (found["kind"], found["first"]) == ("late", 15_000)


def test_what_is_rare_is_only_noted() -> None:
    (found,) = drift_of(lambda n: {"id": n} | ({"rare": 1} if n == 9000 else {}), 20_000)
    assert (found["kind"], found["level"]) == ("late", "note")
    assert found["text"] == "rare is only in record 9,000 (1 value)"


def test_integers_among_floats_are_a_weaker_note_than_texts_among_integers() -> None:
    def record(n: int) -> dict[str, Any]:
        return {"number": n if n % 2 else n / 4, "mixed": n if n % 2 else str(n)}

    levels = {d["path"]: d["level"] for d in drift_of(record, 100)}
    assert levels == {"number": "note", "mixed": "warning"}


def test_warnings_come_first() -> None:
    found = drift_of(lambda n: {"a": n if n % 2 else 0.5, "b": n if n % 2 else "x"}, 100)
    assert [d["level"] for d in found] == ["warning", "note"]


def test_parts_of_a_late_field_are_not_told_once_more() -> None:
    def record(n: int) -> dict[str, Any]:
        return {"user": {"age": n, "tags": [{"x": 1}]}} if n >= 10_000 else {}

    assert [d["path"] for d in drift_of(record, 20_000)] == ["user"]


def test_few_records_are_too_few_to_be_late() -> None:
    assert drift_of(lambda n: {"x": 1} if n > 900 else {}, 1000) == []
