"""What lies at a path, where several formats, or parts of one, lie together."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.datasets import MegatronTokens, ParquetRows
from penstock.errors import OptionError
from penstock.index._formats import LINES, format_by_bytes, format_named
from tests.cli.commands import invoke
from tests.datasets.mds_files import write_mds
from tests.datasets.megatron_files import write_megatron
from tests.datasets.token_folders import some_documents, write_concat

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("below", ["", "m"])
def test_a_megatron_pair_inside_a_token_folder_opens(below: str, tmp_path: Path) -> None:
    folder = write_concat(tmp_path / "tokens", some_documents(1, 9), 16).path
    (folder / below).mkdir(exist_ok=True)
    write_megatron(folder / below / "d", [[[1, 2]], [[3]]])
    assert isinstance(penstock.open(folder / below / "d.bin"), MegatronTokens)
    assert not isinstance(penstock.open(folder), MegatronTokens)


def test_a_folder_above_whole_mds_folders_is_not_broken(tmp_path: Path) -> None:
    write_mds(tmp_path / "root" / "train", {"n": "int"}, [{"n": 1}])
    assert invoke("check", tmp_path / "root").exit_code == 2  # No finding.
    with pytest.raises(OptionError):
        penstock.open(tmp_path / "root")


def test_a_lone_half_of_a_pair_is_found_behind_another_file(tmp_path: Path) -> None:
    write_megatron(tmp_path / "d", [[[1, 2]], [[3]]])
    (tmp_path / "d.idx").unlink()
    (tmp_path / "a.md").write_text("about")
    done = invoke("check", tmp_path)
    assert done.exit_code == 1
    assert "its .idx is missing" in done.stdout


def test_the_reason_of_a_damaged_index_of_tokens_is_reported(tmp_path: Path) -> None:
    write_concat(tmp_path, some_documents(1, 9), 16)
    (tmp_path / "index" / "meta.json").write_text("{")
    done = invoke("check", tmp_path)
    assert done.exit_code == 1
    assert "meta.json is damaged" in done.stdout


def test_an_index_is_refused_where_the_format_has_none(tmp_path: Path) -> None:
    write_mds(tmp_path / "mds", {"n": "int"}, [{"n": 1}])
    with pytest.raises(OptionError, match="MDS has no index"):
        penstock.open(tmp_path / "mds", index=tmp_path / "nowhere")


def test_parquet_files_that_a_pattern_finds_need_no_ending(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({"n": [1, 2]}), tmp_path / name)
    source = penstock.open(str(tmp_path / "*"))
    assert isinstance(source, ParquetRows)
    assert [record["n"] for record in source[:]] == [1, 2, 1, 2]
    assert invoke("info", tmp_path / "*").exit_code == 0


def test_first_bytes_of_binary_formats_stand_at_the_very_beginning() -> None:
    assert format_by_bytes(b"\xef\xbb\xbf \n{") is LINES
    for head, name in {
        b"PAR1": "parquet",
        b"ARROW1": "arrow",
        b"ORC": "orc",
        b"Obj\x01": "avro",
    }.items():
        assert format_by_bytes(head) is format_named(name)
    assert format_by_bytes(b" PAR1") is None


@pytest.mark.parametrize(
    "files",
    [
        ("a.csv", "b.jsonl"),
        ("simple/a.csv", "simple/b.jsonl"),
        ("a.csv", "deep/er/b.ndjson"),
        ("x/a.CSV", "x/y/b.parquet"),
        ("x/a.tsv.gz", "x/b.csv", "y/c.parquet"),
    ],
)
def test_the_format_of_a_remedy_opens(files: tuple[str, ...], tmp_path: Path) -> None:
    for name in files:
        path = tmp_path / "d" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.table({"n": [1]}), path)
        else:
            text = b'{"n": 1}\n' if "json" in name else b"n\n1\n"
            path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    with pytest.raises(OptionError, match="Choose by format='") as told:
        penstock.open(tmp_path / "d")
    chosen = str(told.value).partition("format='")[2].partition("'")[0]
    assert penstock.open(tmp_path / "d", format=chosen)[0] == {"n": 1}
