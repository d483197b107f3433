from __future__ import annotations

import gc
import io
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage import (
    HeldFile,
    LocalStore,
    MeteredFile,
    open_for_reading,
    open_for_writing,
    read_blocks,
)
from tests.storage.store_contract import Place

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = bytes(range(256)) * 20


@pytest.fixture(scope="module")
def name(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Place(LocalStore(), str(tmp_path_factory.mktemp("files"))).publish("a", CONTENT)


STEPS = st.lists(
    st.tuples(st.just("read"), st.integers(-1, 6000), st.just(0))
    | st.tuples(st.just("seek"), st.integers(-100, 6000), st.sampled_from([0, 1, 2]))
)


@given(steps=STEPS)
def test_a_file_for_reading_behaves_as_python_knows_it(
    name: str, steps: list[tuple[str, int, int]]
) -> None:
    with open_for_reading(LocalStore(), name) as ours, io.BytesIO(CONTENT) as theirs:
        assert ours.readable()
        assert ours.seekable()
        assert not ours.writable()
        for step, number, whence in steps:
            if step == "read":
                assert ours.read(number) == theirs.read(number)
            elif (theirs.tell() * (whence == 1) + len(CONTENT) * (whence == 2)) + number < 0:
                with pytest.raises(ValueError, match="seek"):
                    ours.seek(number, whence)
            else:
                assert ours.seek(number, whence) == theirs.seek(number, whence)
            assert ours.tell() == theirs.tell()


def test_it_is_taken_by_the_libraries_that_read_files(tmp_path: Path) -> None:
    place = Place(LocalStore(), str(tmp_path))
    text = b"line\n" * 1000
    compressed = place.publish("a.zst", zstandard.compress(text))
    with (
        open_for_reading(LocalStore(), compressed) as file,
        zstandard.ZstdDecompressor().stream_reader(file) as reader,
    ):
        assert reader.read() == text
    sink = io.BytesIO()
    table = pa.table({"a": [1, 2, 3]})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with open_for_reading(LocalStore(), place.publish("a.arrow", sink.getvalue())) as file:
        assert pa.ipc.open_file(file).read_all() == table
    with open_for_reading(LocalStore(), place.publish("a.txt", text)) as file:
        assert file.readline() == b"line\n"
        assert sum(1 for _ in file) == 999


@given(block=st.integers(1, 6000))
def test_blocks_are_the_file_from_first_to_last(name: str, block: int) -> None:
    file = LocalStore().open(name)
    blocks = list(read_blocks(file, block))
    file.close()
    assert b"".join(blocks) == CONTENT
    assert all(len(b) == block for b in blocks[:-1])
    assert 0 < len(blocks[-1]) <= block


@given(ranges=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 100))))
def test_held_and_metered_files_read_as_the_file_does(
    name: str, ranges: list[tuple[int, int]]
) -> None:
    expected = [CONTENT[start : start + length] for start, length in ranges]
    file = LocalStore().open(name)
    told: list[int] = []
    metered = MeteredFile(file, told.append)
    assert [metered.read_at(*each) for each in ranges] == expected
    assert told == [len(piece) for piece in expected]
    told.clear()
    assert metered.read_ranges(ranges) == expected
    assert told == [sum(map(len, expected))]
    held = HeldFile(file)
    metered.close()
    assert (held.path, held.size) == (metered.path, metered.size) == (name, len(CONTENT))
    assert held.read_ranges(ranges) == expected
    assert [held.read_at(*each) for each in ranges] == expected


def test_an_empty_file_can_be_held(tmp_path: Path) -> None:
    file = LocalStore().open(Place(LocalStore(), str(tmp_path)).publish("a", b""))
    held = HeldFile(file)
    file.close()
    assert (held.size, held.read_at(0, 0)) == (0, b"")


def test_a_file_for_writing_appears_when_its_block_ends_well(tmp_path: Path) -> None:
    target = tmp_path / "sub" / "a"
    with open_for_writing(LocalStore(), str(target.parent), str(target)) as file:
        assert file.writable()
        assert file.write(b"one ") == 4
        assert file.write(memoryview(b"\1\0\2\0").cast("H")) == 4
        assert not target.exists()
    assert target.read_bytes() == b"one \1\0\2\0"
    assert os.listdir(target.parent) == ["a"]  # noqa: PTH208
    with pytest.raises(ValueError, match="closed"):
        file.write(b"late")


def test_a_block_left_by_an_exception_publishes_nothing_and_keeps_what_was_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    writing = open_for_writing(LocalStore(), str(tmp_path), str(tmp_path / "a"))
    writing.write(b"new")
    with pytest.raises(LookupError), writing:
        raise LookupError
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208


def test_a_file_that_is_dropped_publishes_nothing(tmp_path: Path) -> None:
    file = open_for_writing(LocalStore(), str(tmp_path), str(tmp_path / "a"))
    file.write(b"new")
    del file
    gc.collect()
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_a_failed_write_that_somebody_swallowed_still_publishes_nothing(tmp_path: Path) -> None:
    file = open_for_writing(LocalStore(), str(tmp_path), str(tmp_path / "a"))
    file.write(b"first")
    with pytest.raises(TypeError):
        file.write("not bytes")  # type: ignore[arg-type]
    with pytest.raises(OSError, match="an earlier write failed"):
        file.close()
    assert os.listdir(tmp_path) == []  # noqa: PTH208
