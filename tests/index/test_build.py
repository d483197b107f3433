from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import (
    CorruptIndexError,
    IndexExistsError,
    ObjectNotFoundError,
    OptionError,
    StaleIndexError,
)
from penstock.index import IndexStore, SampleData, create_default_jsonl_indexer
from penstock.index._indexer import FileTextLinesIndexer
from penstock.jsonl import JsonlFile


def rows_of(folder: Path) -> list[list[int]]:
    data = np.fromfile(folder / "index" / "sample_locations.bin", "<u8")
    return data.reshape(-1, 3).tolist()  # type: ignore[no-any-return]


def names_of(folder: Path) -> list[str]:
    return (folder / "index" / "file_location.txt").read_text().splitlines()


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="")


def test_blank_lines_are_no_samples_and_a_last_line_needs_no_newline(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"a":1}\r\n\n  \t\r\n{"a":2}\n\n{"a":3}')
    create_default_jsonl_indexer(tmp_path)()
    assert rows_of(tmp_path) == [[0, 3, 9], [0, 18, 8], [0, 27, 7]]


def test_files_come_in_natural_order_without_regard_to_case(tmp_path: Path) -> None:
    for name in ("b10.jsonl", "B9.JSONL", "a/z.jsonl", "A2.jsonl", "a10.jsonl", "c.jsonl.zst"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with JsonlFile(tmp_path / name).writer_sync() as writer:
            writer.write({"name": name})
    create_default_jsonl_indexer(tmp_path)()
    assert names_of(tmp_path) == [
        "A2.jsonl", "a10.jsonl", "a/z.jsonl", "B9.JSONL", "b10.jsonl", "c.jsonl.zst",
    ]  # fmt: skip


def test_what_is_not_data_is_never_scanned(tmp_path: Path) -> None:
    for name in (
        "a.jsonl", ".hidden.jsonl", "_success.jsonl", "_tmp/b.jsonl", ".git/c.jsonl",
        "index/d.jsonl", "tokenized-samples/e.jsonl", "notes.txt", "sub/index/f.jsonl",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    (tmp_path / "index").rmdir()
    (tmp_path / "empty.jsonl").write_text("\n \n")
    create_default_jsonl_indexer(tmp_path)()
    assert names_of(tmp_path) == ["a.jsonl"]


def test_an_index_that_is_there_is_a_value_error_unless_told(tmp_path: Path) -> None:
    write(tmp_path, a_dot_jsonl="1\n2\n")
    create_default_jsonl_indexer(tmp_path)()
    with pytest.raises(ValueError, match="overwrite=True") as raised:
        create_default_jsonl_indexer(tmp_path)()
    assert isinstance(raised.value, IndexExistsError)
    write(tmp_path, a_dot_jsonl="1\n")
    create_default_jsonl_indexer(tmp_path, overwrite=True)()
    assert rows_of(tmp_path) == [[0, 0, 2]]


def test_an_update_appends_and_renumbers_nothing(tmp_path: Path) -> None:
    write(tmp_path, b_dot_jsonl="1\n22\n", empty_dot_jsonl="")
    create_default_jsonl_indexer(tmp_path)()
    before = IndexStore(tmp_path).load()
    write(tmp_path, b_dot_jsonl="1\n22\n333\n", a_dot_jsonl="0\n", empty_dot_jsonl="4444\n")
    create_default_jsonl_indexer(tmp_path, update=True)()
    after = IndexStore(tmp_path).load()
    assert rows_of(tmp_path) == [[0, 0, 2], [0, 2, 3], [1, 0, 2], [0, 5, 4], [2, 0, 5]]
    assert names_of(tmp_path) == ["b.jsonl", "a.jsonl", "empty.jsonl"]
    assert after.meta is not None
    assert before.meta is not None
    assert after.meta.fingerprint_at(2) == before.fingerprint != after.fingerprint
    create_default_jsonl_indexer(tmp_path, update=True)()
    assert IndexStore(tmp_path).load().fingerprint == after.fingerprint


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("1\n2\n", "1\n3\n4\n", "bytes then"),
        ("1\n2\n", "1\n", "shrank"),
        ("1\n2\n", "9\n8\n", "equal size"),
    ],
)
def test_an_update_refuses_what_would_renumber(
    old: str, new: str, why: str, tmp_path: Path
) -> None:
    write(tmp_path, a_dot_jsonl=old)
    create_default_jsonl_indexer(tmp_path)()
    write(tmp_path, a_dot_jsonl=new)
    with pytest.raises(StaleIndexError, match=why) as raised:
        create_default_jsonl_indexer(tmp_path, update=True)()
    assert "--overwrite" in str(raised.value)
    assert len(rows_of(tmp_path)) == 2


def test_an_update_compares_what_was_hashed_of_files_that_grew(tmp_path: Path) -> None:
    lines = ["1\n"] * 100_000
    write(tmp_path, a_dot_jsonl="".join(lines))
    create_default_jsonl_indexer(tmp_path, full_hash=True)()
    write(tmp_path, a_dot_jsonl="".join([*lines, "2\n"]))
    create_default_jsonl_indexer(tmp_path, update=True)()
    lines[50_000] = "3\n"  # Far from both ends, which fingerprints are made of.
    write(tmp_path, a_dot_jsonl="".join([*lines, "2\n", "4\n"]))
    with pytest.raises(StaleIndexError, match="some bytes are not those") as raised:
        create_default_jsonl_indexer(tmp_path, update=True)()
    assert "--overwrite" in str(raised.value)
    assert len(rows_of(tmp_path)) == 100_001


