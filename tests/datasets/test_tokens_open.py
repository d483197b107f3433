"""What `penstock.open` makes of folders of tokens, whatever somebody else is doing to them."""

from __future__ import annotations

import json
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
from penstock.datasets.mds._rows import MdsRows
from penstock.errors import (
    CorruptIndexError,
    ObjectNotFoundError,
    OptionError,
    StaleIndexError,
)
from penstock.index import (
    FileTextLinesIndexer,
    IndexStore,
    TokenizedSampleGenerator,
    create_tokenize_and_index_jsonl_text_func,
    get_text_from_jsonl,
)
from tests.cli.commands import invoke
from tests.datasets.mds_files import write_mds
from tests.datasets.token_folders import (
    Folder,
    as_data_forager,
    some_documents,
    write_best_fit,
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
def test_a_type_that_nothing_tells_is_asked_for(
    tmp_path: Path, dtype: type[np.unsignedinteger]
) -> None:
    texts = [[[number % 200 for number in range(60)]]]  # As uint32, two of them are one token.
    folder = as_data_forager(write_concat(tmp_path / "data", texts, 8, dtype))
    with pytest.raises(OptionError, match=r"uint16 and uint32 are both possible.*token_dtype"):
        penstock.open(folder.path)
    source = penstock.open(folder.path, format_options={"token_dtype": np.dtype(dtype).name})
    assert source[:].tolist() == folder.rows
    assert invoke("show", folder.path, "0").exit_code == 2
    done = invoke("show", folder.path, "0", "--token-dtype", np.dtype(dtype).name)
    assert str(folder.rows[0][1]) in done.stdout


@pytest.mark.parametrize(("size", "most"), [(7, 200), (8, 60_000)])
def test_a_type_that_sizes_or_tokens_tell_is_not_asked_for(
    tmp_path: Path, size: int, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [[[number % most for number in range(1, 80_000, 997)]]]
    folder = as_data_forager(write_concat(tmp_path / "data", texts, size))
    assert penstock.open(folder.path)[:].tolist() == folder.rows
    assert caplog.messages == []


def test_a_type_of_another_kind_or_against_what_is_known_is_refused(folder: Folder) -> None:
    for name, why in (
        ("uint32", "says that these tokens are uint16"),
        ("wide", "no type of NumPy"),
    ):
        with pytest.raises(OptionError, match=why):
            penstock.open(folder.path, format_options={"token_dtype": name})


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
    with pytest.raises(ObjectNotFoundError, match=f"no index that names them.*{again}"):
        penstock.open(folder.path)


@pytest.mark.parametrize("kept", ["document_*.bin", "document_ends.bin", "document_goes_on.bin"])
def test_documents_without_a_meta_are_an_incomplete_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: str
) -> None:
    folder = write_best_fit(tmp_path / "data", [[[1, 2, 0]], [[3, 0]]], 8, np.uint32)
    index = folder.path / "index"
    (index / "meta.json").unlink()
    for path in index.glob("document_*.bin"):
        if not path.match(kept):
            path.unlink()
    words = r"meta\.json is missing, though document_\w+\.bin is there"
    again = re.escape(f"penstock tokenize SRC {folder.path} --overwrite")
    with pytest.raises(CorruptIndexError, match=rf"{words}.*Copy the folder again, or.*{again}"):
        penstock.open(folder.path)
    with pytest.raises(CorruptIndexError, match=words):
        TokensDataset.create_from_index_on_filesystem(folder.path, token_dtype=np.uint32)
    assert caplog.messages == []


@pytest.mark.parametrize("name", ["document_offsets.bin", "document_ends.bin"])
def test_samples_without_one_of_the_files_of_documents_are_an_incomplete_copy(
    folder: Folder, name: str
) -> None:
    (folder.path / "index" / name).unlink()
    with pytest.raises(ObjectNotFoundError, match=rf"{name} is missing.*penstock tokenize SRC"):
        penstock.open(folder.path)


@pytest.mark.parametrize("is_filled_up", [False, True])
def test_samples_that_only_documents_tell_from_padding_do_not_open_without_them(
    tmp_path: Path, *, is_filled_up: bool
) -> None:
    if is_filled_up:
        folder = write_concat(tmp_path / "data", some_documents(2, 60), 16, pad=True)
    else:
        folder = write_best_fit(tmp_path / "data", [[[1, 2, 0]], [[3, 0]]], 8)
    for path in (folder.path / "index").glob("document_*.bin"):
        path.unlink()
    with pytest.raises(ObjectNotFoundError, match=r"document_offsets\.bin is missing"):
        penstock.open(folder.path)


def test_tokens_of_a_generator_open_without_documents(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "abcdefgh"}\n')
    generator = TokenizedSampleGenerator(
        get_text_from_jsonl, lambda text: [ord(letter) for letter in text], 0, sample_size=4
    )
    store = IndexStore(tmp_path)
    FileTextLinesIndexer([str(tmp_path / "a.jsonl")], store, generator)()
    tokens = penstock.open(tmp_path)
    assert isinstance(tokens, TokensDataset)
    assert tokens[:].tolist() == [[97, 98, 99, 100], [101, 102, 103, 104]]


@pytest.mark.parametrize(
    ("size", "key", "value", "words"),
    [
        (16, "dtype", "uint32", "of uint32, which are .* bytes, and the samples have"),
        (16, "dtype", "uint8", "of uint8, which are"),
        (16, "dtype", "float16", "'float16', which is no type of integers"),
        (16, "dtype", "riddle", "'riddle', which is no type of integers"),
        (16, "sample_size", 8, "of uint16, which are"),
        (16, "sample_size", 17, "of uint16, which are"),
        (16, "sample_size", 0, "speaks of 0 tokens"),
        (None, "dtype", "uint32", "of uint32, which are"),
        (None, "dtype", "uint8", "of uint8, which are"),
        (None, "sample_size", 16, "document_offsets.bin is missing"),
    ],
)
def test_a_meta_that_does_not_fit_the_samples_is_refused_at_opening(
    tmp_path: Path, size: int | None, key: str, value: object, words: str
) -> None:
    documents = some_documents(2, 60)
    if size is None:
        folder = write_documents(tmp_path / "data", documents)
    else:
        folder = write_concat(tmp_path / "data", documents, size)
    path = folder.path / "index" / "meta.json"
    meta = json.loads(path.read_text())
    meta["tokens"][key] = value
    path.write_text(json.dumps(meta))
    for opened in (penstock.open, TokensDataset.create_from_index_on_filesystem):
        with pytest.raises((CorruptIndexError, ObjectNotFoundError), match=words):
            opened(folder.path)


@pytest.mark.parametrize("row", [0, -1])
def test_a_sample_of_another_size_is_refused_at_opening(folder: Folder, row: int) -> None:
    path = folder.path / "index" / "sample_locations.bin"
    rows = np.fromfile(path, "<u8").reshape(-1, 3)
    rows[row, 2] = 30
    rows.tofile(path)
    number = 0 if row == 0 else len(rows) - 1
    with pytest.raises(CorruptIndexError, match=f"16 tokens of uint16, and sample {number} has 30"):
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
    again = f"remove the tokens in s3://{bucket}/c, and penstock tokenize SRC s3://{bucket}/c"
    with pytest.raises(StaleIndexError, match=f"{again}$"):
        penstock.open(f"s3://{bucket}/c", storage_options=s3_server.storage_options)


ALL = 1 << 20
DAMAGED = [
    ("document_ends.bin", 4),
    ("document_ends.bin", None),
    ("sample_locations.bin", 3),
    ("sample_locations.bin", 24),
    ("sample_locations.bin", None),
    ("file_location.txt", 3),
    ("file_location.txt", None),
    ("meta.json", 3),
]
"""A file of an index, and how many bytes at its end are missing; None where it is gone."""


@pytest.mark.parametrize(("name", "cut"), DAMAGED)
@pytest.mark.s3
def test_damaged_remote_tokens_are_to_be_made_again_where_they_are(
    folder: Folder, s3_server: S3Server, bucket: str, name: str, cut: int | None
) -> None:
    for path in folder.path.rglob("*"):
        is_damaged = path.name == name
        if path.is_file() and not (is_damaged and cut is None):
            data = path.read_bytes()[: -cut if is_damaged and cut else None]
            s3_server.put(bucket, f"c/{path.relative_to(folder.path)}", data)
    again = f"remove the tokens in s3://{bucket}/c, and penstock tokenize SRC s3://{bucket}/c"
    with pytest.raises((CorruptIndexError, ObjectNotFoundError), match=rf"again: {again}$"):
        penstock.open(f"s3://{bucket}/c", storage_options=s3_server.storage_options)


@pytest.mark.parametrize(("name", "cut"), [*DAMAGED, ("meta.json", ALL)])
def test_damaged_tokens_are_to_be_made_again_where_they_are(
    folder: Folder, name: str, cut: int | None
) -> None:
    path = folder.path / "index" / name
    if cut is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-cut])
    again = re.escape(f"penstock tokenize SRC {folder.path} --overwrite")
    with pytest.raises((CorruptIndexError, ObjectNotFoundError), match=rf"again: {again}$"):
        TokensDataset.create_from_index_on_filesystem(folder.path)


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("file_location.txt", 3),
        ("sample_locations.bin", 3),
        ("sample_locations.bin", 24),
        ("meta.json", 3),
        ("meta.json", ALL),
    ],
)
def test_damaged_records_below_tokens_leave_the_tokens_alone(
    folder: Folder, name: str, cut: int
) -> None:
    below = folder.path / "sub"
    below.mkdir()
    (below / "a.jsonl").write_text('{"a": 1}\n' * 9)
    penstock.open(below)
    path = below / "index" / name
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CorruptIndexError, match=r"again: penstock index PATH --overwrite$"):
        penstock.open(below)


def test_what_nobody_can_tell_is_not_guessed(folder: Folder) -> None:
    (folder.path / "index" / "file_location.txt").unlink()
    for path in (folder.path / "index").glob("document_*.bin"):
        path.unlink()
    (folder.path / "index" / "meta.json").write_text("")
    with pytest.raises(CorruptIndexError, match=r"penstock index PATH.* or .*tokenize SRC"):
        TokensDataset.create_from_index_on_filesystem(folder.path)


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
    if str(arguments[1]).endswith(".unit"):
        return
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
def test_tokens_that_are_being_replaced_are_waited_for_or_come_back_by_a_command(
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
        if fault == "killed":
            with pytest.raises(CorruptIndexError, match=f"penstock clean {output}"):
                penstock.open(output)
            assert invoke("clean", output).exit_code == 0
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
