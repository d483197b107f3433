"""Files as people name them: every ending opens, in `open` and in every verb."""

from __future__ import annotations

import bz2
import gzip
import json
import logging
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import penstock
from penstock.datasets import JsonlDataset, ParquetRows
from penstock.errors import OptionError
from penstock.index import create_default_jsonl_indexer
from penstock.index._formats import format_by_name
from tests.cli.commands import document, invoke, succeed
from tests.cli.token_samples import bpe
from tests.datasets.mds_files import write_mds
from tests.datasets.megatron_files import write_megatron

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.servers.s3_server import S3Server

RECORDS = [{"id": number, "text": f"text {number}"} for number in range(200)]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS)
CSV = "id,text\n" + "".join(f"{record['id']},{record['text']}\n" for record in RECORDS)
TEXTS = {
    ".jsonl": LINES,
    ".ndjson": LINES,
    ".json": LINES,
    ".array.json": json.dumps(RECORDS, indent=2),
    ".csv": CSV,
    ".tsv": CSV.replace(",", "\t"),
    "": LINES,
    ".log": json.dumps(RECORDS),
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
    ".zstd": zstandard.compress,
}


def write(folder: Path, ending: str, stem: str = "a") -> Path:
    """Write all records into a file with an ending."""
    packed = max((end for end in PACKED if ending.endswith(end)), key=len)
    path = folder / f"{stem}{ending}"
    path.write_bytes(PACKED[packed](TEXTS[ending.removesuffix(packed)].encode()))
    return path


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("ending", TEXTS)
def test_every_ending_opens(ending: str, packed: str, tmp_path: Path) -> None:
    source = penstock.open(write(tmp_path, ending + packed))
    assert source[:] == RECORDS
    assert source.arrow([7, 150]).to_pylist() == [RECORDS[7], RECORDS[150]]
    assert source.raw(199).strip()[-10:] in TEXTS[ending].encode()
    loader = penstock.DataLoader(source, {"id": "int64"}, batch_size=64, shuffle=True)
    assert sorted(n for batch in loader for n in batch["id"].tolist()) == [*range(200)]


@pytest.mark.parametrize(
    "ending", [".json.gz", ".array.json", ".array.json.bz2", ".tsv.zst", ".csv.gz", ".bz2"]
)
def test_every_verb_sees_the_same_records(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path, ending)
    pattern = tmp_path / f"*{ending}"
    for name in (path, pattern):
        assert document("info", name)["records"] == 200
        assert document("check", name)["records"] == 200
        assert "text 199" in succeed("show", name, "199")
    assert document("convert", path, tmp_path / "out" / "all.jsonl")["records"] == 200
    assert penstock.open(tmp_path / "out" / "all.jsonl")[:] == RECORDS
    told = document("index", path, "--validate", "--profile", "--index", tmp_path / "index")
    assert (told["records"], told["bad_lines"]) == (200, 0)
    source = penstock.open(path, index=tmp_path / "index")
    assert source[3] == RECORDS[3]
    assert succeed("profile", path, "--index", tmp_path / "index")
    assert succeed("materialize", path, "id:int64", "--index", tmp_path / "index")


def test_a_frame_that_a_checked_scan_met_is_read_alone(tmp_path: Path) -> None:
    frames = [zstandard.compress(CSV[at : at + 500].encode()) for at in range(0, len(CSV), 500)]
    path = tmp_path / "a.csv.zst"
    path.write_bytes(b"".join(frames))
    assert invoke("index", path, "--validate", "--index", tmp_path / "index").exit_code == 0
    source = penstock.open(path, index=tmp_path / "index")
    assert source.stream_files == {}
    assert source[[150, 3, 77]] == [RECORDS[150], RECORDS[3], RECORDS[77]]


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_read_arrays_and_bz2_in_order(workers: int, tmp_path: Path) -> None:
    for ending in (".array.json", ".json.bz2"):
        source = penstock.open(write(tmp_path, ending))
        loader = penstock.DataLoader(source, batch_size=50, num_workers=workers)
        assert [record for batch in loader for record in batch] == RECORDS


def test_bz2_is_shuffled_through_columns_alone(tmp_path: Path) -> None:
    source = penstock.open(write(tmp_path, ".csv.bz2"))
    with pytest.raises(OptionError, match=r"a\.csv\.bz2 is compressed with bz2, which can only be"):
        penstock.DataLoader(source, batch_size=10, shuffle=True)
    assert source.stream_files == {0: "bz2"}


