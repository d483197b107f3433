"""What `penstock.open` makes of folders of tokens, whatever somebody else is doing to them."""

from __future__ import annotations

import logging
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import penstock
from penstock.datasets import JsonlDataset, TokensDataset
from penstock.datasets._mds import MdsRows
from penstock.errors import (
    CorruptIndexError,
    ObjectNotFoundError,
    OptionError,
    StaleIndexError,
)
from penstock.index import create_tokenize_and_index_jsonl_text_func
from tests.datasets.mds_files import write_mds
from tests.datasets.token_folders import (
    Folder,
    as_data_forager,
    some_documents,
    write_concat,
    write_documents,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return write_concat(tmp_path / "data", some_documents(2, 60), 16)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_a_type_that_is_only_assumed_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, dtype: type[np.unsignedinteger]
) -> None:
    folder = as_data_forager(write_concat(tmp_path / "data", some_documents(1, 20), 8, dtype))
    with caplog.at_level(logging.WARNING, "penstock"):
        source = penstock.open(folder.path)
    assert isinstance(source, TokensDataset)
    assert source.token_dtype == np.uint16
    (message,) = caplog.messages
    assert "uint16 is assumed" in message
    assert f"create_from_index_on_filesystem({str(folder.path)!r}, token_dtype=" in message


