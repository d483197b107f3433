"""What `penstock check` finds in an index, or by it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import document, invoke, succeed, written

if TYPE_CHECKING:
    from pathlib import Path


def test_a_hashed_file_that_shrank_or_is_gone_is_found(tmp_path: Path) -> None:
    one, other, kept = (written(tmp_path / f"{name}.jsonl", '{"number": 1}') for name in "abc")
    succeed("index", tmp_path)
    one.write_text("")
    assert "nothing wrong" in succeed("check", tmp_path)
    written(one, '{"number": 1}')
    succeed("index", tmp_path, "--overwrite", "--full-hash")
    one.write_text("")
    other.unlink()
    kept.write_text(kept.read_text() * 2)
    written(tmp_path / "new.jsonl", '{"number": 1}')
    done = invoke("check", tmp_path)
    assert done.exit_code == 1
    assert f"{one}: changed file: it shrank, 14 bytes then, 0 now" in done.stdout
    assert f"{other}: missing file: it was indexed, and is gone" in done.stdout
    kinds = {"changed file": 1, "missing file": 1}
    assert document("check", tmp_path, code=1)["kinds"] == kinds


def test_a_line_that_was_blanked_in_place_is_found(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", *['{"number": 1}'] * 9)
    succeed("index", tmp_path)
    assert "nothing wrong" in succeed("check", tmp_path)
    before = path.stat()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = b" " * (len(lines[4]) - 1) + b"\n"
    path.write_bytes(b"".join(lines))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = invoke("check", tmp_path)
    assert done.exit_code == 1
    assert "unusable index: it has 9 lines, and the files hold 8" in done.stdout
    assert f"penstock index {tmp_path} --overwrite" in done.stdout


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("meta.json", "cut"),
        ("sample_locations.bin", "cut"),
        ("sample_locations.bin", "gone"),
        ("file_location.txt", "cut"),
        ("file_location.txt", "gone"),
    ],
)
def test_a_damaged_index_is_a_finding(ending: str, name: str, harm: str, tmp_path: Path) -> None:
    written(tmp_path / f"a.{ending}", *['{"number": 1}' if ending == "jsonl" else "n,m"] * 9)
    succeed("index", tmp_path, "--full-hash")
    path = tmp_path / "index" / name
    if harm == "cut":
        os.truncate(path, path.stat().st_size - 3)
    else:
        path.unlink()
    done = invoke("check", tmp_path)
    assert done.exit_code == 1
    assert f"{tmp_path}: unusable index: " in done.stdout
    assert "again: penstock index " in done.stdout
    told = document("check", tmp_path, code=1)
    assert (told["kinds"], told["files"], told["errors"]) == ({"unusable index": 1}, 1, [])
    succeed("index", tmp_path, "--overwrite")
    assert "nothing wrong" in succeed("check", tmp_path)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_killed_builder_of_columns_leaves_something_to_find(
    tmp_path: Path, *, is_damaged: bool
) -> None:
    written(tmp_path / "a.jsonl", '{"number": 1}')
    succeed("index", tmp_path)
    succeed("materialize", tmp_path, "number:int64")
    assert "nothing wrong" in succeed("check", tmp_path)
    left = tmp_path / "index" / "columns" / ".penstock-building-0123-1"
    left.mkdir()
    (left / "000.arrow").write_bytes(bytes(100))
    if is_damaged:
        (tmp_path / "index" / "meta.json").write_text("{")
    assert f"{left}: leftover: 100 B of a writer that is gone" in invoke("check", tmp_path).stdout
    kinds = {"unusable index": 1} if is_damaged else {}
    assert document("check", tmp_path, code=1)["kinds"] == kinds | {"leftover": 1}
