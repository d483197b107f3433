"""Numbers in an index, in token files, in MDS folders and in the cache that cannot be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.datasets import CsvRows, JsonlDataset, MdsRows, TokensDataset
from penstock.datasets._vocabulary import vocabulary
from penstock.errors import CorruptFileError, CorruptIndexError, PenstockError
from penstock.jsonl import JsonlFile
from tests.datasets.mds_files import write_mds
from tests.datasets.token_folders import (
    as_data_forager,
    some_documents,
    write_best_fit,
    write_concat,
    write_documents,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT = 200
FORGED = 100
NUMBERS = (2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def forged(path: Path, dtype: str, at: int | tuple[int, int], number: int) -> None:
    numbers = np.fromfile(path, dtype)
    if isinstance(at, tuple):
        numbers.reshape(-1, 5 if path.name == "frames.bin" else 3)[at] = number
    else:
        numbers[at] = number
    numbers.tofile(path)


def lines(folder: Path, name: str) -> Any:
    folder.mkdir()
    with JsonlFile(folder / name).writer_sync(
        **({"frame_bytes": 600} if "zst" in name else {})
    ) as writer:
        for number in range(COUNT):
            writer.write({"n": number, "t": f"text {number}"})
    return penstock.open(folder)


def rows(folder: Path) -> Any:
    folder.mkdir()
    (folder / "a.csv").write_text("n,t\n" + "".join(f"{n},text {n}\n" for n in range(COUNT)))
    return penstock.open(folder)


FORMATS = {
    "plain": lambda folder: lines(folder, "a.jsonl"),
    "zstd": lambda folder: lines(folder, "a.jsonl.zst"),
    "gzip": lambda folder: lines(folder, "a.jsonl.gz"),
    "csv": rows,
}


@pytest.mark.parametrize("made", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("column", [0, 1, 2], ids=["file", "offset", "bytes"])
def test_a_forged_row_of_an_index_is_an_error_of_ours_for_its_record_alone(
    made: Callable[[Path], Any], column: int, tmp_path: Path
) -> None:
    made(tmp_path / "a")
    places = tmp_path / "a" / "index" / "sample_locations.bin"
    for number in NUMBERS:
        forged(places, "<u8", (FORGED, column), number)
        source = penstock.open(tmp_path / "a")
        for read in (
            lambda ids, source=source: source.read(ids),
            lambda ids, source=source: source.read(ids, {"n": "int64"}),
            lambda ids, source=source: [source[number] for number in ids],
        ):
            for ids in ([FORGED], list(range(COUNT))):
                with pytest.raises(PenstockError):
                    read(ids)
            assert len(read([3, FORGED - 1])) == 2
        assert source.blocks[-1] == COUNT
        if column == 0:
            for which in (FORGED, np.array([FORGED])):
                with pytest.raises(CorruptIndexError, match=r"record 100 .* file "):
                    source.location(which)


def test_offsets_at_the_ends_of_a_run_make_no_more_blocks_than_records(tmp_path: Path) -> None:
    lines(tmp_path / "a", "a.jsonl")
    places = tmp_path / "a" / "index" / "sample_locations.bin"
    forged(places, "<u8", (COUNT - 1, 1), 2**62)
    assert len(penstock.open(tmp_path / "a").blocks) <= COUNT + 1
    forged(places, "<u8", (COUNT - 1, 1), 2**64 - 1)
    with pytest.raises(CorruptIndexError, match="is damaged"):
        _ = penstock.open(tmp_path / "a").blocks


@pytest.mark.parametrize("column", [0, 1, 2, 3, 4])
def test_a_forged_frame_is_an_error_of_ours(column: int, tmp_path: Path) -> None:
    lines(tmp_path / "a", "a.jsonl.zst")
    for number in NUMBERS:
        forged(tmp_path / "a" / "index" / "frames.bin", "<u8", (1, column), number)
        source = penstock.open(tmp_path / "a")
        try:
            assert source.read([0, COUNT - 1]) == [
                {"n": n, "t": f"text {n}"} for n in (0, COUNT - 1)
            ]
        except PenstockError:
            continue
        assert not column, "the text of a frame begins where the one before ends"


COUNTS = [10**30, 2**63, -1, None, "x", 1.5]


@pytest.mark.parametrize("where", ["size", "records", "bytes", "run file", "run records", "deep"])
def test_counts_of_a_meta_json_that_cannot_be_are_an_error_of_ours(
    where: str, tmp_path: Path
) -> None:
    lines(tmp_path / "a", "a.jsonl")
    path = tmp_path / "a" / "index" / "meta.json"
    meta = json.loads(path.read_bytes())
    deep = {**meta, "unknown": 0, "options": {}}
    for number in COUNTS:
        if where == "deep":
            nested = json.dumps(deep).replace(
                '"unknown": 0', f'"unknown": {"[" * 9999}{"]" * 9999}'
            )
            path.write_text(nested)
        else:
            part = meta["runs"][0] if where.startswith("run ") else meta["files"][0]
            path.write_text(
                json.dumps(meta).replace(
                    json.dumps(part), json.dumps({**part, where.rpartition(" ")[2]: number})
                )
            )
        with pytest.raises(PenstockError):
            JsonlDataset.create_from_index_on_filesystem(tmp_path / "a").read(range(COUNT))


@pytest.mark.parametrize(
    "facts", [{}, {"columns": ["n"], "types": []}, {"columns": 1, "types": ["int64", "string"]}]
)
def test_an_index_of_csv_without_columns_is_damaged(facts: dict[str, Any], tmp_path: Path) -> None:
    rows(tmp_path / "a")
    path = tmp_path / "a" / "index" / "meta.json"
    meta = json.loads(path.read_bytes())
    meta["files"][0]["facts"] = facts
    path.write_text(json.dumps(meta))
    with pytest.raises(CorruptIndexError, match="is damaged"):
        CsvRows.create_from_index_on_filesystem(tmp_path / "a")


@pytest.mark.parametrize("name", ["delimiter", "quote", "escape"])
def test_a_nul_is_no_sign_of_csv(name: str, tmp_path: Path) -> None:
    rows(tmp_path / "a")
    path = tmp_path / "a" / "index" / "meta.json"
    meta = json.loads(path.read_bytes())
    meta["options"][name] = "\0"
    path.write_text(json.dumps(meta))
    with pytest.raises(CorruptIndexError, match="is damaged"):
        CsvRows.create_from_index_on_filesystem(tmp_path / "a")


TEXTS = some_documents(2, 60, 1)


@pytest.mark.parametrize("number", [*NUMBERS, 0, 1])
@pytest.mark.parametrize("name", ["document_offsets.bin", "document_ends.bin"])
def test_forged_borders_of_documents_are_told_and_take_no_memory(
    name: str, number: int, tmp_path: Path
) -> None:
    write_concat(tmp_path, TEXTS, 16)
    dtype = "<u8" if "offsets" in name else "<u4"
    forged(tmp_path / "index" / name, dtype, 31, number % 2 ** (32 if dtype == "<u4" else 64))
    source = penstock.open(tmp_path)
    everything = np.arange(len(source))
    for read in (source.document_ends, source.windows(40, 30).document_ends):
        with pytest.raises(CorruptIndexError, match=r"document_offsets\.bin and document_ends"):
            read(everything[:60])
    assert len(source.read(everything)) == len(source)


def test_forged_lengths_of_filled_up_samples_are_told(tmp_path: Path) -> None:
    write_best_fit(tmp_path, [[[1, 2, 3], [4, 5]]] * 9, 16)
    source = penstock.open(tmp_path)
    assert source.lengths(range(9)).tolist() == [5] * 9
    for name, at, number in (("document_ends.bin", 9, 17), ("document_offsets.bin", 5, 10**12)):
        forged(tmp_path / "index" / name, "<u4" if "ends" in name else "<u8", at, number)
        with pytest.raises(CorruptIndexError, match="documents of sample 4"):
            penstock.open(tmp_path).lengths(range(9))


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("is_foreign", [False, True])
@pytest.mark.parametrize(
    "written", [write_documents, lambda path, texts: write_concat(path, texts, 16)]
)
def test_forged_rows_of_samples_are_an_error_of_ours_or_samples_of_their_own(
    written: Any,
    is_foreign: bool,  # noqa: FBT001
    column: int,
    tmp_path: Path,
) -> None:
    folder = written(tmp_path, TEXTS)
    if is_foreign:
        as_data_forager(folder)
    places = tmp_path / "index" / "sample_locations.bin"
    whole = places.read_bytes()
    for row in (0, 50, len(whole) // 24 - 1):
        for number in (*NUMBERS, 2**64 - 8):
            forged(places, "<u8", (row, column), number)
            try:
                source = TokensDataset.create_from_index_on_filesystem(tmp_path)
                assert len(source.read(range(len(source)))) == len(source)
                windows = source.windows(40, 7)
                assert windows.read(range(len(windows))).shape == (len(windows), 40)
                assert windows.document_ends(range(len(windows))) is not None or is_foreign
            except PenstockError:
                pass
            places.write_bytes(whole)


@pytest.mark.parametrize("dtype", ["U99999999999999", "i4,(2", "m8", "float32", "O", ""])
def test_a_forged_type_of_tokens_is_told(dtype: str, tmp_path: Path) -> None:
    write_concat(tmp_path, TEXTS, 16)
    path = tmp_path / "index" / "meta.json"
    path.write_text(path.read_text().replace('"uint16"', json.dumps(dtype)))
    with pytest.raises(CorruptIndexError, match="no type of integers"):
        penstock.open(tmp_path)


@pytest.mark.parametrize("is_foreign", [False, True])
def test_the_first_sample_of_a_later_file_lies_in_it(
    is_foreign: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    folder = write_concat(tmp_path, TEXTS, 16)
    if is_foreign:
        as_data_forager(folder)
    places = tmp_path / "index" / "sample_locations.bin"
    first = int(np.fromfile(places, "<u8").reshape(-1, 3)[:, 0].searchsorted(1))
    forged(places, "<u8", (first, 1), 2**64 - 2**48)
    source = TokensDataset.create_from_index_on_filesystem(tmp_path)
    with pytest.raises(CorruptIndexError, match=f"samples {first} to .* of file 1"):
        source[first]


def test_the_only_sample_of_another_tool_lies_in_a_file_that_is_there(tmp_path: Path) -> None:
    as_data_forager(write_concat(tmp_path, TEXTS, 16))
    places = tmp_path / "index" / "sample_locations.bin"
    np.array([5, 7, 2**62], np.uint64).tofile(places)
    source = TokensDataset.create_from_index_on_filesystem(tmp_path)
    with pytest.raises(CorruptIndexError, match="record 0 lies in file 5 of 2"):
        source.arrow()


def test_a_sample_that_is_larger_than_its_file_takes_no_memory(tmp_path: Path) -> None:
    write_concat(tmp_path, TEXTS, 16)
    path, places = (tmp_path / "index" / name for name in ("meta.json", "sample_locations.bin"))
    size = 10**15
    table = np.fromfile(places, "<u8").reshape(-1, 3)
    table[:, 2] = 2 * size
    table.tofile(places)
    meta = json.loads(path.read_bytes())
    meta["tokens"]["sample_size"] = size
    meta["files"][0]["bytes"] = 2 * size * len(table) - sum(f["bytes"] for f in meta["files"][1:])
    path.write_text(json.dumps(meta))
    with pytest.raises(CorruptIndexError, match=r"sample 0 ends at byte 2,000,000,000,000,000"):
        penstock.open(tmp_path)


@pytest.mark.parametrize(
    "shard", [{"samples": 10**30}, {"samples": 10**18}, {"samples": 25}, {"raw_data": 10**12},
              {"raw_data": 2**32 - 1}],
)  # fmt: skip
@pytest.mark.parametrize("compression", ["br", "snappy", "zstd", "gz"])
def test_forged_counts_of_an_mds_folder_take_no_memory(
    shard: dict[str, int], compression: str, tmp_path: Path
) -> None:
    write_mds(tmp_path, {"a": "int64"}, [{"a": n} for n in range(9)], compression=compression)
    path = tmp_path / "index.json"
    index = json.loads(path.read_bytes())
    if "samples" in shard:
        index["shards"][0].update(shard)
    else:
        index["shards"][0]["raw_data"]["bytes"] = shard["raw_data"]
    path.write_text(json.dumps(index))
    with pytest.raises(CorruptFileError, match="is damaged"):
        MdsRows(tmp_path).read([0])


def test_shapes_of_mds_arrays_that_no_shard_holds_are_told(tmp_path: Path) -> None:
    write_mds(tmp_path, {"a": "ndarray:int8:2"}, [{"a": np.zeros(2, "int8")}])
    path = tmp_path / "index.json"
    path.write_text(path.read_text().replace("int8:2", f"int8:{2**32},{2**32}"))
    with pytest.raises(PenstockError, match="encoding"):
        MdsRows(tmp_path)


def test_a_deep_mds_index_is_damaged(tmp_path: Path) -> None:
    write_mds(tmp_path, {"a": "int64"}, [{"a": 1}])
    path = tmp_path / "index.json"
    deep = "[" * 9999 + "]" * 9999
    path.write_text(path.read_text().replace('"version": 2', f'"version": 2, "more": {deep}'))
    with pytest.raises(CorruptFileError, match="is damaged"):
        MdsRows(tmp_path)


@pytest.mark.parametrize("number", [-1, -5, COUNT, 2**62])
def test_forged_numbers_of_a_view_lead_to_no_other_record(number: int, tmp_path: Path) -> None:
    source = lines(tmp_path / "a", "a.jsonl")
    assert len(source.where("n >= 50")) == COUNT - 50
    (kept,) = (penstock.storage.cache_directory() / "views").glob("*.npy")
    data = bytearray(kept.read_bytes())
    data[-8 * 20 : -8 * 19] = number.to_bytes(8, "little", signed=True)
    kept.write_bytes(data)
    view = penstock.open(tmp_path / "a").where("n >= 50")
    for read in (view.read, view.arrow, view.location, lambda ids: view.read(ids, {"n": "int8"})):
        with pytest.raises(CorruptIndexError, match="numbers of this view are damaged"):
            read(np.array([3, COUNT - 50 - 20]))
    assert view.read([0]) == [{"n": 50, "t": "text 50"}]


@pytest.mark.parametrize("text", [b"PK\x03\x04", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<i8'", b""])
def test_a_view_that_is_no_array_is_found_again(text: bytes, tmp_path: Path) -> None:
    source = lines(tmp_path / "a", "a.jsonl")
    assert len(source.where("n >= 50")) == COUNT - 50
    (kept,) = (penstock.storage.cache_directory() / "views").glob("*.npy")
    kept.write_bytes(text)
    assert len(penstock.open(tmp_path / "a").where("n >= 50")) == COUNT - 50


@pytest.mark.parametrize(
    "column", [pa.array([1.5]), pa.array(["a", None]), pa.array([["a"]])], ids=str
)
def test_a_vocabulary_of_other_values_is_found_again(column: pa.Array, tmp_path: Path) -> None:
    source = lines(tmp_path / "a", "a.jsonl")
    expected = vocabulary(source, "t", 5).to_pylist()
    (kept,) = (penstock.storage.cache_directory() / "views").glob("*.arrow")
    batch = pa.RecordBatch.from_arrays([column], ["values"])
    with pa.OSFile(str(kept), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    assert vocabulary(source, "t", 5).to_pylist() == expected


def test_a_sample_of_another_size_than_all_is_damaged(tmp_path: Path) -> None:
    folder = write_best_fit(tmp_path / "t", [[[5, 6, 7, 0]]] * 20, 8).path
    forged(folder / "index" / "sample_locations.bin", "<u8", (1, 2), 20)
    source = penstock.open(folder)
    with pytest.raises(CorruptIndexError, match="sample 1 has 10 tokens, and every sample 8"):
        source[1]
    assert source.read([1]).tolist() == [[5, 6, 7, 0, *[source.read([0])[0, -1]] * 4]]


@pytest.mark.parametrize(("column", "number"), [(0, 1), (1, 0), (1, 48)])
def test_a_sample_is_never_taken_from_another_place_than_its_batch_is(
    column: int, number: int, tmp_path: Path
) -> None:
    folder = write_concat(tmp_path, TEXTS, 16)
    forged(tmp_path / "index" / "sample_locations.bin", "<u8", (5, column), number)
    source = penstock.open(tmp_path)
    with pytest.raises(CorruptIndexError, match=r"sample 5 lies at byte .* around it elsewhere"):
        source[5]
    assert source.read([5]).tolist() == [folder.rows[5]]
    assert [source[row].tolist() for row in (4, 6, len(source) - 1)] == [
        folder.rows[row] for row in (4, 6, -1)
    ]


@pytest.mark.parametrize("name", [b"a\xce.jsonl", b"[" * 3000])
def test_odd_names_in_an_index_of_another_tool_are_errors_of_ours(
    name: bytes, tmp_path: Path
) -> None:
    lines(tmp_path / "d", "a.jsonl")
    folder = tmp_path / "d" / "index"
    (folder / "meta.json").unlink()
    (folder / "file_location.txt").write_bytes(name + b"\n")
    with pytest.raises(PenstockError):
        JsonlDataset.create_from_index_on_filesystem(str(tmp_path / "d"))[0]
