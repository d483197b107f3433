"""Gzip can only be read from its beginning: in order, as often as one likes, and never shuffled."""

from __future__ import annotations

import functools
import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock import DataLoader
from penstock.datasets._stream_text import StreamText
from penstock.errors import OptionError, TruncatedFileError
from penstock.storage import LocalStore
from tests.loading.samples import make, write_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.datasets import Source

COUNT = 30_000
BATCH = 500
LINE = b'{"n":%d,"c":"c%d","text":"' + b"x" * 300 + b'"}\n'


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of 9 MB of text, which is more than anybody holds of it."""
    path = tmp_path_factory.mktemp("gzip") / "a.jsonl.gz"
    lines = b"".join(LINE % (number, number % 7) for number in range(COUNT))
    path.write_bytes(gzip.compress(lines, 1))
    return path


@pytest.fixture
def source(path: Path) -> Source:
    return penstock.open(path)


@functools.cache
def text_of(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def loader_of(source: Source, **more: Any) -> DataLoader:
    options: dict[str, Any] = {"batch_size": BATCH, "output": "arrow", "num_workers": 0}
    return DataLoader(source, {"n": "int64"}, **{**options, **more})


def numbers(batches: Iterable[Any]) -> list[int]:
    return [number for batch in batches for number in batch["n"].to_pylist()]


def state_after(source: Source, batches: int) -> dict[str, Any]:
    loader = loader_of(source)
    run = iter(loader)
    for _ in range(batches):
        next(run)
    return loader.state_dict()


class TestShuffling:
    @pytest.mark.parametrize("shuffle", [True, "full", "block"])
    def test_is_refused_at_once_with_the_remedy(self, source: Source, shuffle: Any) -> None:
        with pytest.raises(OptionError, match=r"a\.jsonl\.gz .* penstock convert .*shuffle=False"):
            loader_of(source, shuffle=shuffle)

    def test_is_refused_for_every_view(self, source: Source, tmp_path: Path) -> None:
        plain = penstock.open(write_jsonl(tmp_path / "b.jsonl", 10))
        views = [
            source.split(a=0.5, b=0.5)[0],
            source.take([3, 4]),
            source.where("n < 10"),
            plain + source,
            (plain + source).take([0, 12]),
        ]
        for view in views:
            with pytest.raises(OptionError, match="penstock convert"):
                loader_of(view, shuffle=True)

    def test_is_refused_when_a_state_asks_for_it(self, source: Source, tmp_path: Path) -> None:
        plain = DataLoader(make("jsonl", tmp_path, 100), batch_size=10, shuffle=True)
        loader = loader_of(source, on_changed="continue")
        with pytest.raises(OptionError, match="penstock convert"):
            loader.load_state_dict(plain.state_dict())


class TestInOrder:
    @pytest.mark.parametrize("workers", [0, "auto", 2])
    def test_every_pass_gives_every_record(self, source: Source, workers: Any) -> None:
        loader = loader_of(source, num_workers=workers)
        for _ in range(3):
            assert numbers(loader) == list(range(COUNT))

    @pytest.mark.parametrize("workers", [0, "auto", 2])
    def test_a_run_goes_on_from_any_state_in_the_same_process(
        self, source: Source, workers: Any
    ) -> None:
        states = {cut: state_after(source, cut) for cut in (58, 1, 30)}
        for cut in (30, 58, 1, 58, 30):
            loader = loader_of(source, num_workers=workers)
            loader.load_state_dict(states[cut])
            assert numbers(loader) == list(range(cut * BATCH, COUNT))

    def test_a_run_goes_on_after_the_schema_and_the_categories_were_found(
        self, source: Source
    ) -> None:
        state = state_after(source, 40)
        fresh = penstock.open(source.files[0])
        assert fresh.schema.names == ["n", "c", "text"]
        loader = DataLoader(fresh, {"n": "int64", "c": "category"}, batch_size=BATCH)
        loader.load_state_dict(state)
        batch = next(iter(loader))
        assert batch["n"].tolist() == list(range(40 * BATCH, 41 * BATCH))
        assert batch["c"].codes.tolist() == [number % 7 for number in batch["n"].tolist()]

    def test_training_goes_on_after_each_of_many_validations(self, source: Source) -> None:
        train, val = source.split(train=0.9, val=0.1)
        expected = [record["n"] for record in val]
        seen = []
        for step, batch in enumerate(loader_of(train)):
            seen += numbers([batch])
            if step % 5 == 0:
                assert numbers(loader_of(val)) == expected
        assert sorted(seen + expected) == list(range(COUNT))
        assert seen == sorted(seen)

    def test_the_last_of_many_ranks_goes_on_for_many_epochs(self, source: Source) -> None:
        loader = loader_of(source, batch_size=200, rank=63, world_size=64)
        first = numbers(loader)
        assert first[:200] == list(range(63 * 200, 64 * 200))
        assert len(loader) == 3
        for _ in range(20):
            assert numbers(loader) == first


class TestRandomAccess:
    def test_a_few_records_here_and_there_are_given(self, source: Source) -> None:
        for number in (25_000, 15_000, 29_999, 12_000):
            assert source[number]["n"] == number

    @pytest.mark.parametrize("size", [1, 30, 1000])
    def test_more_of_it_is_refused_with_the_remedy(self, source: Source, size: int) -> None:
        order = np.random.default_rng(1).permutation(COUNT)
        seen: list[list[int]] = []
        with pytest.raises(OptionError, match=r"rising order; .* penstock convert"):
            seen.extend(
                [one["n"] for one in source.read(batch)] for batch in order.reshape(-1, size)
            )
        assert len(seen) < 100
        assert [n for batch in seen for n in batch] == order[: size * len(seen)].tolist()
        assert numbers(loader_of(source)) == list(range(COUNT))

    @given(
        places=st.lists(st.tuples(st.integers(0, 9_000_000), st.integers(1, 3_000)), max_size=40)
    )
    def test_gives_the_text_or_refuses_what_takes_too_long(
        self, path: Path, places: list[tuple[int, int]]
    ) -> None:
        whole = text_of(path)
        file = LocalStore().open(str(path))
        text = StreamText(file, once="gzip")
        reads = 0
        try:
            for offset, size in places:
                assert text.read(offset, size) == whole[offset : offset + size]
                reads += 1
        except OptionError:
            assert reads >= 8
        file.close()

    def test_what_is_broken_stays_broken(self, path: Path, tmp_path: Path) -> None:
        data = path.read_bytes()
        broken = tmp_path / "b.jsonl.gz"
        broken.write_bytes(data[: len(data) // 2])
        file = LocalStore().open(str(broken))
        text = StreamText(file, once="gzip")
        for _ in range(2):
            with pytest.raises(TruncatedFileError):
                text.read(8_000_000, 10)
            assert text.read(0, 6) == b'{"n":0'
        file.close()
