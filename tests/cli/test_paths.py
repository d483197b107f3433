from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli._paths import find
from penstock.errors import ObjectNotFoundError, OptionError
from penstock.storage import StorageOptions
from tests.cli.commands import written

if TYPE_CHECKING:
    from pathlib import Path

NONE = StorageOptions()


def test_a_file_is_itself_whatever_its_name(tmp_path: Path) -> None:
    file = written(tmp_path / "records.txt", "{}")
    found = find(str(file), NONE)
    assert (found.kind, [f.path for f in found.files]) == ("file", [str(file)])


def test_a_directory_is_all_files_below_it_in_natural_order(tmp_path: Path) -> None:
    for name in ("part-10.jsonl", "part-9.jsonl", "b.jsonl.gz", "_x.jsonl", ".h.jsonl", "n.txt"):
        written(tmp_path / name, "{}")
    written(tmp_path / "nested" / "part-0.jsonl", "{}")
    found = find(str(tmp_path), NONE)
    assert found.kind == "directory"
    assert [f.path.removeprefix(f"{tmp_path}/") for f in found.files] == [
        "b.jsonl.gz", "nested/part-0.jsonl", "part-9.jsonl", "part-10.jsonl",
    ]  # fmt: skip


def test_a_file_url_names_files_and_directories(tmp_path: Path) -> None:
    file = written(tmp_path / "with space" / "a.jsonl", "{}")
    assert find(file.as_uri(), NONE).kind == "file"
    found = find(file.parent.as_uri(), NONE)
    assert (found.kind, len(found.files)) == ("directory", 1)
    assert find(f"{file.parent.as_uri()}/*.jsonl", NONE).files[0].exists_sync()


def test_a_pattern_matches_files_in_reading_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "d10/a.jsonl",
        "d9/part-10.jsonl",
        "d9/part-9.jsonl",
        "d9/x.ndjson",
        "d9/_m.jsonl",
    ):
        written(tmp_path / name, "{}")
    (tmp_path / "d9" / "folder.jsonl").mkdir()
    monkeypatch.chdir(tmp_path)
    found = find("d*/*", NONE)
    assert found.kind == "pattern"
    assert [f.path for f in found.files] == [
        "d9/part-9.jsonl",
        "d9/part-10.jsonl",
        "d10/a.jsonl",
    ]
    assert len(find("**/*.jsonl", NONE).files) == 3


def test_a_name_with_brackets_is_a_name_before_it_is_a_pattern(tmp_path: Path) -> None:
    file = written(tmp_path / "a[1].jsonl", "{}")
    written(tmp_path / "a1.jsonl", "{}")
    assert [f.path for f in find(str(file), NONE).files] == [str(file)]


@pytest.mark.parametrize("name", ["nothing", "nothing*.jsonl"])
def test_what_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ObjectNotFoundError, match="nothing"):
        find(str(tmp_path / name), NONE)


def test_another_format_is_refused_by_its_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "table.parquet")
    with pytest.raises(OptionError, match=r"table\.parquet holds Parquet, not lines"):
        find(str(tmp_path / "table.parquet"), NONE)


def test_leftovers_are_those_beside_the_files(logs: Path, dead_draft: Path) -> None:
    assert [one.entry.name for one in find(str(logs), NONE).leftovers()] == [str(dead_draft)]
    assert len(find(f"{logs}/*.zst", NONE).leftovers()) == 1
    assert find(f"{logs}/part-00000.jsonl.zst", NONE).leftovers() == []
