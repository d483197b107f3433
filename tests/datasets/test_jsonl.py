from __future__ import annotations

import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.datasets import Dataset, JsonlDataset
from penstock.errors import OptionError, SchemaMismatchError
from penstock.index import IndexStore, SampleIndex, create_default_jsonl_indexer
from tests.rounds import rounds
from tests.unprivileged import as_nobody, folder_for_all


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [f'{{"id": {n}, "price": {n}.5, "tags": [{n}], "name": "ä{n}"}}\n' for n in range(100)]
    (tmp_path / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    create_default_jsonl_indexer(tmp_path)()
    return tmp_path


def test_fields_leave_the_others_out(folder: Path) -> None:
    for fields in (["id", "tags"], {"id": "int64", "tags": "list<int64>"},
                   pa.schema({"id": pa.int32(), "tags": pa.list_(pa.int64())})):  # fmt: skip
        dataset = JsonlDataset.create_from_index_on_filesystem(folder, fields=fields)
        assert dataset[7] == {"id": 7, "tags": [7]}
        assert dataset[[1, 2]] == [{"id": 1, "tags": [1]}, {"id": 2, "tags": [2]}]
        assert dataset.arrow([3]).to_pylist() == [{"id": 3, "tags": [3]}]
    by_schema = JsonlDataset.create_from_index_on_filesystem(
        folder, schema=pa.schema({"id": pa.int64()})
    )
    assert by_schema[-1] == {"id": 99}
    with pytest.raises(OptionError, match="one of them"):
        JsonlDataset(IndexStore(folder).load(), fields=["id"], schema=pa.schema([]))


def test_a_value_that_is_not_of_its_fields_type_names_the_record(folder: Path) -> None:
    dataset = JsonlDataset.create_from_index_on_filesystem(folder, fields={"name": "int64"})
    with pytest.raises(ValueError, match=r"record 5 .*name"):
        dataset[5]
    plain = JsonlDataset.create_from_index_on_filesystem(folder)
    with pytest.raises(SchemaMismatchError, match=r"record 5 .*name"):
        plain.read([5], {"name": "int64"})


def test_other_encodings_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes('{"name": "ä"}\n'.encode("latin-1"))
    create_default_jsonl_indexer(tmp_path)()
    dataset = JsonlDataset.create_from_index_on_filesystem(tmp_path, text_encoding="latin-1")
    assert dataset[0] == dataset[[0]][0] == {"name": "ä"}
    assert dataset.arrow([0]).to_pylist() == [{"name": "ä"}]


def test_a_subclass_says_what_bytes_mean(folder: Path) -> None:
    class Lengths(Dataset):
        def _process_sample(self, sample_bytes: bytes) -> int:
            return len(sample_bytes)

    dataset = Lengths.create_from_index_on_filesystem(folder, name="lengths")
    assert not dataset.is_initialized
    dataset.initialize()
    assert dataset.is_initialized
    assert dataset[0] == dataset.location(0).bytes
    assert dataset[::50] == [dataset[0], dataset[50]]
    with pytest.raises(TypeError, match="_process_sample"):
        Dataset.create_from_index_on_filesystem(folder)


def test_a_hand_made_index_is_enough(folder: Path) -> None:
    size = len((folder / "a.jsonl").read_bytes().partition(b"\n")[0])
    rows = np.array([[0, 0, size]] * 2, np.uint64)
    index = SampleIndex([str(folder / "a.jsonl")], rows)
    assert [record["id"] for record in JsonlDataset(index)] == [0, 0]
    assert len(JsonlDataset(index).fingerprint) == 16


@pytest.mark.parametrize("where", ["file", "pattern", "list"])
def test_what_has_no_place_for_an_index_has_it_in_the_cache(
    where: str, folder: Path, own_cache: Path
) -> None:
    IndexStore(folder).clear()
    what: object = {
        "file": folder / "a.jsonl",
        "pattern": f"{folder}/*.jsonl",
        "list": [str(folder / "a.jsonl")],
    }[where]
    assert len(penstock.open(what)) == 100
    assert not (folder / "index").exists()
    (index,) = (own_cache / "indexes").iterdir()
    before = (index / "meta.json").stat().st_ino
    assert penstock.open(what)[99]["id"] == 99
    assert (index / "meta.json").stat().st_ino == before


def test_a_folder_that_may_not_be_written_to_has_its_index_in_the_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock.open(folder)[0]  # Imports what the other user may not reach.
    with folder_for_all() as base:
        data, cache = base / "data", base / "cache"
        data.mkdir()
        (data / "a.jsonl").write_bytes((folder / "a.jsonl").read_bytes())
        cache.mkdir()
        cache.chmod(0o777)
        data.chmod(0o555)
        monkeypatch.setenv("PENSTOCK_CACHE", str(cache))
        assert as_nobody(partial(record_of, data, 99))["id"] == 99
        assert [path.name for path in data.iterdir()] == ["a.jsonl"]
        (index,) = (cache / "indexes").iterdir()
        assert (index / "meta.json").exists()


def record_of(path: Path, number: int) -> dict[str, object]:
    record: dict[str, object] = penstock.open(path)[number]
    return record


def test_another_place_may_be_chosen(folder: Path, tmp_path: Path) -> None:
    IndexStore(folder).clear()
    place = tmp_path / "elsewhere" / "my index"
    assert penstock.open(folder, index=place)[1]["id"] == 1
    assert (place / "meta.json").exists()
    assert not (folder / "index").exists()


def test_offsets_beyond_4_gib_and_files_with_holes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"id": 0}\n')
        file.seek(5 << 30)
        file.write(b'\n{"id": 1}\n')
    index = SampleIndex([str(path)], np.array([[0, 0, 10], [0, (5 << 30) + 1, 10]], np.uint64))
    dataset = JsonlDataset(index)
    assert dataset[1] == dataset[[1]][0] == {"id": 1}
    assert dataset[[1, 0]] == [{"id": 1}, {"id": 0}]