def test_a_type_that_is_known_is_no_warning(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    penstock.open(folder.path)
    as_data_forager(folder)
    TokensDataset.create_from_index_on_filesystem(folder.path, token_dtype=np.uint16)
    assert caplog.messages == []


def test_a_list_of_one_folder_is_that_folder(folder: Folder, tmp_path: Path) -> None:
    source = penstock.open([folder.path])
    assert isinstance(source, TokensDataset)
    assert source[:].tolist() == folder.rows
    write_mds(tmp_path / "mds", {"id": "int"}, [{"id": 1}])
    assert isinstance(penstock.open((str(tmp_path / "mds"),)), MdsRows)
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    assert isinstance(penstock.open([tmp_path / "a.jsonl"]), JsonlDataset)


def test_a_list_of_several_has_no_folder_of_tokens(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    for what in ([tmp_path / "a.jsonl", folder.path], [folder.path, str(folder.path)]):
        with pytest.raises(OptionError, match=rf"{folder.path} is a folder of tokens.*\+"):
            penstock.open(what)


def test_parts_of_a_token_folder_lead_to_it(folder: Folder) -> None:
    samples = folder.path / "tokenized-samples"
    for what in (samples, str(samples), next(samples.iterdir()), [samples], f"{samples}/*.bin"):
        with pytest.raises(OptionError, match=re.escape(f"penstock.open({str(folder.path)!r})")):
            penstock.open(what)
    (folder.path / "index" / "meta.json").write_text("{}")
    with pytest.raises(OptionError, match="cannot tell"):
        penstock.open(samples)


@pytest.mark.parametrize("is_foreign", [False, True])
def test_documents_without_a_token_are_opened(tmp_path: Path, *, is_foreign: bool) -> None:
    folder = write_documents(tmp_path / "data", [[[], []], [[]]])
    source = penstock.open((as_data_forager(folder) if is_foreign else folder).path)
    assert isinstance(source, TokensDataset)
    assert source.sample_size is None
    assert [row.tolist() for row in source] == [[], [], []]
    assert [row.tolist() for row in source[[2, 0]]] == [[], []]
    assert source.lengths([0, 1]).tolist() == [0, 0]
    assert source.arrow()["tokens"].to_pylist() == [[], [], []]
    with pytest.raises(OptionError, match="no window"):
        source.windows(1)


@pytest.mark.parametrize(
    ("happened", "is_foreign"),
    [("grown", False), ("cut", False), ("gone", False), ("cut", True), ("gone", True)],
)
def test_stale_tokens_are_to_be_made_again(
    folder: Folder, happened: str, *, is_foreign: bool
) -> None:
    path = sorted((folder.path / "tokenized-samples").iterdir())[1]
    if is_foreign:
        as_data_forager(folder)
    data = path.read_bytes()
    path.write_bytes(data + bytes(32) if happened == "grown" else data[:-2])
    if happened == "gone":
        path.unlink()
    with pytest.raises(StaleIndexError, match=r"penstock tokenize SRC \S+ --overwrite") as raised:
        penstock.open(folder.path)
    assert "penstock index" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["meta.json", "document_ends.bin", "document_goes_on.bin", "sample_locations.bin"]
)
def test_a_damaged_index_of_tokens_is_to_be_made_again(folder: Folder, name: str) -> None:
    path = folder.path / "index" / name
    path.write_bytes(path.read_bytes()[:-3])
    again = re.escape(f"penstock tokenize SRC {folder.path} --overwrite")
    with pytest.raises((CorruptIndexError, ObjectNotFoundError), match=again):
        penstock.open(folder.path)
    shutil.rmtree(path.parent)
    with pytest.raises(ObjectNotFoundError, match=f"no index that tells of them.*{again}"):
        penstock.open(folder.path)


@pytest.mark.parametrize("happened", ["grown", "gone"])
@pytest.mark.s3
def test_stale_remote_tokens_are_to_be_made_again(
    folder: Folder, s3_server: S3Server, bucket: str, happened: str
) -> None:
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    for path in files:
        name, data = path.relative_to(folder.path), path.read_bytes()
        if path.suffix == ".bin" and "text-1" in path.name:
            if happened == "gone":
                continue
            data += bytes(32)
        s3_server.put(bucket, f"c/{name}", data)
    with pytest.raises(
        StaleIndexError, match=rf"remove it, and penstock tokenize SRC s3://{bucket}/c$"
    ):
        penstock.open(f"s3://{bucket}/c", storage_options=s3_server.storage_options)


@pytest.mark.s3
def test_parts_of_a_remote_token_folder_lead_to_it(
    folder: Folder, s3_server: S3Server, bucket: str
) -> None:
    for path in folder.path.rglob("*"):
        if path.is_file():
            s3_server.put(bucket, f"c/{path.relative_to(folder.path)}", path.read_bytes())
    s3_server.put(bucket, "records/a.jsonl", b'{"id": 1}\n')
    base, options = f"s3://{bucket}/c", s3_server.storage_options
    samples = f"{base}/tokenized-samples"
    for what in (samples, f"{samples}/text-0-tokenized-samples.bin", [samples]):
        with pytest.raises(OptionError, match=re.escape(f"penstock.open('{base}')")):
            penstock.open(what, storage_options=options)
    with pytest.raises(OptionError, match=f"{base} is a folder of tokens"):
        penstock.open([f"s3://{bucket}/records", base], storage_options=options)
    assert isinstance(penstock.open([base], storage_options=options), TokensDataset)


@pytest.mark.s3
def test_records_that_were_opened_before_are_not_taken_for_the_tokens_made_of_them(
    folder: Folder, s3_server: S3Server, bucket: str
) -> None:
    """Else it would depend on this machine's cache what a path is."""
    base, options = f"s3://{bucket}/c", s3_server.storage_options
    s3_server.put(bucket, "c/text-0.jsonl", b'{"text": "a"}\n')
    assert isinstance(penstock.open(base, storage_options=options), JsonlDataset)
    for path in folder.path.rglob("*"):
        if path.is_file():
            s3_server.put(bucket, f"c/{path.relative_to(folder.path)}", path.read_bytes())
    assert isinstance(penstock.open(base, storage_options=options), TokensDataset)
    lines = penstock.open(f"{base}/*.jsonl", storage_options=options)
    assert isinstance(lines, JsonlDataset)


TOKENISE = """
import os, signal, sys, time
from penstock.index import create_tokenize_and_index_jsonl_text_func
source, output, fault = sys.argv[1:]
link = os.link

def late(*arguments, **options):
    link(*arguments, **options)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    wait()

def wait():
    global fault
    if fault:
        fault = ""
        print("here", flush=True)
        time.sleep(0.7)

def ids(text):
    if fault == "slow":
        wait()
    return [ord(letter) for letter in text]

os.link = late
create_tokenize_and_index_jsonl_text_func(
    ids, 0, source, output_base_path=output,
    sample_size=4, num_workers=0, progress=False, overwrite=True,
)()
"""


@pytest.mark.parametrize("is_apart", [False, True])
@pytest.mark.parametrize("fault", ["killed", "late"])
def test_tokens_that_are_being_replaced_are_waited_for_or_come_back(
    tmp_path: Path, fault: str, *, is_apart: bool
) -> None:
    source = tmp_path / "text"
    source.mkdir()
    (source / "a.jsonl").write_text('{"text": "abcdefgh"}\n')
    output = tmp_path / "tokens" if is_apart else source
    create_tokenize_and_index_jsonl_text_func(
        lambda text: [ord(letter) for letter in text], 0, source,
        output_base_path=output, sample_size=3, num_workers=0, progress=False,
    )()  # fmt: skip
    arguments = [sys.executable, "-c", TOKENISE, str(source), str(output), fault]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        if fault == "late":
            assert program.stdout.readline() == "here\n"
        else:
            assert program.wait(60) == -signal.SIGKILL
        assert not (output / "index").exists()
        tokens = penstock.open(output)
        assert isinstance(tokens, TokensDataset)
        assert tokens.sample_size == (4 if fault == "late" else 3)
        assert tokens[0].tolist() == [97, 98, 99, 100][: tokens.sample_size]
    assert penstock.open(output).fingerprint == tokens.fingerprint


def test_records_that_become_tokens_meanwhile_are_opened_as_tokens(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "abcdefgh"}\n')
    arguments = [sys.executable, "-c", TOKENISE, str(tmp_path), str(tmp_path), "slow"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "here\n"
        tokens = penstock.open(tmp_path)
    assert isinstance(tokens, TokensDataset)
    assert tokens[0].tolist() == [97, 98, 99, 100]
