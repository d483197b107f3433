"""Megatron-LM datasets: the tokens that were written, windows that know documents, clear errors."""

from __future__ import annotations

import os
import pickle
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.datasets.megatron._files import names_pair
from penstock.datasets.megatron._tokens import MegatronTokens
from penstock.errors import (
    CorruptFileError,
    ObjectNotFoundError,
    OptionError,
    RecordIndexError,
    StaleIndexError,
    TruncatedFileError,
)
from penstock.storage import Meter, metered
from tests.datasets.megatron_files import CODES, idx_bytes, write_megatron
from tests.datasets.token_contract import Rows, TokenContract

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penstock.datasets.tokens._source import TokenSource
    from tests.servers.s3_server import S3Server

DOCUMENTS = [
    [[1, 2, 3], [4, 5]],
    [[6]],
    [[], [7, 8, 9, 10]],
    [[11, 12], [], [13]],
    [[14, 15, 16, 17, 18, 19]],
]
ROWS = [row for document in DOCUMENTS for row in document]
STREAM = [token for row in ROWS for token in row]
# Behind how many tokens of the stream a document ends.
BORDERS = [5, 6, 10, 13, 19]


class TestSequences(TokenContract):
    @pytest.fixture
    def expected(self) -> Rows:
        return [[n, n + 1, n + 2][: 1 + n % 3] + [7] * (n % 11) for n in range(40)]

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: Rows) -> Callable[[], TokenSource]:
        write_megatron(tmp_path / "corpus", [expected[:15], [], expected[15:16], expected[16:]])
        return lambda: MegatronTokens(tmp_path / "corpus")


class TestSequencesOfOneLength(TestSequences):
    @pytest.fixture
    def expected(self) -> Rows:
        return [list(range(n, n + 9)) for n in range(40)]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    write_megatron(tmp_path / "corpus", DOCUMENTS)
    return tmp_path / "corpus"


def as_lists(rows: Any) -> list[list[int]]:
    return [row.tolist() for row in rows]


@pytest.mark.parametrize("ending", ["", ".bin", ".idx"])
def test_a_dataset_is_known_by_its_prefix_or_one_of_its_files(prefix: Path, ending: str) -> None:
    path = f"{prefix}{ending}"
    assert names_pair(path)
    assert names_pair(Path(path))
    source = MegatronTokens(path)
    assert len(source) == len(ROWS)
    assert source.files == [f"{prefix}.bin"]


def test_other_files_are_none(tmp_path: Path) -> None:
    (tmp_path / "other.bin").write_bytes(b"tokens")
    assert not names_pair(tmp_path / "other.bin")
    assert not names_pair(tmp_path)
    assert not names_pair("s3://nowhere/at/all")  # No request is made.


@pytest.mark.parametrize("dtype", CODES)
def test_rows_are_the_sequences_that_were_written(tmp_path: Path, dtype: str) -> None:
    rows = write_megatron(tmp_path / "corpus", DOCUMENTS, dtype, has_modes=dtype == "int32")
    source = MegatronTokens(tmp_path / "corpus")
    assert source.token_dtype == dtype
    assert source.sample_size is None
    assert as_lists(source) == ROWS
    for number in (0, 3, -1):
        assert source[number].dtype == dtype
        assert source[number].tolist() == ROWS[number]
        assert not source[number].flags.writeable or not len(ROWS[number])
        assert source.raw(number) == rows[number].tobytes()
    some = source[[5, 0, 0]]
    assert as_lists(some) == [ROWS[5], ROWS[0], ROWS[0]]
    some[1][0] = 99  # It is the caller's own.
    assert source[0].tolist() == ROWS[0]
    assert source.lengths([0, 3]).tolist() == [3, 0]
    with pytest.raises(RecordIndexError, match="there are 9"):
        source[9]