def test_twenty_thousand_files_do_not_run_out_of_descriptors(tmp_path: Path) -> None:
    count = rounds(2000, 20_000)
    for number in range(count):
        (tmp_path / f"{number}.jsonl").write_bytes(b'{"id":%d}\n' % number)
    create_default_jsonl_indexer(tmp_path)()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Other tests of this process left some open: Parquet files that are kept, connections.
    room = len(list(Path("/proc/self/fd").iterdir())) + 160
    resource.setrlimit(resource.RLIMIT_NOFILE, (room, limits[1]))
    try:
        dataset = JsonlDataset.create_from_index_on_filesystem(tmp_path)
        ids = np.random.default_rng(0).permutation(count)
        assert [dataset[int(i)]["id"] for i in ids[:1000]] == ids[:1000].tolist()
        assert [record["id"] for record in dataset[ids]] == ids.tolist()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


OPEN_AND_READ = """
import resource, sys
import penstock, numpy, pyarrow
from penstock.datasets import JsonlDataset
import penstock.datasets.text._jsonl
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
def read_bytes(): return int(open("/proc/self/io").read().split()[1])
memory, bytes_read = peak(), read_bytes()
dataset = JsonlDataset.create_from_index_on_filesystem(sys.argv[1])
assert len(dataset) == int(sys.argv[2])
assert dataset[len(dataset) - 1] == {"id": 0}
print(peak() - memory, read_bytes() - bytes_read)
"""


def test_opening_reads_and_holds_no_more_for_a_billion_samples(tmp_path: Path) -> None:
    costs = []
    for count in (10**6, 10**9):
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / "a.jsonl").write_text('{"id":0}\n')
        create_default_jsonl_indexer(folder)()
        (folder / "index" / "meta.json").unlink()
        rows = folder / "index" / "sample_locations.bin"
        row = rows.read_bytes()
        with rows.open("wb") as file:  # Sparse: all but the last row are holes.
            file.truncate(24 * count)
            file.seek(24 * (count - 1))
            file.write(row)
        program = [sys.executable, "-c", OPEN_AND_READ, folder, str(count)]
        done = subprocess.run(program, check=True, capture_output=True, text=True)
        costs.append([int(number) for number in done.stdout.split()])
    assert costs[1][0] < costs[0][0] + (20 << 20)
    assert costs[1][1] < costs[0][1] + (1 << 20)


