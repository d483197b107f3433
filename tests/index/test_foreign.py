"""Files of other kinds than are read here are named for what they are, whatever their names say."""

from __future__ import annotations

import gzip
import io
import lzma
import sqlite3
import struct
import tarfile
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.errors import MalformedLineError, OptionError, SchemaMismatchError
from penstock.jsonl import JsonlFile
from tests.cli.commands import invoke

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def packed(name: str, content: bytes = b'{"a": 1}\n') -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.jsonl"), io.BytesIO())
    return file.getvalue()


def arrays() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.arange(3))
    return file.getvalue()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
PAGE = b"<!DOCTYPE html>\n<html><body>404, not found</body></html>\n"
KINDS = {
    "a.tar": (tarred(), r"a tar archive.*tar -xf"),
    "a.zip": (packed("a.jsonl"), r"a zip archive.*unzip"),
    "a.jsonl.xz": (lzma.compress(b"{}\n"), r"an xz file.*xz -dk"),
    "a.csv.lz4": (b"\x04\x22\x4d\x18\x64\x40", r"an lz4 file.*lz4 -d"),
    "a.npz": (arrays(), r"a file of NumPy arrays.*pyarrow\.table\(dict\(numpy\.load\("),
    "a.npy": (b"\x93NUMPY\x01\0v\0{", r"a NumPy array .*numpy\.load"),
    "a.xlsx": (packed("[Content_Types].xml"), r"an Excel workbook.*pandas\.read_excel"),
    "a.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", r"an Excel workbook.*Save it as CSV"),
    "a.pt": (packed("model/data.pkl"), r"a file of PyTorch.*list of dicts"),
    "a.pkl": (b"\x80\x04\x95\x0b\0", r"a pickle.*list of dicts"),
    "a.h5": (b"\x89HDF\r\n\x1a\n", r"an HDF5 file.*h5py"),
    "a.db": (b"SQLite format 3\0\x10\0", r"an SQLite database.*pandas\.read_sql"),
    "a.duckdb": (b"\1\2\3\4\5\6\7\x08DUCK\x40" + bytes(7), r"a DuckDB database.*to_arrow_table"),
    "a.7z": (b"7z\xbc\xaf\x27\x1c\0\4", r"a 7z archive.*7z x"),
    "0": (struct.pack("<Q", 20) + b"\1\2\3\4\n\x12" + bytes(22), r"a TFRecord file.*penstock\.str"),
    "a.tfrecord-00000-of-00002": (b"\0\1\2", r"a TFRecord file"),
    "a.lance": (b"\0\1\2LANC", r"a file of Lance.*lance\.dataset"),
    "a": (b"PARE\x2c\0\0\0", r"an encrypted Parquet file.*decryption_properties="),
    "pointer": (POINTER, r"a pointer of git-lfs.*git lfs pull"),
    "page": (PAGE, r"a web page.*downloaded"),
    "error": (b'<?xml version="1.0"?><Error/>', r"an XML document.*downloaded"),
}
TEXTS = {"pointer": POINTER, "page": PAGE, "zip": packed("a"), "tar": tarred()}


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_named_with_a_remedy_that_is_no_format(name: str, tmp_path: Path) -> None:
    data, match = KINDS[name]
    file = tmp_path / "d" / name
    file.parent.mkdir()
    file.write_bytes(data)
    for what in (file, file.parent, f"{file.parent}/*"):
        with pytest.raises(OptionError, match=f"{name} is {match}") as told:
            penstock.open(what)
        assert "format=" not in str(told.value)
    for format_name in ("jsonl", "json", "csv", "parquet", "arrow", "orc", "avro"):
        if file.suffix not in (".lance", ".tfrecord-00000-of-00002"):  # Said by their names alone.
            with pytest.raises(OptionError, match=f"{name} is {match}"):
                penstock.open(file, format=format_name)
    assert invoke("info", file).exit_code == 2


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "tsv", "parquet", "arrow", "orc"])
@pytest.mark.parametrize("kind", TEXTS)
def test_a_name_that_promises_a_format_does_not_hide_the_kind(
    kind: str, ending: str, tmp_path: Path
) -> None:
    file = tmp_path / f"a.{ending}"
    file.write_bytes(TEXTS[kind])
    with pytest.raises(OptionError, match="which is not read here"):
        penstock.open(file)
    assert not (tmp_path / "cache" / "indexes").exists() or not [*tmp_path.glob("cache/indexes/*")]


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "inside"])
@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.json.gz"])
def test_a_name_of_a_compressed_file_does_not_hide_the_kind(
    name: str, compress: type[bytes], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(compress(POINTER))
    with pytest.raises(OptionError, match="a pointer of git-lfs"):
        penstock.open(tmp_path / name)
    if name.startswith("a.jsonl"):
        with pytest.raises(OptionError, match="a pointer of git-lfs"):
            [*JsonlFile(tmp_path / name).iter_records_sync()]


@pytest.mark.s3
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "a"])
def test_the_kind_is_named_in_an_object_store(name: str, s3_server: S3Server, bucket: str) -> None:
    s3_server.put(bucket, name, POINTER)
    with pytest.raises(OptionError, match="a pointer of git-lfs"):
        penstock.open(f"s3://{bucket}/{name}", storage_options=s3_server.storage_options)


