"""MDS folders: the samples that were written, and clear words about what cannot be read."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import penstock
from penstock.datasets.mds._index import is_mds
from penstock.datasets.mds._rows import MdsRows, cut
from penstock.datasets.mds._values import Arrays, Cells
from penstock.errors import (
    CorruptFileError,
    ObjectNotFoundError,
    OptionError,
    SchemaMismatchError,
    StaleIndexError,
    TruncatedFileError,
)
from penstock.storage import Meter, metered
from tests.datasets.mds_files import encoded, shard_bytes, write_mds
from tests.datasets.source_contract import SourceContract

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.datasets import Source
    from tests.datasets.sample import Record
    from tests.servers.s3_server import S3Server

COLUMNS = {"id": "int", "score": "float64", "name": "str", "user": "json", "small": "int8"}
ROWS = [
    {
        "id": n,
        "name": f"Köln {n}" * (n % 3),
        "score": n / 4 - 3,
        "small": n % 200 - 100,
        "user": {"age": n % 90, "home": {"city": "東京" if n % 2 else None}, "tags": ["a"] * n},
    }
    for n in range(60)
]
COMPRESSIONS = ["br", "bz2", "gz", "snappy", "zstd:3"]


class TestShards(SourceContract):
    has_raw = True

    @pytest.fixture
    def expected(self) -> list[Record]:
        return ROWS

    @pytest.fixture
    def open_source(self, tmp_path: Path) -> Callable[[], Source]:
        # Two shards are compressed, and the others plain.
        write_mds(tmp_path, COLUMNS, ROWS, samples=17, compression="zstd")
        for number in (1, 3):
            plain = shard_bytes(COLUMNS, ROWS[17 * number : 17 * number + 17])
            (tmp_path / f"shard.0000{number}.mds").write_bytes(plain)
        return lambda: MdsRows(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_mds(tmp_path / "data", COLUMNS, ROWS, samples=25)
    return tmp_path / "data"


def change_index(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))


def with_hashes(index: dict[str, Any]) -> None:
    for number, shard in enumerate(index["shards"]):
        shard["raw_data"]["hashes"] = {"sha1": f"hash {number}"}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_each_compression_of_the_format_is_read(tmp_path: Path, compression: str) -> None:
    write_mds(tmp_path, COLUMNS, ROWS, samples=25, compression=compression)
    source = MdsRows(tmp_path)
    assert list(source) == ROWS
    assert source.by_blocks()[::-1] == ROWS[::-1]
    assert source.by_blocks().fingerprint == source.fingerprint
    assert source.files[0].endswith(f".mds.{compression.partition(':')[0]}")


def test_a_plain_shard_that_is_there_is_preferred_to_its_compressed_one(tmp_path: Path) -> None:
    write_mds(tmp_path, COLUMNS, ROWS, samples=30, compression="gz")
    change_index(tmp_path, with_hashes)
    fingerprint = MdsRows(tmp_path).fingerprint
    (tmp_path / "shard.00000.mds").write_bytes(shard_bytes(COLUMNS, ROWS[:30]))
    (tmp_path / "shard.00000.mds.gz").unlink()
    source = MdsRows(tmp_path)
    assert [path.rpartition(".")[2] for path in source.files] == ["mds", "gz"]
    assert list(source) == ROWS
    assert source.fingerprint == fingerprint


def test_blocks_are_shards_and_locations_lie_in_them(folder: Path) -> None:
    source = MdsRows(folder)
    assert source.blocks.tolist() == [0, 25, 50, 60]
    assert [Path(path).name for path in source.files] == [f"shard.0000{n}.mds" for n in range(3)]
    file, offset, size = source.location(26)
    assert Path(file).read_bytes()[offset : offset + size] == source.raw(26)


def test_values_of_every_encoding_come_back_with_their_types(tmp_path: Path) -> None:
    encodings: dict[str, tuple[str, Any, pa.DataType]] = {
        "int": ("int", -5, pa.int64()),
        "i8": ("int8", -128, pa.int8()),
        "u16": ("uint16", 65535, pa.uint16()),
        "i32": ("int32", -(2**31), pa.int32()),
        "u64": ("uint64", 2**64 - 1, pa.uint64()),
        "f16": ("float16", 0.5, pa.float16()),
        "f32": ("float32", 0.25, pa.float32()),
        "f64": ("float64", 1 / 3, pa.float64()),
        "str": ("str", "zürich", pa.string()),
        "bytes": ("bytes", b"\x00\xff", pa.binary()),
        "str_int": ("str_int", -12, pa.int64()),
        "str_float": ("str_float", 0.1, pa.float64()),
        "str_decimal": ("str_decimal", Decimal("1.50"), pa.decimal128(3, 2)),
        "json": ("json", [1, 2], pa.list_(pa.int64())),
        "png": ("png", b"\x89PNG", pa.binary()),
        "pngs": ("list[png]", [b"one", b"", b"three"], pa.list_(pa.binary())),
        "jpegs": ("jpeg_array", [b"j"], pa.list_(pa.binary())),
    }
    row = {name: value for name, (_, value, _) in encodings.items()}
    write_mds(tmp_path, {name: kind for name, (kind, _, _) in encodings.items()}, [row, row])
    source = MdsRows(tmp_path)
    assert source[0] == row
    table = source.arrow()
    assert {name: table.schema.field(name).type for name in row} == {
        name: type_ for name, (_, _, type_) in encodings.items()
    }
    assert table.to_pylist() == [row, row]


@pytest.mark.parametrize(
    "encoding", ["ndarray", "ndarray:int32", "ndarray:int32:3", "ndarray:int32: 3"]
)
def test_arrays_come_as_arrays_and_their_columns_as_lists(tmp_path: Path, encoding: str) -> None:
    rows = [{"id": n, "x": np.arange(n, n + 3, dtype=np.int32)} for n in range(10)]
    write_mds(tmp_path, {"id": "int", "x": encoding}, rows, samples=4)
    source = MdsRows(tmp_path)
    for n in (0, 5, 9):
        found = source[n]["x"]
        assert found.dtype == np.int32
        assert found.tolist() == [n, n + 1, n + 2]
        found += 1  # It is the caller's own.
    column = source.arrow()["x"]
    assert column.type.value_type == pa.int32()
    assert column.to_pylist() == [row["x"].tolist() for row in rows]
    wide = source.read([9, 0], {"x": "list<int64>"})
    assert wide.to_pydict() == {"x": [[9, 10, 11], [0, 1, 2]]}
    assert source.materialize({"x": "list<int32>"}, progress=False).read(
        [3], ["x"]
    ).to_pydict() == {"x": [[3, 4, 5]]}


def test_arrays_of_several_axes_are_lists_of_lists(tmp_path: Path) -> None:
    rows = [{"a": np.ones((n + 1, 2, 3)) * n, "b": np.full((2, 2), n, np.uint8)} for n in range(4)]
    write_mds(tmp_path, {"a": "ndarray", "b": "ndarray:uint8:2,2"}, rows)
    source = MdsRows(tmp_path)
    assert source[2]["a"].shape == (3, 2, 3)
    assert source.arrow().to_pylist() == [
        {name: array.tolist() for name, array in row.items()} for row in rows
    ]


def test_arrays_that_no_column_holds_together_are_named(tmp_path: Path) -> None:
    rows = [{"a": np.ones(2)}, {"a": np.ones((2, 2))}, {"a": np.ones(2, np.int64)}]
    write_mds(tmp_path, {"a": "ndarray"}, rows)
    source = MdsRows(tmp_path)
    assert source[1]["a"].shape == (2, 2)
    with pytest.raises(SchemaMismatchError, match=r"record 1 .*float64 with 2 axes"):
        source.arrow([0, 1])
    with pytest.raises(SchemaMismatchError, match=r"record 2 .*int64"):
        source.arrow([0, 2])


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3)
dtypes = st.sampled_from(["uint8", "int16", "float16", "uint32", "int64", "float64"])


@given(shapes, dtypes, st.integers(0, 2))
@example([300], "uint8", 0)
@example([70_000, 1], "int16", 1)
def test_any_array_survives_its_encoding(shape: list[int], dtype: str, details: int) -> None:
    array = np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)
    name = ":".join(["ndarray", dtype, ",".join(map(str, shape))][: details + 1])
    data = encoded(name, array)
    encoding = Arrays(np.dtype(dtype) if details else None, tuple(shape) if details == 2 else None)
    cells = Cells(b"??" + data, np.array([2]), np.array([2 + len(data)]))
    (found,) = encoding.values(cells)
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)
    assert encoding.array(cells).to_pylist() == [array.tolist()]


@given(st.lists(st.none() | st.integers(0, 5), max_size=5), st.data())
def test_samples_are_cut_into_the_columns_they_were_made_of(
    sizes: list[int | None], data: st.DataObject
) -> None:
    cell = [
        st.binary(max_size=9) if s is None else st.binary(min_size=s, max_size=s) for s in sizes
    ]
    rows = data.draw(st.lists(st.tuples(*cell), max_size=6))
    texts = []
    for row in rows:
        lengths = [len(value) for value, size in zip(row, sizes, strict=True) if size is None]
        texts.append(np.array(lengths, "<u4").tobytes() + b"".join(row))
    cells = cut(texts, sizes)
    assert [column.parts() for column in cells] == [
        [row[at] for row in rows] for at in range(len(sizes))
    ]


def test_fields_of_json_are_reached_by_paths(folder: Path) -> None:
    source = MdsRows(folder)
    batch = source.read([3, 1], {"user.age": "int8", "user.home.city": "string"})
    assert batch.to_pydict() == {"user.age": [3, 1], "user.home.city": ["東京", "東京"]}
    assert len(source.where("user.age >= 50")) == 10


def test_a_value_that_does_not_fit_is_named(folder: Path) -> None:
    with pytest.raises(SchemaMismatchError, match="record 1: field 'small'"):
        MdsRows(folder).read([1, 59], {"small": "uint8"})


def test_only_folders_with_an_index_of_shards_are_mds(folder: Path, tmp_path: Path) -> None:
    assert is_mds(folder)
    assert is_mds(str(folder))
    assert not is_mds(tmp_path)
    assert not is_mds(folder / "index.json")
    for text in ("", "[]", "{}", '{"version": 2, "shards": [{}]}', '{"shards": [1], "version": 2}'):
        (tmp_path / "index.json").write_text(text)
        assert not is_mds(tmp_path)


def test_a_folder_without_shards_is_opened_as_one_of_no_samples(tmp_path: Path) -> None:
    write_mds(tmp_path, COLUMNS, [])
    source = penstock.open(tmp_path)
    assert isinstance(source, MdsRows)
    assert len(source) == 0


@pytest.mark.parametrize("field", ["samples", "bytes"])
def test_numbers_below_zero_are_damage(folder: Path, field: str) -> None:
    def change(index: dict[str, Any]) -> None:
        shard = index["shards"][0]
        (shard if field == "samples" else shard["raw_data"])[field] = -1

    change_index(folder, change)
    with pytest.raises(CorruptFileError, match=rf"index\.json .*>= 0.*{field}.*Copy the folder"):
        penstock.open(folder)


def test_pickles_and_unknown_encodings_are_refused_by_name(tmp_path: Path) -> None:
    for encoding, words in {
        "pkl": "'thing' holds pickles",
        "riddle": "encoding 'riddle'",
        "ndarray:complex64": "ndarray:complex64",
        "ndarray:int8:0": "ndarray:int8:0",
    }.items():
        write_mds(tmp_path, {"thing": "bytes"}, [{"thing": b"x"}])
        change_index(
            tmp_path, lambda index, e=encoding: index["shards"][0].update(column_encodings=[e])
        )
        with pytest.raises(OptionError, match=words):
            MdsRows(tmp_path)


def test_other_formats_versions_and_compressions_are_refused_by_name(folder: Path) -> None:
    def shard(**changes: object) -> Callable[[dict[str, Any]], object]:
        return lambda index: index["shards"][1].update(changes)

    packed = {"basename": "shard.00001.mds.lzma", "bytes": 1, "hashes": {}}
    (folder / "shard.00001.mds.lzma").write_bytes(b"x")
    whole = (folder / "index.json").read_text()
    for change, words in (
        (lambda index: index.update(version=3), "version 3"),
        (shard(format="jsonl"), "format 'jsonl'"),
        (shard(column_encodings=["int", "str", "float64", "int8", "bytes"]), "other columns"),
        (shard(raw_data={"basename": "../../etc/passwd", "bytes": 1}), "not in that folder"),
        (
            shard(raw_data={"basename": "no", "bytes": 1}, zip_data=packed, compression="lzma"),
            "compressed by 'lzma'",
        ),
    ):
        (folder / "index.json").write_text(whole)
        change_index(folder, change)
        with pytest.raises(OptionError, match=words):
            MdsRows(folder)


def test_what_is_missing_or_cut_off_is_named_at_opening(folder: Path) -> None:
    shard = folder / "shard.00001.mds"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(TruncatedFileError, match=r"shard\.00001\.mds has .* bytes"):
        MdsRows(folder)
    shard.write_bytes(data + b"x")
    with pytest.raises(CorruptFileError, match=r"shard\.00001\.mds has .* bytes"):
        MdsRows(folder)
    shard.unlink()
    with pytest.raises(ObjectNotFoundError, match=r"lists shard\.00001\.mds"):
        MdsRows(folder)
    (folder / "index.json").write_text('{"version": 2, "shards": [{}]}')
    with pytest.raises(CorruptFileError, match=r"index\.json is damaged, or no index"):
        MdsRows(folder)
    with pytest.raises(ObjectNotFoundError):
        MdsRows(folder / "nowhere")


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"version": 2}'])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_shards_without_a_whole_index_are_told_as_an_incomplete_copy(
    tmp_path: Path, text: str | None, compression: str | None
) -> None:
    write_mds(tmp_path, {"id": "int"}, [{"id": 1}], compression=compression)
    index = tmp_path / "index.json"
    index.unlink()
    error, words = ObjectNotFoundError, r"no index\.json that names them, .*shard\.00000\.mds.*Copy"
    if text is not None:
        index.write_text(text)
        error, words = CorruptFileError, r"index\.json is damaged.*Copy the folder again"
    with pytest.raises(error, match=words):
        penstock.open(tmp_path)
    (tmp_path / "records.jsonl").write_text('{"id": 1}\n')
    assert penstock.open(tmp_path)[0] == {"id": 1}


@pytest.mark.parametrize(
    ("at", "words"),
    [(0, "says"), (4, "do not rise"), (4 * 26, "do not rise"), (4 * 10, "do not rise")],
)
def test_a_damaged_head_of_a_shard_is_named(folder: Path, at: int, words: str) -> None:
    shard = folder / "shard.00000.mds"
    data = bytearray(shard.read_bytes())
    data[at : at + 4] = (7).to_bytes(4, "little")
    shard.write_bytes(data)
    source = MdsRows(folder)
    assert source[30] == ROWS[30]
    with pytest.raises(CorruptFileError, match=words):
        source[3]


def test_a_damaged_sample_is_named_with_its_record(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": n, "b": {"n": n}} for n in range(5)]
    write_mds(tmp_path, {"a": "str", "b": "json"}, rows)
    shard, source = tmp_path / "shard.00000.mds", MdsRows(tmp_path)
    assert source[0] == {"a": "0", "b": {"n": 0}}
    _, offset, _ = source.location(3)
    data = bytearray(shard.read_bytes())
    for at, value, words in (
        (offset, 99, r"record 3 .* columns take"),
        (offset + 8, 0xFF, r"record 3 .* column 'a' cannot be read"),
        (offset + 9, ord("}"), r"record 3 .* column 'b' cannot be read"),
    ):
        shard.write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
        again = MdsRows(tmp_path)
        assert again[4] == {"a": "4", "b": {"n": 4}}
        with pytest.raises(CorruptFileError, match=words) as raised:
            again[2:4]
        assert raised.value.record == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_damaged_compressed_shards_are_named(tmp_path: Path, compression: str) -> None:
    write_mds(tmp_path, COLUMNS, ROWS, compression=compression)
    (shard,) = tmp_path.glob("shard*")
    shard.write_bytes(b"\x00" + shard.read_bytes()[1:])
    with pytest.raises(CorruptFileError, match=r"shard\.00000.* is damaged"):
        MdsRows(tmp_path)[0]


@pytest.mark.parametrize("compression", ["gz", "bz2", "zstd"])
def test_no_more_is_decompressed_than_the_index_says(tmp_path: Path, compression: str) -> None:
    write_mds(tmp_path, COLUMNS, ROWS, compression=compression)
    change_index(tmp_path, lambda index: index["shards"][0]["raw_data"].update(bytes=1000))
    with pytest.raises(CorruptFileError, match="damaged"):
        MdsRows(tmp_path)[0]


def test_a_shard_that_changed_since_is_noticed(folder: Path) -> None:
    source = MdsRows(folder)
    assert source[0] == ROWS[0]
    os.truncate(folder / "shard.00000.mds", 1000)
    with pytest.raises(StaleIndexError, match=r"shard\.00000\.mds shrank"):
        source[24]
    shard = folder / "shard.00001.mds"
    shard.write_bytes(shard.read_bytes() + b"more")
    with pytest.raises(StaleIndexError, match="it was written to"):
        source[30]
    (folder / "shard.00002.mds").unlink()
    with pytest.raises(StaleIndexError, match="it is gone"):
        source[55]


@pytest.mark.parametrize("at", [200, -1])
def test_other_content_of_one_size_is_another_fingerprint(folder: Path, at: int) -> None:
    shard, source = folder / "shard.00001.mds", MdsRows(folder)
    data = bytearray(shard.read_bytes())
    data[at] ^= 1
    shard.write_bytes(data)
    other = MdsRows(folder)
    assert other.fingerprint != source.fingerprint
    assert other.was(MdsRows(folder).fingerprint, 60)
    change_index(folder, with_hashes)
    hashed = MdsRows(folder).fingerprint
    data[at] ^= 1
    shard.write_bytes(data)
    assert MdsRows(folder).fingerprint == hashed  # Whoever wrote the hashes is believed.


def test_another_process_finds_the_same_folder_or_says_so(folder: Path) -> None:
    packed = pickle.dumps(MdsRows(folder))
    assert pickle.loads(packed)[59] == ROWS[59]
    shutil.rmtree(folder)
    write_mds(folder, COLUMNS, ROWS[:40], samples=25)
    with pytest.raises(StaleIndexError, match="changed since another process"):
        pickle.loads(packed)[0]


def test_shards_that_are_appended_change_the_fingerprint_but_not_the_past(tmp_path: Path) -> None:
    write_mds(tmp_path / "short", COLUMNS, ROWS[:50], samples=25)
    write_mds(tmp_path / "long", COLUMNS, ROWS, samples=25)
    write_mds(tmp_path / "other", {**COLUMNS, "small": "int16"}, ROWS, samples=25)
    short, long, other = (MdsRows(tmp_path / name) for name in ("short", "long", "other"))
    assert len({short.fingerprint, long.fingerprint, other.fingerprint}) == 3
    assert long.was(short.fingerprint, 50)
    assert not long.was(short.fingerprint, 60)
    assert not other.was(short.fingerprint, 50)


def test_shards_in_folders_of_their_own_are_found(folder: Path) -> None:
    (folder / "part").mkdir()
    (folder / "shard.00001.mds").rename(folder / "part" / "shard.00001.mds")
    change_index(
        folder,
        lambda index: index["shards"][1]["raw_data"].update(basename="part/shard.00001.mds"),
    )
    assert list(MdsRows(folder)) == ROWS


def test_a_folder_without_samples_is_an_empty_source(tmp_path: Path) -> None:
    write_mds(tmp_path, COLUMNS, [])
    source = MdsRows(tmp_path)
    assert len(source) == 0
    assert list(source) == []
    assert source.blocks.tolist() == [0]
    assert source.files == []


@pytest.mark.s3
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_remote_shards_are_read_by_ranges_or_as_a_whole(
    tmp_path: Path, s3_server: S3Server, bucket: str, compression: str | None
) -> None:
    write_mds(tmp_path, COLUMNS, ROWS, samples=25, compression=compression)
    change_index(tmp_path, with_hashes)
    for file in tmp_path.iterdir():
        s3_server.put(bucket, f"mds/{file.name}", file.read_bytes())
    url, options = f"s3://{bucket}/mds", s3_server.storage_options
    source = MdsRows(url, storage_options=options)
    assert source.files[0].startswith(f"{url}/shard.00000.mds")
    assert source.fingerprint == MdsRows(tmp_path).fingerprint
    assert source[[59, 0, 30, 1]] == [ROWS[59], ROWS[0], ROWS[30], ROWS[1]]
    meter = Meter()
    with metered(meter):
        assert source[[2, 3]] == ROWS[2:4]
    assert meter.requests == (0 if compression else 1)
    blocked = source.by_blocks()
    assert list(blocked) == ROWS
    meter = Meter()
    with metered(meter):
        assert MdsRows(url, storage_options=options).by_blocks()[5] == ROWS[5]
    assert meter.cache_hits == 1


@pytest.mark.s3
def test_a_remote_shard_without_a_hash_is_known_by_its_etag(
    tmp_path: Path, s3_server: S3Server, bucket: str
) -> None:
    write_mds(tmp_path, COLUMNS, ROWS, samples=25)
    for file in tmp_path.iterdir():
        s3_server.put(bucket, f"mds/{file.name}", file.read_bytes())
    url, options = f"s3://{bucket}/mds", s3_server.storage_options
    source = MdsRows(url, storage_options=options)
    assert MdsRows(url, storage_options=options).fingerprint == source.fingerprint
    data = (tmp_path / "shard.00001.mds").read_bytes()
    s3_server.put(bucket, "mds/shard.00001.mds", data[:-1] + bytes([data[-1] ^ 1]))
    assert MdsRows(url, storage_options=options).fingerprint != source.fingerprint
