"""The verbs on servers, through fsspec, behind links, and in home folders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import document, invoke, succeed, written

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.http_files import HttpFiles

LINES = [json.dumps({"id": n, "text": "x" * (n % 5)}) for n in range(20)]


@pytest.fixture(params=["http", "fsspec", "home", "link"])
def place(
    request: pytest.FixtureRequest,
    web: HttpFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """A PATH of 20 records."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    written(tmp_path / "home" / "logs" / "a.jsonl", *LINES)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "logs").symlink_to(tmp_path / "home" / "logs")
    return {
        "http": web.put("/a.jsonl", "".join(f"{line}\n" for line in LINES).encode()) + "?x=1",
        "fsspec": f"local://{tmp_path}/home/logs",
        "home": "~/logs",
        "link": f"{tmp_path}/data",
    }[request.param]


def test_every_reading_verb_reads(place: str, tmp_path: Path) -> None:
    assert document("info", place)["records"] == 20
    assert document("show", place, "3") == [{"id": 3, "text": "xxx"}]
    assert document("check", place)["findings"] == 0
    assert document("profile", place)["records"] == 20
    assert document("plan", place, "--batch-size", "8")["steps"] == 3
    assert document("convert", place, tmp_path / "copy.jsonl.zst")["records"] == 20
    assert document("index", place, "--overwrite")["records"] == 20
    succeed("materialize", place, "id:int64")
    assert len(document("materialize", place, "--list")["columns"]) == 1
    succeed("info", place)


def test_nothing_is_left_beside_what_is_only_read(place: str, tmp_path: Path) -> None:
    succeed("index", place)
    beside = sorted(path.name for path in (tmp_path / "home" / "logs").iterdir())
    assert beside == ["a.jsonl", *(["index"] if place == "~/logs" else [])]


def test_a_place_that_is_only_read_is_no_target(web: HttpFiles, tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", *LINES)
    for target in (f"{web.url}/copy", f"{web.url}/copy.jsonl", "hf://datasets/a/b/copy"):
        done = invoke("convert", path, target)
        assert done.exit_code == 3
        assert (
            f"cannot write {target}: {target.partition('://')[0]}:// is a read-only" in done.stderr
        )
    assert not web.asked


def test_clean_goes_through_no_link(tmp_path: Path) -> None:
    written(tmp_path / "data" / "a.jsonl", *LINES)
    left = tmp_path / "other" / ".a.jsonl.0123456789abcdef.penstock-tmp"
    written(left, "half")
    (tmp_path / "data" / "linked").symlink_to(tmp_path / "other")
    succeed("clean", tmp_path / "data", "--older-than", "0s")
    assert left.exists()
    assert str(left) in succeed("clean", tmp_path / "other", "--older-than", "0s")
    assert not left.exists()


def test_an_unknown_place_is_a_usage_error() -> None:
    done = invoke("info", "nothing://a/b")
    assert done.exit_code == 2
    assert "https://" in done.stderr
