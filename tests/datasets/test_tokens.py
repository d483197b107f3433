"""Token folders: their types, their files, and everybody else who reads them."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import penstock
from penstock.datasets import JsonlDataset, SubsampledDataset, TokensDataset
from penstock.datasets.text._dataset import _MOST_OPEN
from penstock.errors import CorruptIndexError, OptionError, StaleIndexError
from penstock.index import IndexStore
from tests.datasets.token_folders import (
    Folder,
    as_data_forager,
    some_documents,
    write_best_fit,
    write_concat,
    write_documents,
)
from tests.rounds import LONG, rounds

if TYPE_CHECKING:
    from tests.servers.s3_server import S3Server


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return write_concat(tmp_path / "data", some_documents(2, 60), 16)


def test_meta_says_what_type_tokens_have(tmp_path: Path) -> None:
    folder = write_concat(tmp_path / "data", some_documents(1, 20), 8, np.uint32)
    dataset = TokensDataset.create_from_index_on_filesystem(folder.path)
    assert dataset.token_dtype == np.uint32
    assert dataset[:].tolist() == folder.rows
    again = TokensDataset.create_from_index_on_filesystem(folder.path, token_dtype=np.uint32)
    assert again[3].tolist() == folder.rows[3]
    with pytest.raises(OptionError, match=r"uint16.*uint32"):
        TokensDataset.create_from_index_on_filesystem(folder.path, token_dtype=np.uint16)
    with pytest.raises(ValueError, match="integers"):
        TokensDataset.create_from_index_on_filesystem(folder.path, token_dtype=np.float32)


def test_without_meta_the_argument_says_it_and_else_it_is_uint16(tmp_path: Path) -> None:
    wide = as_data_forager(write_concat(tmp_path / "wide", some_documents(1, 20), 8, np.uint32))
    dataset = TokensDataset.create_from_index_on_filesystem(wide.path, token_dtype=np.uint32)
    assert (dataset.sample_size, dataset[:].tolist()) == (8, wide.rows)
    narrow = as_data_forager(write_concat(tmp_path / "narrow", some_documents(1, 20), 8))
    assert TokensDataset.create_from_index_on_filesystem(narrow.path)[:].tolist() == narrow.rows


def test_bytes_that_are_no_whole_tokens_are_an_error_that_names_them(tmp_path: Path) -> None:
    odd = as_data_forager(write_concat(tmp_path / "odd", some_documents(1, 20), 7))
    dataset = TokensDataset.create_from_index_on_filesystem(odd.path, token_dtype=np.uint32)
    documents = write_documents(tmp_path / "documents", [[[1, 2], [3, 4, 5]]])
    ragged = TokensDataset.create_from_index_on_filesystem(
        as_data_forager(documents).path, token_dtype=np.uint32
    )
    for ask, sample, size in (
        (lambda: dataset[0], 0, 14),
        (lambda: dataset.read([0]), 0, 14),
        (lambda: ragged[1], 1, 6),
        (lambda: ragged.read([0, 1]), 1, 6),
    ):
        with pytest.raises(OptionError, match=rf"sample {sample} .*{size} bytes.*uint32"):
            ask()
    with pytest.raises(OptionError, match=r"no whole number of tokens of uint32"):
        ragged.windows(1)


def test_an_index_of_records_is_not_read_as_tokens(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    penstock.open(tmp_path)
    with pytest.raises(CorruptIndexError, match="jsonl"):
        TokensDataset.create_from_index_on_filesystem(tmp_path)


@pytest.mark.parametrize("is_csv", [False, True])
def test_an_index_of_something_else_is_not_read_as_lines(folder: Folder, *, is_csv: bool) -> None:
    path = folder.path
    if is_csv:
        path /= "rows"
        path.mkdir()
        (path / "a.csv").write_text("id\n1\n")
        penstock.open(path)
    with pytest.raises(CorruptIndexError, match=r"index of (tokens|csv), not of JSON Lines.*open"):
        JsonlDataset.create_from_index_on_filesystem(path)


def test_one_row_is_a_view_of_the_map_and_rows_are_not(folder: Folder) -> None:
    dataset = penstock.open(folder.path)
    row = dataset[3]
    assert not row.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1
    dataset[[3]][0][:] = 0
    assert dataset[3].tolist() == row.tolist() == folder.rows[3]


@pytest.mark.parametrize("write", [write_concat, write_documents])
def test_a_file_that_shrank_is_an_error_before_anything_is_read(
    tmp_path: Path, write: object
) -> None:
    texts = some_documents(2, 3000)
    made = (
        write_concat(tmp_path / "d", texts, 16)
        if write is write_concat
        else write_documents(tmp_path / "d", texts)
    )
    dataset = penstock.open(made.path)
    windows = dataset.windows(32)  # type: ignore[attr-defined]
    n = len(dataset)
    assert dataset[n - 1].tolist() == made.rows[-1]
    assert len(dataset[:]) == n
    last = next(path for path in dataset.files if "text-1" in path)
    os.truncate(last, 0)
    for ask in (
        lambda: dataset[n - 1],
        lambda: dataset.read([0, n - 1]),
        lambda: dataset[:],
        lambda: windows[len(windows) - 1],
        lambda: windows.read([0, len(windows) - 1]),
    ):
        with pytest.raises(StaleIndexError, match=r"text-1.*shrank.*Tokenise"):
            ask()
    assert dataset[0].tolist() == made.rows[0]


def test_a_changed_file_is_named_when_it_is_opened(folder: Folder) -> None:
    dataset = penstock.open(folder.path)
    path = dataset.files[1]
    with Path(path).open("r+b") as file:
        file.write(b"\xff" * 20)
    os.utime(path, (1, 1))
    with pytest.raises(StaleIndexError, match="text-1"):
        dataset[-1]
    with pytest.raises(StaleIndexError, match="text-1"):
        penstock.open(folder.path)


def test_only_so_many_files_are_open(tmp_path: Path) -> None:
    files = _MOST_OPEN + 40
    folder = write_concat(tmp_path / "data", some_documents(files, 2, most=60), 8)
    dataset = penstock.open(folder.path)
    for _ in range(2):
        assert [row.tolist() for row in dataset] == folder.rows
        assert [dataset[i].tolist() for i in range(len(dataset))] == folder.rows
    targets = [_target(link) for link in Path("/proc/self/fd").iterdir()]
    opened = [path for path in targets if path.startswith(f"{folder.path}/tokenized-samples/")]
    assert 0 < len(opened) <= _MOST_OPEN


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def test_rows_that_lie_anywhere_are_found(tmp_path: Path) -> None:
    """An index that somebody else wrote: gaps, backwards, files in turns."""
    rows = np.arange(600, dtype=np.uint16).reshape(100, 6)
    for name in ("a.bin", "b.bin"):
        rows.tofile(tmp_path / name)
    chance = np.random.default_rng(3)
    chosen = chance.integers(0, 100, 60)
    store = IndexStore(tmp_path)
    store.init_store()
    for turn, row in enumerate(chosen.tolist()):
        store.add_sample(str(tmp_path / "ab"[turn // 5 % 2]) + ".bin", row * 12, 12)
    store.close()
    dataset = TokensDataset.create_from_index_on_filesystem(tmp_path)
    ids = chance.integers(0, 60, 200)
    assert dataset[ids].tolist() == rows[chosen[ids]].tolist()
    windows = dataset.windows(9, 4)
    stream = rows[chosen].reshape(-1)
    expected = np.lib.stride_tricks.sliding_window_view(stream, 9)[::4]
    assert windows[:].tolist() == expected.tolist()


def test_data_forager_opens_what_is_written_here_and_the_other_way_round(folder: Folder) -> None:
    forager = pytest.importorskip("data_forager.datasets.tokens")
    theirs = forager.TokensDataset.create_from_index_on_filesystem(
        str(folder.path), token_dtype=np.uint16
    )
    ours = TokensDataset.create_from_index_on_filesystem(as_data_forager(folder).path)
    assert len(theirs) == len(ours) == len(folder.rows)
    for i in range(len(ours)):
        assert theirs[i].tolist() == ours[i].tolist() == folder.rows[i]
    assert ours.document_ends([0]) is None
    assert ours.packing is None


@pytest.mark.parametrize("is_foreign", [False, True])
def test_the_index_decides_what_a_folder_with_records_is(
    tmp_path: Path, *, is_foreign: bool
) -> None:
    folder = write_concat(tmp_path / "corpus", some_documents(1, 30), 8)
    (folder.path / "text-0.jsonl").write_text('{"text": "a"}\n')
    if is_foreign:
        as_data_forager(folder)
    source = penstock.open(str(folder.path))
    assert isinstance(source, TokensDataset)
    assert source[:].tolist() == folder.rows
    assert isinstance(penstock.open(f"{folder.path}/*.jsonl"), JsonlDataset)
    assert isinstance(penstock.open(folder.path.as_uri()), TokensDataset)


def test_an_index_elsewhere_is_given_by_name(folder: Folder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (folder.path / "index").rename(elsewhere)
    assert penstock.open(folder.path, index=elsewhere)[:].tolist() == folder.rows
    dataset = TokensDataset.create_from_index_on_filesystem(folder.path, "../elsewhere")
    assert dataset[-1].tolist() == folder.rows[-1]


def test_a_foreign_index_of_records_stays_one(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    penstock.open(tmp_path)
    (tmp_path / "index" / "meta.json").unlink()
    assert penstock.open(tmp_path)[0] == {"id": 1}


def test_samples_with_extra_arrays_are_refused_by_name(folder: Folder) -> None:
    (as_data_forager(folder).path / "index" / "sample_schema.json").write_text("{}")
    with pytest.raises(CorruptIndexError, match=re.escape("sample_schema.json")):
        penstock.open(folder.path)


def test_best_fit_knows_what_only_fills_up(tmp_path: Path) -> None:
    rows = [[[1, 2, 0], [3, 0]], [[4, 5, 6, 7, 8, 0]], [[0], [0], [9, 0]]]
    dataset = penstock.open(write_best_fit(tmp_path / "data", rows, 8).path)
    assert isinstance(dataset, TokensDataset)
    assert dataset.lengths([2, 0, 1]).tolist() == [4, 5, 6]
    values, offsets = dataset.document_ends([2, 0, 1]) or ((), ())
    assert np.asarray(values).tolist() == [1, 2, 4, 3, 5, 6]
    assert np.asarray(offsets).tolist() == [0, 3, 5, 6]
    assert not dataset.is_stream
    with pytest.raises(OptionError, match=r"best_fit.*concat"):
        dataset.windows(4)


def test_a_condition_over_tokens_has_no_field_to_split_by(folder: Folder) -> None:
    dataset = penstock.open(folder.path)
    with pytest.raises(OptionError, match="before they are tokenised"):
        dataset.split(by="user", train=0.5, val=0.5)


def test_an_empty_folder_of_tokens_has_no_rows(tmp_path: Path) -> None:
    dataset = penstock.open(write_concat(tmp_path / "data", [[[1, 2]]], 8).path)
    assert isinstance(dataset, TokensDataset)
    assert (len(dataset), dataset[:].shape) == (0, (0, 8))
    assert list(dataset) == []
    assert dataset.blocks.tolist() == [0]
    with pytest.raises(OptionError, match=r"no window of 4 tokens.*have 0"):
        dataset.windows(4)
    assert "0 tokens" in repr(dataset)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("context", [None, "fork", *["spawn"] * LONG])
def test_torchs_own_loader_makes_batches_of_rows(folder: Folder, context: str | None) -> None:
    torch = pytest.importorskip("torch")
    dataset = penstock.open(folder.path)
    assert dataset[0] is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
        loader = torch.utils.data.DataLoader(
            dataset,
            batch_size=8,
            shuffle=True,
            drop_last=True,
            num_workers=0 if context is None else 2,
            multiprocessing_context=context,
        )
        batches = list(loader)
    assert {tuple(batch.shape) for batch in batches} == {(8, 16)}
    seen = [row for batch in batches for row in batch.tolist()]
    assert len(seen) == len(dataset) // 8 * 8
    assert all(row in folder.rows for row in seen)
    part = SubsampledDataset(dataset, 0.5, seed=0)
    (first, *_) = torch.utils.data.DataLoader(part, batch_size=4)
    assert first.tolist() == [row.tolist() for row in part[:4]]


def test_opening_many_samples_reads_no_row(tmp_path: Path) -> None:
    """A sparse index of so many samples that nobody could read it."""
    samples = rounds(10**7, 10**8)
    folder = write_concat(tmp_path / "data", [[[1] * 15]], 16)
    data, rows = next((folder.path / "tokenized-samples").iterdir()), 32 * samples
    os.truncate(data, rows)
    index = folder.path / "index"
    with (index / "sample_locations.bin").open("r+b") as file:
        file.truncate(24 * samples)
        file.seek(24 * (samples - 1))
        file.write(np.array([0, rows - 32, 32], "<u8").tobytes())
    meta = (index / "meta.json").read_text()
    meta = re.sub(r'"records": 1\b', f'"records": {samples}', meta)
    meta = re.sub(r'"(size|bytes)": 32\b', rf'"\1": {rows}', meta)
    modified = data.stat().st_mtime
    meta = re.sub(r'"modified": [0-9.e+]+', f'"modified": {modified!r}', meta)
    meta = meta.replace('"packing": "concat"', '"packing": "concat", "borders": false')
    (index / "meta.json").write_text(meta)
    # As a TokenizedSampleGenerator leaves it, which notes no documents.
    for name in ("document_offsets.bin", "document_ends.bin", "document_goes_on.bin"):
        (index / name).unlink()
    dataset = penstock.open(folder.path)
    assert len(dataset) == samples
    # The rows between the first and the last say nothing, so that reading one would show.
    assert dataset[[0, samples - 1]].tolist() == [folder.rows[0], [0] * 16]
    assert len(dataset.windows(16)) == samples  # type: ignore[attr-defined]


@pytest.mark.s3
def test_a_remote_folder_with_tokens_beside_records_is_one_of_tokens(
    tmp_path: Path, s3_server: S3Server, bucket: str
) -> None:
    folder = write_concat(tmp_path / "data", some_documents(1, 30), 8)
    (folder.path / "text-0.jsonl").write_text('{"text": "a"}\n')
    for path in folder.path.rglob("*"):
        if path.is_file():
            s3_server.put(bucket, f"c/{path.relative_to(folder.path)}", path.read_bytes())
    options = s3_server.storage_options
    source = penstock.open(f"s3://{bucket}/c", storage_options=options)
    assert isinstance(source, TokensDataset)
    assert source[[4, 1]].tolist() == [folder.rows[4], folder.rows[1]]