def test_rows_of_one_length_are_read_as_a_matrix(tmp_path: Path) -> None:
    rows = np.arange(60).reshape(12, 5).tolist()
    write_megatron(tmp_path / "corpus", [[row] for row in rows])
    source = MegatronTokens(tmp_path / "corpus")
    assert source.sample_size == 5
    found = source.read([11, 0, 3, 3])
    assert found.dtype == np.uint16
    assert found.tolist() == [rows[11], rows[0], rows[3], rows[3]]
    ends, offsets = source.document_ends([4, 5]) or ([], [])
    assert (list(ends), list(offsets)) == ([5, 5], [0, 1, 2])
    assert source.arrow([2]).to_pydict() == {"tokens": [rows[2]]}
    assert "12 records" in repr(source)


def test_windows_run_over_sequences_and_know_where_documents_end(prefix: Path) -> None:
    source = MegatronTokens(prefix)
    for length, stride in ((4, 4), (4, 1), (19, 1), (1, 3), (7, 2)):
        windows = source.windows(length, stride)
        starts = range(0, len(STREAM) - length + 1, stride)
        assert as_lists(windows) == [STREAM[at : at + length] for at in starts]
        ends, offsets = windows.document_ends(np.arange(len(windows))) or ([], [])
        assert [list(ends[low:high]) for low, high in pairwise(offsets)] == [
            [*(end - at for end in BORDERS if at < end < at + length), length] for at in starts
        ]


documents_of_any_shape = st.lists(
    st.lists(st.lists(st.integers(0, 255), max_size=6), max_size=4), max_size=8
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents_of_any_shape, st.sampled_from(["uint8", "int64"]), st.data())
def test_any_documents_come_back_as_rows_and_as_windows(
    tmp_path: Path, documents: list[list[list[int]]], dtype: str, data: st.DataObject
) -> None:
    rows = write_megatron(tmp_path / "corpus", documents, dtype)
    source = MegatronTokens(tmp_path / "corpus")
    assert as_lists(source) == as_lists(rows)
    stream = [token for row in rows for token in row.tolist()]
    blocks = source.blocks
    assert (blocks[0], blocks[-1]) == (0, len(rows))
    if not stream:
        with pytest.raises(OptionError, match="no window"):
            source.windows(1)
        return
    length = data.draw(st.integers(1, len(stream)))
    windows = source.windows(length, ahead=1)
    assert len(windows) == len(stream) // length
    borders = np.cumsum([sum(map(len, document)) for document in documents]).tolist()
    for number in range(len(windows)):
        begin = number * length
        real = min(length + 1, len(stream) - begin)
        assert windows[number].tolist()[:real] == stream[begin : begin + real]
        ends, _ = windows.document_ends([number]) or ([], [])
        inside = sorted({end - begin for end in borders if begin < end < begin + real})
        assert list(ends) == [*inside, real]


def test_blocks_are_about_a_mebibyte_of_tokens(tmp_path: Path) -> None:
    write_megatron(tmp_path / "corpus", [[range(1000)]] * 1500)
    blocks = MegatronTokens(tmp_path / "corpus").blocks
    assert blocks.tolist() == [0, 525, 1049, 1500]


def test_locations_lie_in_the_bin(prefix: Path) -> None:
    source = MegatronTokens(prefix)
    assert source.location(2) == (f"{prefix}.bin", 10, 2)
    many = source.location([2, 0])
    assert [column.tolist() for column in many] == [[0, 0], [10, 0], [2, 6]]


def test_views_are_tokens_too(prefix: Path) -> None:
    source = MegatronTokens(prefix)
    assert as_lists(source.take([4, 0])) == [ROWS[4], ROWS[0]]
    assert as_lists(source + source) == ROWS + ROWS
    first, second = source.split(a=0.5, b=0.5)
    assert len(first) + len(second) == len(source)


