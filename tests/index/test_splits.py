"""Which files are read: those of a split, of a saved dataset, and none twice without a word."""

from __future__ import annotations

import gzip
import json
import logging
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import penstock
from penstock.datasets import ArrowRows, ParquetRows
from penstock.errors import ObjectNotFoundError, OptionError, SchemaMismatchError
from penstock.index._splits import split_of
from tests.cli.commands import document, invoke

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def write(folder: Path, *names: str) -> Path:
    """Write files with one record each, which holds the file's name."""
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.table({"name": [name]}), file)
        elif name.endswith(".arrow"):
            feather.write_feather(pa.table({"name": [name]}), file, compression="uncompressed")
        elif name.endswith(".csv"):
            file.write_text(f"id,name\n1,{name}\n")
        else:
            text = json.dumps({"name": name}).encode()
            file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder


def names(what: Any, **options: Any) -> list[str]:
    return [record["name"] for record in penstock.open(what, **options)]


def said(caplog: pytest.LogCaptureFixture, what: Any, **options: Any) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "penstock"):
        penstock.open(what, **options)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("train-00000-of-00002.parquet", "train"),
        ("data/train/0001.parquet", "train"),
        ("train/test-00000-of-00001.parquet", "train"),
        ("en/c4-validation.00003-of-00008.json.gz", "validation"),
        ("gsm8k_test.jsonl", "test"),
        ("Dev.jsonl", "validation"),
        ("split=eval/0.parquet", "test"),
        ("train2017/0.csv", "train"),
        ("data/train_sft-00000-of-00001.parquet", "train_sft"),
        ("data/en-00000-of-00001.parquet", "en"),
        ("data-00000-of-00001.arrow", None),
        ("train_test.jsonl", None),
        ("contest/latest.jsonl", None),
    ],
)
def test_names_of_hubs_speak_of_splits(path: str, split: str | None) -> None:
    assert split_of(path) == split


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet", "arrow", "json.gz"])
def test_a_split_is_read_alone_and_without_one_the_log_says_that_splits_are_mixed(
    ending: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = [f"data/train-0000{n}-of-00002.{ending}" for n in range(2)]
    test, val = f"data/test-00000-of-00001.{ending}", f"val/all.{ending}"
    folder = write(tmp_path / "d", *train, test, val)
    assert names(folder, split="train") == train
    name = ending.replace("json.gz", "jsonl")
    assert names(folder, split="train", format=name) == train
    assert names(folder, split="dev") == names(folder, split="validation") == [val]
    assert names(f"{folder}/data/*", split="test") == [test]
    assert names([folder / "data", folder / "val"], split="eval") == [test]
    assert names([folder / train[1], folder / test], split="train") == [train[1]]
    assert len(names(folder)) == 4
    (line,) = said(caplog, f"{folder}/**/*.{ending}")
    assert "are of several splits by their names, and all are read" in line
    assert "train (2 files)" in line
    assert "split='train' (--split train) reads one of them" in line
    assert said(caplog, folder, split="test") == []
    assert said(caplog, [folder / one for one in (*train, test)]) == []  # Each was named.
    with pytest.raises(OptionError, match=r"no file of that name: .*train \(2\)"):
        penstock.open(folder, split="extra")


def test_other_names_are_folders_or_files_without_their_endings(tmp_path: Path) -> None:
    write(tmp_path, "en/0.jsonl", "fr.jsonl", "train_sft-00000-of-00001.jsonl")
    assert names(tmp_path, split="en") == ["en/0.jsonl"]
    assert names(tmp_path, split="fr") == ["fr.jsonl"]
    assert names(tmp_path, split="train_sft") == ["train_sft-00000-of-00001.jsonl"]
    with pytest.raises(OptionError, match="for files, not for records"):
        penstock.open([{"a": 1}], split="train")


def test_a_split_has_an_index_of_its_own_that_new_files_are_added_to(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", "train-1.jsonl", "test-1.jsonl")
    assert names(folder) == ["test-1.jsonl", "train-1.jsonl"]
    assert names(folder, split="train") == ["train-1.jsonl"]
    loader = penstock.DataLoader(penstock.open(folder, split="train"), batch_size=1)
    write(folder, "train-2.jsonl", "test-2.jsonl", "train-0.jsonl")
    expected = ["train-1.jsonl", "train-0.jsonl", "train-2.jsonl"]  # New files go behind.
    assert names(folder, split="train") == expected
    resumed = penstock.DataLoader(penstock.open(folder, split="train"), batch_size=1)
    state = loader.state_dict()
    with pytest.warns(UserWarning, match="2 records were appended"):
        resumed.load_state_dict(state)
    assert [batch[0]["name"] for batch in resumed] == expected[:1]
    assert len(names(folder)) == 5


def test_folders_called_key_value_stay_fields_within_a_split(tmp_path: Path) -> None:
    write(tmp_path, "train/lang=en/0.parquet", "test/lang=fr/0.parquet")
    source = penstock.open(tmp_path, split="train")
    assert source[:] == [{"name": "train/lang=en/0.parquet", "lang": "en"}]
    assert ParquetRows(tmp_path, split="train")[:] == source[:]
    assert len(penstock.DataLoader(source, batch_size=1, num_workers=1)) == 1


def test_the_command_line_reads_a_split(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", "train-1.jsonl", "train-2.jsonl", "test.jsonl")
    done = invoke("info", folder)
    assert done.exit_code == 0
    assert done.stderr.count("--split train") == 1
    assert document("info", folder, "--split", "train")["records"] == 2
    assert invoke("index", folder, "--split", "train").exit_code == 0
    for verb in ("show", "profile", "check"):
        done = invoke(verb, folder, "--split", "train")
        assert (done.exit_code, done.stderr) == (0, "")
        assert "test.jsonl" not in done.stdout
    assert document("info", folder, "--split", "train")["index"]["records"] == 2
    assert invoke("convert", folder, tmp_path / "out", "--split", "train").exit_code == 0
    assert len(penstock.open(tmp_path / "out")) == 2


@pytest.mark.s3
def test_splits_and_saved_datasets_are_read_in_an_object_store(
    s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    saved(tmp_path / "d" / "train", 2)
    write(tmp_path / "d" / "test", "a.arrow")
    for path in (tmp_path / "d").rglob("*.*"):
        s3_server.put(bucket, str(path.relative_to(tmp_path)), path.read_bytes())
    options = {"storage_options": s3_server.storage_options}
    expected = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    assert names(f"s3://{bucket}/d", split="train", **options) == expected
    assert names(f"s3://{bucket}/d/train", **options) == expected
    assert names(f"s3://{bucket}/d/train/*.arrow", **options) == expected


def saved(folder: Path, shards: int) -> Path:
    """Write what `save_to_disk` of Hugging Face datasets writes, and what lies beside it later."""
    files = [f"data-{n:05d}-of-{shards:05d}.arrow" for n in range(shards)]
    write(folder, *files, "data-00000-of-00001.arrow", "cache-15cff33482118899.arrow")
    (folder / "dataset_info.json").write_text("{}")
    state = {"_data_files": [{"filename": name} for name in files], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    return folder


def test_state_json_names_the_files_of_a_saved_dataset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = saved(tmp_path / "d", 2)
    expected = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    assert names(folder) == names(folder, format="arrow") == names(f"{folder}/*.arrow") == expected
    assert [record["name"] for record in ArrowRows(folder)] == expected
    assert names(f"{folder}/cache-*.arrow") == ["cache-15cff33482118899.arrow"]
    assert names(folder / "data-00000-of-00001.arrow") == ["data-00000-of-00001.arrow"]
    left = {name.rpartition("/")[2] for name in document("info", folder)["left_out"]}
    assert left >= {"data-00000-of-00001.arrow", "cache-15cff33482118899.arrow"}
    assert any("4 files not read as Arrow IPC: cache-" in line for line in caplog.messages)
    (folder / expected[1]).unlink()
    with pytest.raises(ObjectNotFoundError, match=r"state\.json names 'data-00001-of-00002"):
        penstock.open(folder)


@pytest.mark.parametrize("text", ["{}", "[", '{"_data_files": 1}', "\xff"])
def test_another_state_json_is_of_no_saved_dataset(text: str, tmp_path: Path) -> None:
    write(tmp_path, "a.arrow", "cache-1.arrow")
    (tmp_path / "state.json").write_text(text, "latin-1")
    assert names(tmp_path) == ["a.arrow", "cache-1.arrow"]


def test_a_dict_of_saved_datasets_has_splits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for split in ("train", "test"):
        saved(tmp_path / split, 1)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert names(tmp_path, split="test") == ["data-00000-of-00001.arrow"]
    assert any("test (1 file), train (1 file)" in line for line in said(caplog, tmp_path))
    assert len(names(tmp_path)) == 2


def doubled(tmp_path: Path, kind: str) -> tuple[Path, str]:
    folder = tmp_path / "d"
    if kind == "compressed":
        write(folder, "a.jsonl", "a.jsonl.gz")
        return folder, "a.jsonl.gz is, by its name, a copy of a.jsonl: records are read twice"
    if kind == "snapshots":
        one, other = (f"snapshots/{sign * 40}/a.parquet" for sign in "ab")
        write(folder, one, other)
        return folder, f"{other} is, by its folder, another version of {one}"
    write(folder, "a.jsonl", "b.jsonl")
    (os.symlink if kind == "link" else os.link)(folder / "a.jsonl", folder / "latest.jsonl")
    return folder, "latest.jsonl is the same file as a.jsonl: records are read twice"


@pytest.mark.parametrize("kind", ["link", "hard link", "compressed", "snapshots"])
def test_files_that_hold_the_same_are_named(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, line = doubled(tmp_path, kind)
    assert [line in one for one in said(caplog, folder)] == [True]
    caplog.clear()
    done = invoke("info", folder)
    assert done.exit_code == 0


def test_files_that_hold_the_same_are_named_in_a_list_and_on_the_command_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, line = doubled(tmp_path, "link")
    assert line in invoke("show", folder).stderr
    files = [folder / "a.jsonl", folder / "latest.jsonl"]
    assert any(line in one for one in said(caplog, files))
    assert said(caplog, [files[0], folder / "b.jsonl"]) == []


def test_tables_without_a_common_column_are_refused(tmp_path: Path) -> None:
    for name, columns in {"a": ["x", "y"], "b": ["y", "z"], "c": ["z"], "d": []}.items():
        table = pa.table({column: [1] for column in columns})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    assert len(penstock.open(tmp_path)) == 3  # Each shares a column with one before it.
    pq.write_table(pa.table({"other": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    assert len(penstock.open(tmp_path)) == 3
    pq.write_table(pa.table({"q": [1]}), tmp_path / "z.parquet")
    match = r"a\.parquet and .*z\.parquet have no column in common: x, y, z; q"
    for options in ({}, {"columns": ["x"]}):
        with pytest.raises(SchemaMismatchError, match=match):
            ParquetRows(tmp_path, **options)  # type: ignore[arg-type]
    found = document("check", tmp_path, code=1)
    assert found["kinds"] == {"differing schema": 1}
