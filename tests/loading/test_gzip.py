"""Gzip can only be read from its beginning: in order, and shuffled through columns."""

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
from penstock.datasets.text._texts import StreamText
from penstock.errors import (
    MalformedLineError,
    OptionError,
    SchemaMismatchError,
    TruncatedFileError,
)
from penstock.order import Order
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
    options["materialize"] = False
    return DataLoader(source, {"n": "int64"}, **{**options, **more})


def numbers(batches: Iterable[Any]) -> list[int]:
    return [number for batch in batches for number in batch["n"].to_pylist()]


def state_after(source: Source, batches: int) -> dict[str, Any]:
    loader = loader_of(source)
    run = iter(loader)
    for _ in range(batches):
        next(run)
    return loader.state_dict()


REMEDIES = r"a\.jsonl\.gz .*Name the fields .* penstock convert .*a\.jsonl\.gz DST; .*shuffle=False"


def views_of(source: Source, folder: Path) -> list[Source]:
    plain = penstock.open(write_jsonl(folder / "b.jsonl", 10))
    return [
        source.split(a=0.5, b=0.5)[0],
        source.take([3, 4, 20_000, 5]),
        source.where("n < 10"),
        plain + source,
        (plain + source).take([0, 12]),
    ]


class TestShuffling:
    """It needs columns, so that somebody must name the fields, and not forbid them."""

    @pytest.mark.parametrize("shuffle", [True, "full", "block"])
    @pytest.mark.parametrize("encode", [None, len, {"n": "int64"}], ids=["none", "call", "types"])
    def test_is_refused_at_once_without_with_the_remedies(
        self, source: Source, shuffle: Any, encode: Any
    ) -> None:
        with pytest.raises(OptionError, match=REMEDIES):
            DataLoader(
                source,
                encode,
                batch_size=BATCH,
                shuffle=shuffle,
                materialize=False if encode == {"n": "int64"} else "auto",
            )

    def test_is_refused_for_every_view(self, source: Source, tmp_path: Path) -> None:
        for view in views_of(source, tmp_path):
            with pytest.raises(OptionError, match=REMEDIES):
                loader_of(view, shuffle=True)

    def test_is_refused_when_a_state_asks_for_it(self, source: Source, tmp_path: Path) -> None:
        plain = DataLoader(make("jsonl", tmp_path, 100), batch_size=10, shuffle=True)
        loader = loader_of(source, on_changed="continue")
        with pytest.raises(OptionError, match=REMEDIES):
            loader.load_state_dict(plain.state_dict())
        loader = loader_of(source, on_changed="continue", materialize="auto")
        loader.load_state_dict(plain.state_dict())
        assert numbers(loader) == Order(COUNT).positions(0, COUNT).tolist()

    @pytest.mark.parametrize(
        ("shuffle", "workers"), [(True, 0), (True, 2), ("full", "auto"), ("block", "auto")]
    )
    def test_goes_through_columns(self, source: Source, shuffle: Any, workers: Any) -> None:
        loader = loader_of(source, shuffle=shuffle, num_workers=workers, materialize="auto")
        if shuffle is True:
            expected = "full, seed 0: gzip is decoded once, into columns"
            assert loader.explain()["order"] == expected
        kind: Any = "full" if shuffle is True else shuffle
        blocks = source.blocks if kind == "block" else None
        for epoch in range(2):
            order = Order(COUNT, epoch=epoch, kind=kind, blocks=blocks)
            assert numbers(loader) == order.positions(0, COUNT).tolist()
        assert loader.explain()["columns"].startswith("gathered; they were made")

    def test_goes_through_columns_for_every_view(self, source: Source, tmp_path: Path) -> None:
        for view in views_of(source, tmp_path):
            loader = loader_of(view, shuffle=True, materialize="auto", seed=3)
            order = Order(len(view), seed=3).positions(0, len(view)).tolist()
            known = [one["n"] for one in view]
            assert numbers(loader) == [known[number] for number in order]

    def test_goes_on_at_any_cut(self, source: Source) -> None:
        first = loader_of(source, shuffle=True, materialize="auto")
        expected = Order(COUNT).positions(0, COUNT).tolist()
        run = iter(first)
        for cut in range(1, 60, 7):
            for _ in range(cut - first.state_dict()["position"] // BATCH):  # type: ignore[operator]
                next(run)
            second = loader_of(source, shuffle=True, materialize="auto")
            second.load_state_dict(first.state_dict())
            assert numbers(second) == expected[cut * BATCH :]

    def test_goes_through_the_columns_of_the_source_whatever_is_said(self, source: Source) -> None:
        given = source.materialize({"n": "int64"})
        loader = loader_of(given, shuffle=True, materialize=False)
        assert numbers(loader) == Order(COUNT).positions(0, COUNT).tolist()
        with pytest.raises(OptionError, match=REMEDIES):
            DataLoader(given, {"c": "string"}, batch_size=5, shuffle=True, materialize=False)

    @pytest.mark.parametrize("on_error", ["raise", "mask"])
    def test_names_bad_records_or_masks_them(self, tmp_path: Path, on_error: Any) -> None:
        count = 6_000
        bad = {5: b'{"n":"many"}\n', 3_000: b'{"n":\n', 5_999: b'{"n":1e99}\n'}
        text = b"".join(bad.get(number, LINE % (number, 0)) for number in range(count))
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text, 1))
        loader = loader_of(
            penstock.open(tmp_path / "a.jsonl.gz"),
            shuffle=True,
            materialize="auto",
            on_error=on_error,
            output=None,
        )
        order = Order(count).positions(0, count).tolist()
        if on_error == "raise":
            first = min(bad, key=order.index)
            with pytest.raises(
                (MalformedLineError, SchemaMismatchError), match=rf"skip=\[{first}\]"
            ):
                list(loader)
            assert loader.state_dict()["position"] == order.index(first) // BATCH * BATCH
            return
        batches = list(loader)
        assert [number for batch in batches for number in batch.ids.tolist()] == order
        uncounted = [n for b in batches if b.valid is not None for n in b.ids[~b.valid].tolist()]
        assert sorted(uncounted) == sorted(bad)


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