def change(path: Path, at: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[at : at + len(data)] = data
    path.write_bytes(whole)


@pytest.mark.parametrize(
    ("at", "data", "kind", "words"),
    [
        (0, b"TNTIDX\x00\x00", OptionError, "old formats"),
        (0, b"PARQUET", CorruptFileError, "is no index of Megatron-LM"),
        (9, b"\x02", OptionError, "version 2"),
        (17, b"\x06", OptionError, "float64"),
        (17, b"\x07", OptionError, "float32"),
        (17, b"\x09", OptionError, "dtype code 9"),
        (18, b"\xff\xff", TruncatedFileError, "65,535 sequences"),
        (26, b"\xff\xff", TruncatedFileError, "65,535 document borders"),
        (18, b"\x08", CorruptFileError, "bytes more"),
        (34 + 12 * 9, b"\x01", CorruptFileError, "documents go from 1"),
        (34 + 12 * 9 + 8 * 5, b"\x08", CorruptFileError, "to 8 sequences"),
    ],
)
def test_a_wrong_head_is_told(
    prefix: Path, at: int, data: bytes, kind: type[Exception], words: str
) -> None:
    change(prefix.with_suffix(".idx"), at, data)
    with pytest.raises(kind, match=words):
        MegatronTokens(prefix)


def test_files_that_are_cut_off_or_missing_are_told(prefix: Path) -> None:
    idx, bin_ = prefix.with_suffix(".idx"), prefix.with_suffix(".bin")
    whole = idx.read_bytes()
    for size in (0, 9, 33, len(whole) - 1):
        idx.write_bytes(whole[:size])
        with pytest.raises(TruncatedFileError, match=r"corpus\.idx is cut off"):
            MegatronTokens(prefix)
    idx.write_bytes(whole)
    os.truncate(bin_, bin_.stat().st_size - 1)
    with pytest.raises(TruncatedFileError, match=r"corpus\.bin is cut off"):
        MegatronTokens(prefix)
    bin_.unlink()
    with pytest.raises(ObjectNotFoundError, match=r"there is no .*corpus\.bin"):
        MegatronTokens(prefix)
    bin_.write_bytes(b"")
    idx.unlink()
    with pytest.raises(ObjectNotFoundError, match=r"there is no .*corpus\.idx"):
        MegatronTokens(prefix)


def test_what_is_missing_or_damaged_of_a_pair_is_told_by_any_of_its_names(prefix: Path) -> None:
    idx, bin_ = prefix.with_suffix(".idx"), prefix.with_suffix(".bin")
    whole, tokens = idx.read_bytes(), bin_.read_bytes()
    bin_.unlink()
    for what in (prefix, idx, bin_, prefix.parent):
        with pytest.raises(ObjectNotFoundError, match=r"there is no .*corpus\.bin: a Megatron-LM"):
            penstock.open(what)
    bin_.write_bytes(tokens)
    for text, words in ((b"PARQUET" + whole[7:], "is no index of Meg"), (b"", "is cut off")):
        idx.write_bytes(text)
        for what in (prefix, idx, bin_, prefix.parent):
            with pytest.raises(CorruptFileError, match=rf"corpus\.idx {words}"):
                penstock.open(what)
    idx.unlink()
    with pytest.raises(ObjectNotFoundError, match=r"there is no .*corpus\.idx: a Megatron-LM"):
        penstock.open(prefix)
    for what in (bin_, prefix.parent):  # It may be of anybody.
        with pytest.raises(OptionError, match=r"cannot tell what .*corpus\.bin.*idx is missing"):
            penstock.open(what)


def test_an_idx_of_another_tool_beside_lines_says_nothing_of_megatron(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "data.idx").write_bytes(b"offsets")
    assert penstock.open(tmp_path / "data.jsonl")[0] == {"id": 1}
    assert penstock.open(tmp_path)[0] == {"id": 1}
    with pytest.raises(ObjectNotFoundError, match="no such file"):
        penstock.open(tmp_path / "data")


@pytest.mark.parametrize("row", [0, 4, 8])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("lengths", -1),
        ("lengths", 1 << 30),
        ("places", -2),
        ("places", 1 << 20),  # It begins behind the file, …
        ("places", (1 << 63) - 2),  # … so far that its end is no number any more …
        ("places", 1),  # … or in the middle of a token.
    ],
)
def test_a_sequence_that_lies_nowhere_is_named_at_opening(
    prefix: Path, column: str, value: int, row: int
) -> None:
    if column == "lengths":
        change(prefix.with_suffix(".idx"), 34 + 4 * row, np.array(value, "<i4").tobytes())
    else:
        change(prefix.with_suffix(".idx"), 34 + 4 * 9 + 8 * row, np.array(value, "<i8").tobytes())
    with pytest.raises(CorruptFileError) as raised:
        penstock.open(prefix)
    if (column, value, row) == ("lengths", 1 << 30, 8):
        assert "corpus.bin is cut off" in str(raised.value)  # That is how it looks.
    else:
        assert f"corpus.idx is damaged: sequence {row} has" in str(raised.value)