def test_an_unfinished_line_may_be_ended_by_an_update(tmp_path: Path) -> None:
    write(tmp_path, a_dot_jsonl="1\n2")
    create_default_jsonl_indexer(tmp_path)()
    write(tmp_path, a_dot_jsonl="1\n2\n3\n")
    create_default_jsonl_indexer(tmp_path, update=True)()
    assert rows_of(tmp_path) == [[0, 0, 2], [0, 2, 1], [0, 4, 2]]


def test_a_last_line_that_goes_on_keeps_its_number(tmp_path: Path) -> None:
    write(tmp_path, a_dot_jsonl="1\n2", b_dot_jsonl="1\n")
    create_default_jsonl_indexer(tmp_path)()
    before = IndexStore(tmp_path).load()
    write(tmp_path, a_dot_jsonl="1\n23\n4\n")
    create_default_jsonl_indexer(tmp_path, update=True)()
    assert rows_of(tmp_path) == [[0, 0, 2], [0, 2, 3], [1, 0, 2], [0, 5, 2]]
    after = IndexStore(tmp_path).load().meta
    assert after is not None
    assert after.fingerprint_at(3) == before.fingerprint
    assert [bool(run.finished) for run in after.runs] == [True, False, False]


def test_everything_written_is_kept_out_of_git_and_backups(tmp_path: Path) -> None:
    write(tmp_path, a_dot_jsonl="1\n")
    create_default_jsonl_indexer(tmp_path)()
    assert (tmp_path / "index" / ".gitignore").read_text() == "*\n"
    tag = (tmp_path / "index" / "CACHEDIR.TAG").read_text()
    assert tag.startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "index"]


def test_a_folder_without_json_lines_says_so(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="no JSON Lines"):
        create_default_jsonl_indexer(tmp_path)
    with pytest.raises(FileNotFoundError):
        create_default_jsonl_indexer(tmp_path / "missing")


def test_a_name_with_a_newline_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a\nb.jsonl").write_text("1\n")
    with pytest.raises(OptionError, match="newline"):
        create_default_jsonl_indexer(tmp_path)()
    assert not (tmp_path / "index").exists()


def test_every_byte_is_hashed_on_request(tmp_path: Path) -> None:
    write(tmp_path, a_dot_jsonl="1\n")
    create_default_jsonl_indexer(tmp_path, full_hash=True)()
    (file,) = json.loads((tmp_path / "index" / "meta.json").read_text())["files"]
    assert len(file["hash"]) == 32


class Doubled:
    """Stores every line twice in a file of its own."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.calls: list[object] = []

    def prepare(self, text_file_path: str) -> None:
        self.calls.append(Path(text_file_path).name)

    def create_samples(self, text_line: bytes) -> list[SampleData]:
        with self.target.open("ab") as file:
            file.write(2 * text_line)
        return [SampleData(text_line, str(self.target))] * 2

    def finish(self, is_last_file: bool) -> None:  # noqa: FBT001
        self.calls.append(is_last_file)


def test_a_custom_generator_keeps_the_seeds_protocol(tmp_path: Path) -> None:
    write(tmp_path, a_dot_jsonl="1\n22\n", b_dot_jsonl="333\n")
    generator = Doubled(tmp_path / "doubled.bin")
    paths = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    FileTextLinesIndexer(paths, IndexStore(tmp_path), generator)()
    assert generator.calls == ["a.jsonl", False, "b.jsonl", True]
    assert rows_of(tmp_path) == [[0, 0, 2], [0, 2, 2], [0, 4, 3], [0, 7, 3], [0, 10, 4], [0, 14, 4]]
    assert names_of(tmp_path) == ["doubled.bin"]
    index = IndexStore(tmp_path).load()
    assert index[2].byte_offset == 4
    assert index[2].file_path == str(tmp_path / "doubled.bin")


def test_the_fast_way_and_the_line_by_line_way_agree(tmp_path: Path) -> None:
    write(tmp_path, a_dot_jsonl="1\n22\n", b_dot_jsonl="333\n")
    paths = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    FileTextLinesIndexer(paths, IndexStore(tmp_path))()
    fast = rows_of(tmp_path), names_of(tmp_path)
    store = IndexStore(tmp_path)
    store.clear()

    class Foreign:
        """An index store of somebody else."""

        init_store, add_sample, close = store.init_store, store.add_sample, store.close

    FileTextLinesIndexer(paths, Foreign())()  # type: ignore[arg-type]
    assert (rows_of(tmp_path), names_of(tmp_path)) == fast


def test_a_store_that_is_not_closed_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, a_dot_jsonl="1\n")
    store = IndexStore(tmp_path)
    with pytest.raises(OptionError, match="init_store"):
        store.add_sample(str(tmp_path / "a.jsonl"), 0, 2)
    store.init_store()
    store.add_sample(str(tmp_path / "a.jsonl"), 0, 2)
    with pytest.raises(OptionError, match="does not lie below"):
        store.add_sample("/etc/passwd", 0, 2)
    assert not store.exists()
    del store
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_clear_removes_an_index_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, a_dot_jsonl="1\n")
    store = IndexStore(tmp_path)
    store.clear()
    create_default_jsonl_indexer(tmp_path)()
    assert store.exists()
    store.clear()
    assert not store.exists()
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "precious.txt").write_text("keep")
    with pytest.raises(CorruptIndexError, match="not an index"):
        store.clear()
    assert (tmp_path / "index" / "precious.txt").exists()