@pytest.mark.parametrize(
    "text",
    [
        "PARENT_ID,ORCID\n1,2\n",
        "PAR1,DUCK\n1,2\n",
        "bird_id,DUCKS\n1,2\n",
        "version,https\n1,2\n",
        "[id],[name]\n1,2\n",
        "{a},b\n1,2\n",
        '{"a": 1};b\n1;2\n',
        "html,xml\n1,2\n",
    ],
)
def test_text_that_begins_like_another_kind_is_still_csv(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert len(penstock.open(tmp_path / "a.csv")) == 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"a": 1, "b": 2}\n{"a": 2, "b": 3}\n', "jsonl"),
        ('\ufeff\n{"a":"x,y"}\n', "jsonl"),
        ('[{"a": 1},\n{"a": 2}]', "json"),
        ('[\n  {"a": 1}\n]', "json"),
        ('[{"a": 1}]', "json"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_json_called_csv_is_named(text: str, name: str, ending: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{ending}").write_text(text)
    said = rf"a\.{ending} holds JSON, where CSV is expected.*format='{name}'"
    with pytest.raises(OptionError, match=said):
        penstock.open(tmp_path / f"a.{ending}")
    assert penstock.open(tmp_path / f"a.{ending}", format=name)[0]["a"] in (1, "x,y")


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a"])
def test_text_of_wide_letters_is_named_with_its_conversion(
    name: str, encoding: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes('{"a": "é"}\n'.encode(encoding))
    with pytest.raises(MalformedLineError, match=f"is {encoding};.*iconv -f {encoding} -t UTF-8"):
        penstock.open(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "encoding", "command"),
    [
        ("“a” – €", "cp1252", "iconv -f WINDOWS-1252 -t UTF-8"),
        ("日本語テスト", "shift_jis", "iconv -f ENCODING.*WINDOWS-1252 .*SHIFT_JIS '日本語テスト"),
        ("中文测试", "gb18030", "iconv -f ENCODING.*GB18030 '中文测试"),
    ],
)
def test_text_that_is_not_utf_8_is_shown_in_the_encodings_that_fit(
    text: str, encoding: str, command: str, tmp_path: Path
) -> None:
    for number, csv in enumerate((f"id,text\n1,{text}\n", f"id,{text}\n1,2\n")):
        (tmp_path / f"{number}.csv").write_bytes(csv.encode(encoding))
        with pytest.raises((SchemaMismatchError, MalformedLineError), match=command) as told:
            _ = penstock.open(tmp_path / f"{number}.csv")[:]
        assert "LATIN1" not in str(told.value)


def test_an_index_kept_from_another_call_says_nothing_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text('{"a": 1}\n{"a": 2}\n'.replace("{", "x {", 1))
    assert len(penstock.open(file, format="jsonl")) == 2
    for verb in (["info"], ["show"], ["check"], ["profile"], ["materialize", "--list"]):
        done = invoke(verb[0], file, *verb[1:])
        assert done.exit_code == 2
        assert "cannot tell what" in done.stderr
    assert invoke("info", file, "--format", "jsonl").exit_code == 0


@pytest.mark.parametrize("kind", ["jsonl", "json.gz", "parquet"])
def test_a_folder_of_files_without_an_ending_is_read_by_first_bytes(
    kind: str, tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "manifest.txt").write_text("{}")
    for number in range(3):
        file = folder / f"00000000000{number}{'.gz' if kind == 'json.gz' else ''}"
        if kind == "parquet":
            pq.write_table(pa.table({"n": [number]}), file)
        else:
            text = b'{"n": %d}\n' % number if number else b""  # The first has no record.
            file.write_bytes(gzip.compress(text) if kind == "json.gz" else text)
    expected = [{"n": number} for number in range(kind != "parquet", 3)]
    assert penstock.open(folder)[:] == expected
    assert penstock.open(folder)[:] == expected  # With the index that is there now.
    (folder / "manifest.txt").unlink()
    assert penstock.open(f"{folder}/*")[:] == expected
    assert invoke("info", folder).exit_code == 0


def test_a_folder_without_endings_that_grows_keeps_its_numbers(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"part-{number}").write_text(f'{{"n": {number}}}\n')
        source = penstock.open(tmp_path)
        assert [record["n"] for record in source] == [*range(number + 1)]


def test_a_lone_half_of_a_pair_of_tokens_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(np.array([97, 98, 99], "<u2").tobytes())  # As UTF-16LE.
    with pytest.raises(OptionError, match=r"its \.idx is missing"):
        penstock.open(tmp_path / "a.bin")


def test_a_folder_of_csv_without_endings_asks_for_the_format(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_text("a,b\n1,2\n")
    with pytest.raises(OptionError, match=r"cannot tell what.*format='csv'"):
        penstock.open(tmp_path)


def test_remedies_for_tables_in_memory_work(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    assert penstock.open(pa.table(dict(np.load(tmp_path / "a.npz"))))[2] == {"x": 2}
    np.save(tmp_path / "a.npy", np.arange(3))
    assert penstock.open(pa.table({"x": np.load(tmp_path / "a.npy")}))[2] == {"x": 2}
    database = sqlite3.connect(":memory:")
    assert penstock.open(pd.read_sql("SELECT 1 AS x", database))[0] == {"x": 1}
    database.close()


def test_lines_of_json_may_have_the_name_of_a_tfrecord_in_theirs(tmp_path: Path) -> None:
    (tmp_path / "train.tfrecord-00000-of-00002.jsonl").write_text('{"a": 1}\n')
    assert penstock.open(tmp_path)[0] == {"a": 1}