def write_huge(prefix: Path, count: int) -> None:
    """Write sparse files: so many sequences without tokens, and three tokens in the last one."""
    head = idx_bytes(8, [0], 2, [0, 1])[:18] + np.array([count, 2], "<u8").tobytes()
    with prefix.with_suffix(".idx").open("wb") as file:
        file.write(head)
        file.seek(34 + 4 * (count - 1))
        file.write(np.array([3], "<i4").tobytes())
        file.seek(34 + 12 * count)
        file.write(np.array([0, count], "<i8").tobytes())
    prefix.with_suffix(".bin").write_bytes(np.array([7, 8, 9], np.uint16).tobytes())


MANY, MIDDLE = 3_000_000, 1_500_000


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (34 + 4 * MIDDLE, b"\xff\xff\xff\xff"),  # A length below zero.
        (34 + 4 * MIDDLE, b"\xff\xff"),  # A sequence that ends behind the file.
        (34 + 4 * MANY + 8 * MIDDLE, b"\xff\xff"),  # One that begins there …
        (34 + 4 * MANY + 8 * MIDDLE, b"\x01"),  # … or in the middle of a token.
    ],
)
def test_a_sequence_amid_millions_that_lies_nowhere_is_named_when_it_is_read(
    tmp_path: Path, at: int, data: bytes
) -> None:
    write_huge(tmp_path / "many", MANY)
    with (tmp_path / "many.idx").open("r+b") as file:
        file.seek(at)
        file.write(data)
    source = MegatronTokens(tmp_path / "many")
    assert source[-1].tolist() == [7, 8, 9]
    for ask in (
        source.__getitem__,
        source.raw,
        source.location,
        lambda i: source[[0, i]],
        lambda i: source.lengths([0, i]),
        lambda i: source.document_ends([0, i]),
    ):
        with pytest.raises(CorruptFileError, match="sequence 1,500,000 has"):
            ask(MIDDLE)


def test_a_length_below_zero_makes_no_stream(tmp_path: Path) -> None:
    write_huge(tmp_path / "many", MANY)
    with (tmp_path / "many.idx").open("r+b") as file:
        file.seek(34 + 4 * MIDDLE)
        file.write(b"\xff\xff\xff\xff")
    source = MegatronTokens(tmp_path / "many")
    with pytest.raises(CorruptFileError, match="fewer than 0 tokens"):
        source.windows(1)


def test_a_folder_of_one_pair_is_opened_and_of_several_one_is_to_be_named(prefix: Path) -> None:
    folder = prefix.parent
    for what in (folder, [folder], [prefix], [f"{prefix}.idx"]):
        source = penstock.open(what)
        assert isinstance(source, MegatronTokens)
        assert as_lists(source) == ROWS
    write_megatron(folder / "zweite", DOCUMENTS)
    with pytest.raises(OptionError, match=r"holds 2 pairs.*open\('.*corpus\.bin'\)"):
        penstock.open(folder)
    (folder / "records.jsonl").write_text('{"id": 1}\n')
    assert penstock.open(folder)[0] == {"id": 1}


def test_sequences_with_gaps_are_rows_but_no_stream(prefix: Path) -> None:
    change(prefix.with_suffix(".idx"), 34 + 4 * 9 + 8 * 2, b"\x04")
    source = MegatronTokens(prefix)
    assert source[2].tolist() == [3]
    assert not source.is_stream
    with pytest.raises(OptionError, match="do not lie one after the other"):
        source.windows(3)