@pytest.mark.s3
@pytest.mark.parametrize("ending", [".json.gz", ".array.json", ".array.json.zst", ".csv.bz2"])
def test_they_open_in_an_object_store(
    ending: str, s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    data = write(tmp_path, ending).read_bytes()
    s3_server.put(bucket, f"data/a{ending}", data)
    options = s3_server.storage_options
    for what in (f"s3://{bucket}/data/a{ending}", f"s3://{bucket}/data"):
        assert penstock.open(what, storage_options=options)[[5, 60]] == [RECORDS[5], RECORDS[60]]


class TestFolders:
    def test_all_names_of_lines_are_one_source_and_what_is_left_out_is_named_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number, ending in enumerate([".jsonl", ".ndjson", ".json.gz", ".jsonl.bz2"]):
            write(tmp_path, ending, f"{number}")
        for name in ("README.md", "dataset_info.json", "notes.txt"):
            (tmp_path / name).write_text("{\n}")
        with caplog.at_level(logging.WARNING, "penstock"):
            source = penstock.open(tmp_path)
        assert len(source) == 800
        assert source[[0, 200, 400, 600]] == [RECORDS[0]] * 4
        (line,) = [record.getMessage() for record in caplog.records]
        left = "3 files not read as JSON Lines: dataset_info.json, notes.txt, README.md"
        assert line == f"{tmp_path}: {left}"
        for verb in ("info", "check"):
            done = invoke(verb, tmp_path)
            assert (done.exit_code, done.stderr) == (0, "")
            assert done.stdout.count(left) == 1
            assert len(document(verb, tmp_path)["left_out"]) == 3

    def test_json_beside_other_records_is_no_data(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "a.parquet")
        (tmp_path / "info.json").write_text('{"n": 5}\n')
        assert isinstance(penstock.open(tmp_path), ParquetRows)
        assert len(document("check", tmp_path)["left_out"]) == 1

    def test_json_beside_parts_of_other_formats_is_no_data(self, tmp_path: Path) -> None:
        (tmp_path / "tokens").mkdir()
        write_megatron(tmp_path / "tokens" / "d", [[[1, 2]], [[3]]])
        write_mds(tmp_path / "mds", {"n": "int"}, [{"n": 1}])
        for name in ("tokens", "mds"):
            (tmp_path / name / "config.json").write_text('{"n": 5}\n')
            assert not isinstance(penstock.open(tmp_path / name), JsonlDataset)

    def test_arrays_of_a_folder_are_one_source(self, tmp_path: Path) -> None:
        for stem in "ab":
            write(tmp_path, ".array.json", stem)
        source = penstock.open(tmp_path)
        assert source[[199, 200]] == [RECORDS[199], RECORDS[0]]
        assert document("info", tmp_path)["format"] == "json"

    def test_a_list_of_any_names_is_one_source(self, tmp_path: Path) -> None:
        paths = [write(tmp_path, ".json", "b"), write(tmp_path, ".jsonl.zst", "a")]
        assert [len(penstock.open(paths)), *penstock.open(paths)[[0, 399]]] == [
            400,
            RECORDS[0],
            RECORDS[199],
        ]
        with pytest.raises(OptionError, match="1 of JSON Lines and 1 of CSV"):
            penstock.open([*paths[:1], write(tmp_path, ".csv")])

    def test_folders_and_patterns_in_a_list_leave_out_what_they_do_alone(
        self, tmp_path: Path
    ) -> None:
        for name in "ab":
            (tmp_path / name).mkdir()
            (tmp_path / name / "README.md").write_text("no data")
            write(tmp_path / name, ".jsonl")
        named = write(tmp_path, ".json", "named")
        (tmp_path / "b" / "info.json").write_text('{"n": 5}\n')
        what = [tmp_path / "a", f"{tmp_path}/b/*", named]
        for refresh in ("auto", "rebuild"):
            assert len(penstock.open(what, refresh=refresh)) == 600
        with pytest.raises(OptionError, match=r"README\.md is named beside"):
            penstock.open([named, tmp_path / "a" / "README.md"])

    def test_a_format_that_is_chosen_names_what_it_leaves_out(self, tmp_path: Path) -> None:
        write(tmp_path, ".jsonl")
        write(tmp_path, ".csv")
        assert document("check", tmp_path, "--format", "csv")["left_out"] == [f"{tmp_path}/a.jsonl"]

    def test_a_name_that_says_nothing_is_told_of_the_option(self, tmp_path: Path) -> None:
        path = write(tmp_path, ".csv").rename(tmp_path / "rows.txt")
        with pytest.raises(OptionError, match="format='csv'"):
            penstock.open(path)
        assert len(penstock.open(path, format="csv")) == 200

    def test_the_format_that_an_error_names_chooses_all_its_names(self, tmp_path: Path) -> None:
        (tmp_path / "train").mkdir()
        write(tmp_path / "train", ".ndjson.gz")
        write(tmp_path, ".jsonl")
        write(tmp_path, ".csv.gz")
        with pytest.raises(OptionError, match="holds 2 of JSON Lines and 1 of CSV") as caught:
            penstock.open(tmp_path)
        (name,) = re.findall(r"format='(\w+)'", str(caught.value))
        assert len(penstock.open(tmp_path, format=name)) == 400

    @pytest.mark.parametrize("below", ["", "train/"])
    @pytest.mark.parametrize("ending", [".ndjson.gz", ".jsonl"])
    def test_the_pattern_that_an_error_names_matches(
        self, ending: str, below: str, tmp_path: Path
    ) -> None:
        (tmp_path / below).mkdir(parents=True, exist_ok=True)
        write(tmp_path / below, ending)
        write(tmp_path / below, ".csv.gz")
        with pytest.raises(OptionError, match="holds 1 of JSON Lines and 1 of CSV") as caught:
            penstock.open(f"{tmp_path}/{below}*")
        (pattern,) = re.findall("'(.*)'", str(caught.value))
        assert len(penstock.open(pattern)) == 200

    def test_the_seeds_indexer_reads_the_names_that_it_always_did(self, tmp_path: Path) -> None:
        for ending in TEXTS:
            write(tmp_path, f"{ending}.bz2", "a")
            write(tmp_path, ending, "b")
        for ending in (".jsonl.gz", ".jsonl.zst", ".jsonl.zstd"):
            write(tmp_path, ending, "c")
        write(tmp_path, ".jsonl", "D").rename(tmp_path / "D.JSONL")
        create_default_jsonl_indexer(tmp_path)()
        files = (tmp_path / "index" / "file_location.txt").read_text().split()
        assert files == ["b.jsonl", "c.jsonl.gz", "c.jsonl.zst", "c.jsonl.zstd", "D.JSONL"]


def test_a_compressed_file_without_its_ending_is_told_what_to_do(tmp_path: Path) -> None:
    for ending in (".gz", ".bz2", ".zst"):
        path = write(tmp_path, f".json{ending}").rename(tmp_path / f"data{ending[1:]}")
        with pytest.raises(OptionError, match=re.escape(f"Rename it: {path}{ending}")):
            penstock.open(path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.json"])
def test_a_compressed_file_under_a_plain_name_is_never_read_as_text(
    name: str, tmp_path: Path
) -> None:
    path = write(tmp_path, ".json.gz").rename(tmp_path / name)
    for verb in (["info"], ["check"], ["show"], ["index", "--validate"]):
        done = invoke(verb[0], path, *verb[1:])
        assert done.exit_code in {1, 2}  # Bad CSV is a finding.
        assert f"Rename it: {path}.gz" in done.stdout + done.stderr
    with pytest.raises(OptionError, match=re.escape(f"Rename it: {path}.gz")):
        penstock.open(path)


def test_a_damaged_gzip_file_is_named_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(b"no gzip")
    told = document("check", path, code=1)
    assert [one["kind"] for one in told["shown"]] == ["damaged file"]


@pytest.mark.parametrize("ending", [".csv.gz", ".csv.bz2"])
def test_bad_rows_of_compressed_csv_are_found(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(PACKED[ending[4:]](b"a,b\n1,2\nodd\n3,4\n"))
    (found,) = document("check", path, code=1)["shown"]
    assert (found["kind"], found["line"], found["begins"]) == ("malformed row", 3, "b'odd'")
    path.write_bytes(PACKED[ending[4:]](b'a,b\n1,2\n"odd,4\n'))
    (found,) = document("check", path, code=1)["shown"]
    assert "the quote at byte 8 is never closed" in found["reason"]


def test_tokens_are_made_of_every_name_of_lines(tmp_path: Path) -> None:
    bpe(tmp_path / "bpe.json")
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number, ending in enumerate([".jsonl", ".ndjson", ".json.gz"]):
        write(folder, ending, f"{number}")
    (folder / "about.json").write_text("{\n}")
    given = ["--tokenizer", tmp_path / "bpe.json", "--json"]
    done = json.loads(succeed("tokenize", folder, tmp_path / "tokens", *given))
    assert done["documents"] == 600
    (folder / "array.json").write_text('[{"text": "a b"}, {"text": "c"}]')
    done = json.loads(succeed("tokenize", folder / "array.json", tmp_path / "others", *given))
    assert done["documents"] == 2


def test_a_name_says_json_only_with_a_compression_behind_it() -> None:
    assert format_by_name("a.json") is None
    assert format_by_name("a.json.gz") is format_by_name("a.ndjson")
