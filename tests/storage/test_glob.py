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


def test_a_link_back_to_where_it_came_from_is_not_followed(tmp_path: Path) -> None:
    for name in ("d/a.jsonl", "d/e/b.jsonl", "out/c.jsonl", "out/f/d.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    for link, target in {
        "d/loop": ".", "d/again": ".", "d/e/up": "..", "d/out": "../out", "out/back": "../d",
        "d/self": "self",
    }.items():  # fmt: skip
        (tmp_path / link).symlink_to(target)
    names = {
        pattern: sorted(
            e.name.removeprefix(f"{tmp_path}/") for e in match(f"{tmp_path}/{pattern}")[1]
        )
        for pattern in ("d/**/*.jsonl", "d/**", "**/**/*.jsonl", "d/*/*.jsonl")
    }
    below = ["d/a.jsonl", "d/e/b.jsonl", "d/out/c.jsonl", "d/out/f/d.jsonl"]
    assert names["d/**/*.jsonl"] == below
    assert names["d/**"] == sorted([*below, "d/self"])
    assert names["**/**/*.jsonl"] == sorted(
        [*below, "out/c.jsonl", "out/f/d.jsonl", "out/back/a.jsonl", "out/back/e/b.jsonl"]
    )
    assert names["d/*/*.jsonl"] == ["d/e/b.jsonl", "d/out/c.jsonl"]


def test_a_link_that_leads_nowhere_matches(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "nowhere")
    _, (entry,) = match(f"{tmp_path}/*.jsonl")
    assert (entry.name, entry.size) == (str(tmp_path / "a.jsonl"), 0)