def test_document_borders_that_do_not_rise_are_told_by_windows(prefix: Path) -> None:
    change(prefix.with_suffix(".idx"), 34 + 12 * 9 + 8 * 2, b"\x09")
    source = MegatronTokens(prefix)
    assert as_lists(source) == ROWS
    with pytest.raises(CorruptFileError, match="borders do not rise"):
        source.windows(3)


def test_files_that_changed_since_are_noticed(prefix: Path) -> None:
    bin_ = prefix.with_suffix(".bin")
    first, second = MegatronTokens(prefix), MegatronTokens(prefix)
    assert first[0].tolist() == ROWS[0]
    packed = pickle.dumps(first)
    os.truncate(bin_, 4)
    for ask in (first.__getitem__, lambda i: first[[i]], lambda i: first.windows(2)[i]):
        with pytest.raises(StaleIndexError, match=r"corpus\.bin shrank"):
            ask(8)
    with pytest.raises(StaleIndexError, match="it was written to"):
        second[8]
    write_megatron(prefix, [[[1, 2, 3]], *DOCUMENTS])
    with pytest.raises(StaleIndexError, match="changed since another process"):
        pickle.loads(packed)[0]
    assert MegatronTokens(prefix).fingerprint != first.fingerprint


def test_the_fingerprint_does_not_depend_on_the_place(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    write_megatron(tmp_path / "deep" / "other", DOCUMENTS)
    one, other = MegatronTokens(prefix), MegatronTokens(tmp_path / "deep" / "other")
    assert one.fingerprint == other.fingerprint
    write_megatron(tmp_path / "third", DOCUMENTS, "int32")
    assert MegatronTokens(tmp_path / "third").fingerprint != one.fingerprint


def test_hardly_anything_of_a_huge_index_is_read_to_open_it(tmp_path: Path) -> None:
    count = 1_000_000_000
    write_huge(tmp_path / "huge", count)
    source = MegatronTokens(tmp_path / "huge")
    assert len(source) == count
    assert source[count - 1].tolist() == [7, 8, 9]
    assert as_lists(source[[5, -1]]) == [[], [7, 8, 9]]
    assert len(pickle.dumps(source)) < 1000


@pytest.mark.s3
def test_remote_data_is_read_by_ranges_or_by_blocks(
    tmp_path: Path, s3_server: S3Server, bucket: str
) -> None:
    chance = np.random.default_rng(3)
    rows = [chance.integers(0, 60_000, size) for size in chance.integers(0, 30_000, 60)]
    write_megatron(tmp_path / "corpus", [[row] for row in rows])
    for end in (".bin", ".idx"):
        data = (tmp_path / f"corpus{end}").read_bytes()
        s3_server.put(bucket, f"lm/corpus{end}", data)
    options = s3_server.storage_options
    url = f"s3://{bucket}/lm/corpus"
    source = MegatronTokens(f"{url}.bin", storage_options=options)
    assert source.files == [f"{url}.bin"]
    assert source.fingerprint == MegatronTokens(tmp_path / "corpus").fingerprint

    def check(found: list[NDArray[Any]], ids: list[int]) -> None:
        assert as_lists(found) == [rows[number].tolist() for number in ids]

    meter = Meter()
    with metered(meter):
        check(source[[50]], [50])
    assert meter.requests == 1
    ids = [59, 0, 31, 0]
    check(source[ids], ids)
    assert source[7].tolist() == rows[7].tolist()
    stream = np.concatenate(rows)
    windows = source.windows(1000)
    assert windows[[3, 500]].tolist() == [stream[at : at + 1000].tolist() for at in (3000, 500_000)]
    blocked = source.by_blocks()
    check(list(blocked), list(range(60)))
    assert blocked.windows(777)[[9]].tolist() == [stream[9 * 777 : 10 * 777].tolist()]
    meter = Meter()
    with metered(meter):
        again = MegatronTokens(url + ".idx", storage_options=options).by_blocks()
        assert len(list(again)) == 60
    assert meter.bytes < 200_000  # The ends of both files, and neither of them.
