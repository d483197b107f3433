"""Patterns mean the same in a bucket as on a file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage import is_pattern, match
from penstock.storage._glob import _compiled

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    "a.jsonl", "b.jsonl", ".h.jsonl", "ab.txt", "d/a.jsonl", "d/e/a.jsonl", "d/.e/a.jsonl",
    "d/e/f/b.csv", "x[1].jsonl", "x1.jsonl", "!.jsonl",
]  # fmt: skip
PARTS = st.sampled_from(
    ["*", "**", "?", "[ab]", "[!a]", "*.jsonl", "a*", "d", "e", "?.jsonl", "x[[]1].*"]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glob")
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}\n")
    return folder


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_a_pattern_matches_the_same_names_everywhere(folder: Path, parts: list[str]) -> None:
    pattern = "/".join(parts)
    try:
        _, entries = match(f"{folder}/{pattern}")
        local = {entry.name.removeprefix(f"{folder}/") for entry in entries}
    except FileNotFoundError:
        local = set()
    assert {name for name in NAMES if _compiled(pattern).fullmatch(name)} == local


def test_a_name_that_is_there_is_no_pattern(folder: Path) -> None:
    assert not is_pattern(str(folder / "x[1].jsonl"))
    assert is_pattern(str(folder / "x[2].jsonl"))
    assert not is_pattern(str(folder / "a.jsonl"))
