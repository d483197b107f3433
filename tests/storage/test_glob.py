"""Patterns mean the same in a bucket as on a file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage import is_pattern, match
from penstock.storage._locate import compiled

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
    assert {name for name in NAMES if compiled(pattern).fullmatch(name)} == local


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
    assert names["**/**/*.jsonl"] == [
        "d/a.jsonl", "d/e/b.jsonl", "out/c.jsonl", "out/f/d.jsonl"
    ]  # fmt: skip
    assert names["d/*/*.jsonl"] == ["d/e/b.jsonl", "d/out/c.jsonl"]


def test_two_links_to_each_of_many_folders_list_a_file_once(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number:02}").mkdir()
        for link in ("x", "y") if number < 39 else ():
            (tmp_path / f"{number:02}" / link).symlink_to(f"../{number + 1:02}")
    (tmp_path / "39" / "a.jsonl").write_text("{}\n")
    _, (entry,) = match(f"{tmp_path}/00/**/*.jsonl")
    assert entry.name == f"{tmp_path}/00/{'x/' * 39}a.jsonl"
    for pattern in ("**/*.jsonl", "**/a.jsonl", "**", "**/**", "**/*/*.jsonl"):
        _, (entry,) = match(f"{tmp_path}/{pattern}")
        assert entry.name == f"{tmp_path}/39/a.jsonl"


def test_links_of_a_cache_are_followed(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "c.jsonl").write_text("{}\n")
    (tmp_path / "blobs" / "0a1b").write_text("{}\n")
    for revision in ("r1", "r2"):
        (tmp_path / "snapshots" / revision).mkdir(parents=True)
        for name in ("a.jsonl", "b.jsonl"):
            (tmp_path / "snapshots" / revision / name).symlink_to("../../blobs/0a1b")
        (tmp_path / "snapshots" / revision / "more").symlink_to("../../elsewhere")
    _, entries = match(f"{tmp_path}/snapshots/**/*.jsonl")
    assert sorted(e.name.removeprefix(f"{tmp_path}/snapshots/") for e in entries) == [
        "r1/a.jsonl", "r1/b.jsonl", "r1/more/c.jsonl", "r2/a.jsonl", "r2/b.jsonl"
    ]  # fmt: skip
    assert len(match(f"{tmp_path}/snapshots/*/more/*.jsonl")[1]) == 2


@pytest.mark.parametrize("target", ["nowhere", "/etc/passwd/x", "x" * 300, "a.jsonl"])
def test_a_link_that_leads_nowhere_matches(tmp_path: Path, target: str) -> None:
    (tmp_path / "a.jsonl").symlink_to(target)
    _, (entry,) = match(f"{tmp_path}/*.jsonl")
    assert (entry.name, entry.size) == (str(tmp_path / "a.jsonl"), 0)
