"""Columns, views and vocabularies that a stranger wrote: nothing elsewhere changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock
from penstock.datasets._vocabulary import vocabulary
from penstock.datasets.columns._folder import decode_column
from penstock.errors import CorruptIndexError
from penstock.index import create_default_jsonl_indexer
from penstock.storage import cache_directory
from tests.cli.commands import invoke
from tests.forged import ODD, put_odd, tree

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [{"id": n, "tags": ["a", "b"][: n % 3]} for n in range(10)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Ten records with a column of lists, beside a folder of somebody else."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    penstock.open(folder).materialize({"tags": "list<string>", "id": "int64"})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("keep")
    return folder


def column(data: Path, name: str = "tags-list<string>") -> Path:
    return data / "index" / "columns" / name


def forge(data: Path, **values: Any) -> None:
    path = column(data) / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "name", ["{mine}", "../../../mine", "..", ".", "", "a/b", "mine", ".x-0123456789abcdef"]
)
def test_forged_names_of_lists_remove_nothing(name: str, data: Path) -> None:
    mine = data.parent / "mine"
    (column(data).parent / "mine").mkdir()
    forge(data, lists=[name.format(mine=mine)])
    before = tree(data.parent)
    assert "id" in invoke("materialize", data, "--list").stdout
    assert tree(data.parent) == before
    assert invoke("materialize", data, "--drop").exit_code == 0
    assert (mine / "precious.txt").exists()
    assert (column(data).parent / "mine").exists()
    assert (data / "a.jsonl").exists()


def test_lists_that_name_another_column_do_not_remove_it(data: Path) -> None:
    other = column(data).parent / "other-0123456789abcdef"
    column(data, "id-int64").rename(other)
    forge(data, lists=[other.name])
    assert invoke("materialize", data, "tags", "--drop").exit_code == 0
    assert (other / "meta.json").exists()


@pytest.mark.parametrize("name", ["../x", "a/../b", "lists-0/..", "lists-0/a/b", "..", "lists-9/a"])
def test_names_of_files_in_a_column_are_plain(name: str, data: Path) -> None:
    path = column(data) / "meta.json"
    told = json.loads(path.read_text())
    assert decode_column(path.read_bytes(), "meta.json").sizes == told["sizes"]
    forged = json.dumps({**told, "sizes": {name: 1}}).encode()
    with pytest.raises(CorruptIndexError, match=r"meta\.json"):
        decode_column(forged, "meta.json")


def test_a_meta_that_is_nested_without_end_is_damage() -> None:
    with pytest.raises(CorruptIndexError, match="is damaged"):
        decode_column(b'{"x":' + b"[" * 100_000, "meta.json")


@pytest.mark.parametrize("target", ["columns", "column", "file", "loop"])
def test_links_among_columns_are_neither_followed_nor_copied(target: str, data: Path) -> None:
    mine, columns = data.parent / "mine", data / "index" / "columns"
    if target == "columns":
        columns.rename(mine / "columns")
        columns.symlink_to(mine / "columns")
    elif target == "column":
        (columns / "link").symlink_to(mine)
    elif target == "file":
        (column(data) / "link.bin").symlink_to(mine / "precious.txt")
    else:
        (columns / "loop").symlink_to(".")
    before = tree(mine)
    create_default_jsonl_indexer(data, overwrite=True)()
    assert tree(mine) == before
    assert not [path for path in (data / "index").rglob("*") if path.is_symlink()]
    assert {path.stat().st_nlink for path in mine.rglob("*.txt")} == {1}
    assert len(penstock.open(data)) == 10


def test_nothing_is_written_or_dropped_through_a_link(data: Path) -> None:
    mine, columns = data.parent / "mine", data / "index" / "columns"
    columns.rename(mine / "columns")
    columns.symlink_to(mine / "columns")
    before = tree(mine)
    source = penstock.open(data).materialize({"id": "int32"})
    assert source.read([3], pa.schema({"id": pa.int32()})).to_pydict() == {"id": [3]}
    assert invoke("materialize", data, "--drop").exit_code == 0
    assert tree(mine) == before


@pytest.mark.parametrize("what", ["folder", "schema"])
def test_units_of_columns_are_not_written_through_links(what: str, data: Path) -> None:
    class Interrupt:
        def add(self, count: int) -> None:
            raise KeyboardInterrupt

    mine = data.parent / "mine"
    with pytest.raises(KeyboardInterrupt):
        penstock.open(data).materialize({"id": "int16"}, progress=Interrupt())
    (left,) = column(data).parent.glob(".penstock-building-*")
    path = left if what == "folder" else left / "schema.arrow"
    if what == "folder":
        left.rename(data.parent / "gone")
    path.unlink(missing_ok=True)
    path.symlink_to(mine if what == "folder" else mine / "precious.txt")
    before = tree(mine)
    penstock.open(data).materialize({"id": "int16"})
    assert column(data, "id-int16").exists()
    assert tree(mine) == before


def test_the_lock_of_columns_is_not_made_through_a_link(data: Path) -> None:
    mine, root = data.parent / "mine" / "precious.txt", data / "index" / "columns"
    (root / ".lock").unlink()
    (root / ".lock").symlink_to(data.parent / "mine" / "made")
    with pytest.raises(OSError, match=r"cannot lock .* remove the link"):
        penstock.open(data).materialize({"id": "int16"})
    assert [path.name for path in mine.parent.iterdir()] == ["precious.txt"]


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", ["meta.json", "values.bin"])
def test_a_column_with_something_odd_in_it_is_not_used(name: str, kind: str, data: Path) -> None:
    folder = column(data)
    told = json.loads((folder / "meta.json").read_text())
    put_odd(folder / name, kind)
    if kind == "pipe" and name != "meta.json":
        forge(data, sizes={**told["sizes"], name: 0})
    source = penstock.open(data)
    assert source.read([2], {"tags": "list<string>"}).to_pydict() == {"tags": [["a", "b"]]}
    again = source.materialize({"tags": "list<string>"})
    assert again.read([2], {"tags": "list<string>"}).to_pydict() == {"tags": [["a", "b"]]}


@pytest.mark.parametrize("kind", [*ODD, "zip", "nonsense"])
def test_a_view_or_a_vocabulary_in_the_cache_that_is_odd_is_made_again(
    kind: str, data: Path
) -> None:
    def found() -> tuple[list[int], list[int]]:
        source = penstock.open(data)
        ids = [record["id"] for record in source.where("id > 7")]
        return ids, vocabulary(source, "id", 10).to_pylist()

    before = found()
    kept = [*(cache_directory() / "views").glob("*.[na][pr]*")]
    assert {path.suffix for path in kept} == {".npy", ".arrow"}
    for path in kept:
        if kind in ODD:
            put_odd(path, kind)
        else:
            path.write_bytes({"zip": b"PK\3\4" + b"x" * 100, "nonsense": b"\x93NUMPY\1\0("}[kind])
    assert found() == before