def test_formats_are_told_by_name_then_by_content(tmp_path: Path) -> None:
    (tmp_path / "unnamed").write_text('{"id": 1}\n')
    assert penstock.open(tmp_path / "unnamed")[0] == {"id": 1}
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    with pytest.raises(OptionError, match="cannot tell what"):
        penstock.open(tmp_path / "binary")
    (tmp_path / "a.jsonl").write_text("{}\n")
    (tmp_path / "b.csv").write_text("x\n1\n")
    with pytest.raises(OptionError, match=r"1 of JSON Lines and 1 of CSV.*format='jsonl'"):
        penstock.open(tmp_path)
    with pytest.raises(FileNotFoundError):
        penstock.open(tmp_path / "missing.jsonl")
    with pytest.raises(OptionError, match="cannot open"):
        penstock.open(object())


def test_an_empty_folder_and_an_empty_file_say_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no files"):
        penstock.open(tmp_path)
    (tmp_path / "a.jsonl").write_text("")
    source = penstock.open(tmp_path)
    assert len(source) == 0
    assert list(source) == []
    assert source[:] == []
    assert source.blocks.tolist() == [0]
    assert source.arrow().num_rows == 0
    with pytest.raises(IndexError, match="there are 0"):
        source[0]


def test_a_bad_line_is_only_in_the_way_of_those_who_ask_for_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 0}\n{oops\n{"id": 2}\n')
    source = penstock.open(tmp_path)
    assert source.schema.names == ["id"]
    assert source.arrow([2, 0], ["id"])["id"].to_pylist() == [2, 0]
    assert source.take([0, 2]).where("id == 2")[0] == {"id": 2}
    assert source.take([0, 2]).arrow(fields=["id"])["id"].to_pylist() == [0, 2]
    with pytest.raises(ValueError, match="record 1 "):
        source.arrow([1], ["id"])


def test_names_without_types_take_what_the_records_hold(tmp_path: Path) -> None:
    lines = [f'{{"id": {n}, "v": {n}}}\n' for n in range(5000)]
    lines[2601] = '{"id": 2601, "v": "oops", "late": true}\n'
    (tmp_path / "a.jsonl").write_text("".join(lines))
    source = penstock.open(tmp_path)
    assert source.schema.field("v").type == pa.int64()
    assert source.arrow([2600], ["v"])["v"].to_pylist() == [2600]
    assert source.arrow([2600, 2601], ["v", "id"]).to_pylist() == [
        {"v": "2600", "id": 2600},
        {"v": "oops", "id": 2601},
    ]
    assert source.arrow(fields=["v"])["v"][2601].as_py() == "oops"
    with pytest.raises(SchemaMismatchError, match="record 2,601 "):
        source.arrow([2601], {"v": "int64"})


def test_every_batch_has_all_columns_of_the_schema(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"b": 0.5}\n{"a": 2.5}\n')
    source = penstock.open(tmp_path)
    assert source.arrow([0]).schema == source.arrow([1]).schema == source.schema
    assert source.arrow([]).schema == source.schema
    assert source.arrow([0]).to_pylist() == [{"a": 1.0, "b": None}]
    assert source.arrow(slice(1, None)).num_rows == len(source.take(slice(1, None))) == 2
    with pytest.raises(TypeError, match="one number"):
        source.read(5)


def test_numbers_beyond_all_records_are_no_negative_ones(folder: Path) -> None:
    dataset = penstock.open(folder)
    with pytest.raises(IndexError, match="18446744073709551615"):
        dataset[np.array([2**64 - 1], np.uint64)]
