"""`Tokens` through the loader: windows of a stream, packed samples, documents."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock import Batch, DataLoader, Tokens
from penstock.datasets import TokensDataset
from penstock.errors import OptionError
from penstock.loading._steps import Sharing, Steps
from penstock.order import Cursor
from tests.datasets.mds_files import write_mds
from tests.datasets.token_folders import (
    EOS,
    Folder,
    as_data_forager,
    some_documents,
    write_best_fit,
    write_concat,
    write_documents,
)
from tests.loading.samples import ids_of
from tests.loading.token_samples import all_shown, shown

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source
    from tests.servers.s3_server import S3Server

PACKED = [[[5, 6, EOS], [7, EOS]], [[8, 9, 10, 11, 12, EOS]], [[13, EOS]], [[EOS], [14, 15, EOS]]]


@pytest.fixture(scope="module")
def concat(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    path = tmp_path_factory.mktemp("concat") / "t"
    return write_concat(path, some_documents(2, 12), size=16)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return write_best_fit(tmp_path_factory.mktemp("packed") / "t", PACKED * 5, size=6)


def opened(folder: Folder) -> Source:
    return TokensDataset.create_from_index_on_filesystem(folder.path)


def sizes(batch: Batch) -> list[int]:
    return [stop - start for start, stop in pairwise(batch["cu_seqlens"].tolist())]


class TestAStream:
    @pytest.mark.parametrize("workers", [0, "auto", 1])
    @pytest.mark.parametrize(
        ("length", "stride"), [(16, None), (7, None), (7, 3), (40, 11), (1, None)], ids=str
    )
    def test_has_windows_of_any_length_and_stride(
        self, concat: Folder, workers: Any, length: int, stride: int | None
    ) -> None:
        encode = Tokens(length, stride)
        loader = DataLoader(opened(concat), encode, batch_size=5, shuffle=True, num_workers=workers)
        step, text = stride or length, concat.stream
        count = (len(text) - length) // step + 1
        assert len(loader.source) == count
        seen = []
        for batch in loader:
            assert list(batch) == ["input_ids", "labels"]
            for row, number in enumerate(batch.ids.tolist()):
                start = number * step
                after = text[start + 1 : start + length + 1]
                assert batch["input_ids"][row].tolist() == text[start : start + length]
                assert batch["labels"][row].tolist() == after + [-100] * (length - len(after))
                seen.append(number)
        assert sorted(seen) == list(range(count))

    def test_without_a_shift_labels_are_the_tokens(self, concat: Folder) -> None:
        for batch in DataLoader(opened(concat), Tokens(9, shift=False), batch_size=4):
            assert torch.equal(batch["input_ids"], batch["labels"])
            assert batch["input_ids"].data_ptr() != batch["labels"].data_ptr()

    @pytest.mark.parametrize("boundaries", [True, EOS], ids=["told", "by token"])
    def test_knows_where_documents_end(self, concat: Folder, boundaries: Any) -> None:
        encode = Tokens(10, 4, boundaries=boundaries)
        borders = set(concat.borders)
        for batch in DataLoader(opened(concat), encode, batch_size=3, shuffle=True):
            expected: list[int] = []
            for row, number in enumerate(batch.ids.tolist()):
                start = 4 * number
                ends = [at - start for at in sorted(borders) if start < at < start + 10]
                expected += [b - a for a, b in pairwise([0, *ends, 10])]
                labels = batch["labels"][row].tolist()
                for place, label in enumerate(labels):
                    at = start + place + 1
                    is_known = at < len(concat.stream) and at not in borders
                    assert label == (concat.stream[at] if is_known else -100)
            assert sizes(batch) == expected
            assert batch["max_seqlen"] == max(expected)
            places = [place for size in expected for place in range(size)]
            assert batch["position_ids"].reshape(-1).tolist() == places

    def test_of_data_forager_knows_only_the_token(self, tmp_path: Path) -> None:
        folder = as_data_forager(write_concat(tmp_path / "t", some_documents(1, 9), size=8))
        with pytest.raises(OptionError, match="boundaries=0"):
            DataLoader(opened(folder), Tokens(8, boundaries=True), batch_size=2)
        batch = next(iter(DataLoader(opened(folder), Tokens(8, boundaries=EOS), batch_size=2)))
        assert "cu_seqlens" in batch

    def test_of_documents_has_windows_too(self, tmp_path: Path) -> None:
        folder = write_documents(tmp_path / "t", some_documents(2, 9))
        encode = Tokens(12, boundaries=True)
        for batch in DataLoader(opened(folder), encode, batch_size=2):
            for row, number in enumerate(batch.ids.tolist()):
                start = 12 * number
                assert batch["input_ids"][row].tolist() == folder.stream[start : start + 12]
        ends = [at for at in folder.borders if 0 < at < 12]
        first = next(iter(DataLoader(opened(folder), encode, batch_size=1)))
        assert sizes(first) == [b - a for a, b in pairwise([0, *ends, 12])]

    @pytest.mark.parametrize("documents", [1, 9])
    def test_that_was_filled_up_is_trained_on_to_its_last_token(
        self, documents: int, tmp_path: Path
    ) -> None:
        texts = [[[7] * 5] * documents]
        folder = write_concat(tmp_path / "t", texts, size=16, pad=True)
        tokens = 6 * documents
        batches = list(DataLoader(opened(folder), Tokens(16), batch_size=2))
        rows = [row for batch in batches for row in batch["labels"].tolist()]
        assert len(rows) == len(opened(folder)) == -(-tokens // 16)
        learnt = [label for row in rows for label in row if label != -100]
        # All but the first, which is no label.
        assert learnt == folder.stream[1:]
        last = 16 - (len(rows) * 16 - tokens)
        assert batches[-1]["input_ids"][-1].tolist()[last:] == [0] * (16 - last)
        told = DataLoader(opened(folder), Tokens(16), batch_size=2).explain()["source"]
        assert "is filled up" in told

    def test_is_what_the_loader_speaks_of(self, concat: Folder) -> None:
        source = opened(concat)
        plain, windows = (
            DataLoader(source, batch_size=2),
            DataLoader(source, Tokens(5), batch_size=2),
        )
        assert windows.state_dict()["length"] == len(windows.source) == len(concat.stream) // 5
        assert len(windows) == -(-len(windows.source) // 2)
        assert windows.state_dict()["fingerprint"] != plain.state_dict()["fingerprint"]
        told = windows.explain()
        assert isinstance(told, dict)
        assert "Tokens(5)" in told["batch"]
        assert "5 tokens (uint16) and 1 ahead a record" in told["source"]
        assert told["workers"].startswith("the caller's own thread: to gather tokens")
        step = windows.explain(step=1)
        assert step.offsets.tolist() == [20, 30]  # type: ignore[union-attr]

    def test_other_windows_are_another_run(self, concat: Folder) -> None:
        state = DataLoader(opened(concat), Tokens(5), batch_size=2).state_dict()
        with pytest.raises(penstock.errors.ChangedSourceError):
            DataLoader(opened(concat), Tokens(6), batch_size=2).load_state_dict(state)

    @pytest.mark.parametrize("workers", ["auto", 2])
    @pytest.mark.parametrize("boundaries", [True, False])
    def test_a_run_goes_on_at_any_batch(
        self, concat: Folder, workers: Any, boundaries: Any
    ) -> None:
        def loader() -> DataLoader:
            encode = Tokens(9, 4, boundaries=boundaries)
            return DataLoader(
                opened(concat), encode, batch_size=20, shuffle=True, num_workers=workers
            )

        whole = all_shown(loader())
        first = loader()
        run = iter(first)
        for cut in range(len(whole)):
            second = loader()
            second.load_state_dict(first.state_dict())
            assert all_shown(second) == whole[cut:]
            next(run)

    def test_rows_that_fill_up_do_not_count_and_have_no_labels(self, concat: Folder) -> None:
        loader = DataLoader(opened(concat), Tokens(16), batch_size=100, rank=1, world_size=2)
        if len(loader.source) % 2 == 0:
            loader = DataLoader(
                loader.source.take(range(len(loader.source) - 1)),
                Tokens(16),
                batch_size=100,
                rank=1,
                world_size=2,
            )
        (batch,) = loader
        assert batch.valid.tolist() == [True] * (len(batch) - 1) + [False]
        assert (batch["labels"][-1] == -100).all()
        assert (batch["labels"][:-1, 0] != -100).all()


class TestPacked:
    @pytest.mark.parametrize("workers", [0, "auto", 2])
    def test_samples_come_as_they_are_with_their_documents(
        self, packed: Folder, workers: Any
    ) -> None:
        loader = DataLoader(opened(packed), Tokens(6), batch_size=4, num_workers=workers)
        assert len(loader.source) == len(packed.rows)
        for batch in loader:
            assert batch["input_ids"].tolist() == [packed.rows[n] for n in batch.ids.tolist()]
            assert sizes(batch) == [3, 2, 1, 6, 2, 4, 1, 3, 2]
            assert batch["max_seqlen"] == 6
            assert batch["labels"].tolist() == [
                [6, EOS, -100, EOS, -100, -100],
                [9, 10, 11, 12, EOS, -100],
                [EOS, -100, -100, -100, -100, -100],
                [-100, 15, EOS, -100, -100, -100],
            ]
            assert batch["position_ids"][0].tolist() == [0, 1, 2, 0, 1, 0]

    def test_one_token_less_is_known_to_the_end(self, packed: Folder) -> None:
        batch = next(iter(DataLoader(opened(packed), Tokens(5), batch_size=4)))
        assert batch["labels"][1].tolist() == [9, 10, 11, 12, EOS]
        assert sizes(batch) == [3, 2, 5, 2, 3, 1, 3, 1]

    def test_documents_need_not_be_told(self, packed: Folder) -> None:
        encode = Tokens(6, boundaries=False)
        batch = next(iter(DataLoader(opened(packed), encode, batch_size=4)))
        assert list(batch) == ["input_ids", "labels"]
        assert batch["labels"][0].tolist() == [6, EOS, 7, EOS, -100, -100]

    @pytest.mark.parametrize("encode", [Tokens(4), Tokens(6, stride=2), Tokens(12)], ids=str)
    def test_other_lengths_are_refused_with_the_remedy(self, packed: Folder, encode: Any) -> None:
        with pytest.raises(OptionError, match=r"6 tokens each .* Tokens\(6\)"):
            DataLoader(opened(packed), encode, batch_size=4)


class TestViews:
    def test_of_samples_are_taken_as_they_are(self, concat: Folder) -> None:
        train, rest = opened(concat).split(train=0.7, rest=0.3)
        for view in (train, rest, train + rest, opened(concat).take([4, 2])):
            for batch in DataLoader(view, Tokens(16), batch_size=3, shuffle=True):
                rows = [np.asarray(view[n]).tolist() for n in batch.ids.tolist()]
                assert batch["input_ids"].tolist() == rows
                assert batch["labels"].tolist() == [[*row[1:], -100] for row in rows]

    def test_of_windows_are_windows(self, concat: Folder) -> None:
        windows = opened(concat).windows(10, ahead=1)  # type: ignore[attr-defined]
        train, _ = windows.split(train=0.5, rest=0.5)
        whole = {
            number: row
            for batch in DataLoader(opened(concat), Tokens(10), batch_size=1)
            for number, row in zip(batch.ids.tolist(), batch["labels"].tolist(), strict=True)
        }
        for batch in DataLoader(train, Tokens(10), batch_size=3):
            numbers = train.ids[batch.ids.numpy()].tolist()
            assert batch["labels"].tolist() == [whole[number] for number in numbers]

    def test_of_another_length_are_refused_with_the_remedy(self, concat: Folder) -> None:
        view = opened(concat).take([1, 2])
        with pytest.raises(OptionError, match=r"Tokens\(16\).*windows"):
            DataLoader(view, Tokens(8), batch_size=1)


@pytest.mark.s3
class TestRemote:
    @pytest.mark.parametrize("encode", [None, Tokens(16), Tokens(7, 3, boundaries=True)], ids=str)
    def test_tokens_are_read_by_threads_and_the_same(
        self, concat: Folder, s3_server: S3Server, bucket: str, encode: Any
    ) -> None:
        for path in concat.path.rglob("*"):
            if path.is_file():
                key = f"t/{path.relative_to(concat.path)}"
                s3_server.put(bucket, key, path.read_bytes())
        remote = TokensDataset.create_from_index_on_filesystem(
            f"s3://{bucket}/t", storage_options=s3_server.storage_options
        )
        for shuffle in (False, "full", "block"):
            local = DataLoader(opened(concat), encode, batch_size=8, shuffle=shuffle)
            loader = DataLoader(remote, encode, batch_size=8, shuffle=shuffle)
            told = loader.explain()
            assert isinstance(told, dict)
            assert "threads of this process: remote reads" in told["workers"]
            assert all_shown(loader) == all_shown(local)
        assert (
            DataLoader(remote, encode, batch_size=8, shuffle=True)
            .explain()["order"]
            .startswith(  # type: ignore[index]
                "block"
            )
        )


class TestColumns:
    def test_of_tokens_are_encoded_too(self) -> None:
        records = [{"tokens": [1, 2, 3]}, {"tokens": [4, 0, 5, 6]}]
        for workers in (0, "auto", 1):
            loader = DataLoader(records, Tokens(3, boundaries=0), batch_size=2, num_workers=workers)
            (batch,) = loader
            assert batch["labels"].tolist() == [[2, 3, -100], [0, -100, 6]]
            assert batch["cu_seqlens"].tolist() == [0, 3, 5, 6]

    def test_what_is_too_long_is_a_bad_record(self) -> None:
        records = [{"tokens": [1, 2]}, {"tokens": [1, 2, 3, 4]}, {"tokens": [5]}]
        with pytest.raises(penstock.errors.SchemaMismatchError, match=r"record 1: .*skip=\[1\]"):
            list(DataLoader(records, Tokens(2), batch_size=3))
        (batch,) = DataLoader(records, Tokens(2), batch_size=3, on_error="mask")
        assert batch.valid.tolist() == [True, False, True]
        assert batch["labels"].tolist() == [[2, -100], [-100, -100], [-100, -100]]


class TestBytes:
    ROWS = ([1, 2, 3], [], [4, 0, 5, 6], [65_535])

    @pytest.mark.parametrize("dtype", ["int64", "uint16", "int32"])
    @pytest.mark.parametrize("workers", [0, "auto", 1])
    def test_of_mds_are_tokens(self, dtype: str, workers: Any, tmp_path: Path) -> None:
        """As LLM Foundry writes them."""
        rows = [{"tokens": np.array(row, dtype).tobytes()} for row in self.ROWS]
        if dtype == "uint16":
            rows[0]["tokens"] = rows[0]["tokens"][:3]  # What is bad is in its own batch.
        write_mds(tmp_path, {"tokens": "bytes"}, rows, samples=3)
        loader = DataLoader(
            tmp_path,
            Tokens(3, boundaries=0, token_dtype=dtype),
            batch_size=4,
            num_workers=workers,
            on_error="mask",
        )
        (batch,) = loader
        first = [[2, 3, -100]] if dtype != "uint16" else [[-100] * 3]
        assert batch["labels"].tolist() == [*first, [-100] * 3, [0, -100, 6], [-100] * 3]
        assert batch["input_ids"][1:].tolist() == [[0] * 3, [4, 0, 5], [65_535, 0, 0]]
        assert (batch.valid is None) == (dtype != "uint16")

    def test_may_have_one_size_and_another_order(self, tmp_path: Path) -> None:
        values = np.array([[1, 2, 3], [4, 5, 6]], ">u2")
        column = pa.array([row.tobytes() for row in values], pa.binary(6))
        pq.write_table(pa.table({"tokens": column}), tmp_path / "a.parquet")
        encode = Tokens(3, shift=False, token_dtype=">u2")
        (batch,) = DataLoader(tmp_path / "a.parquet", encode, batch_size=2)
        assert batch["input_ids"].tolist() == values.tolist()
        assert repr(encode) == "Tokens(3, shift=False, token_dtype='>u2')"

    def test_are_told_of_with_the_remedy(self, tmp_path: Path) -> None:
        write_mds(tmp_path, {"tokens": "bytes"}, [{"tokens": b"12345678"}, {"tokens": b"123"}])
        with pytest.raises(OptionError, match=r"holds bytes: .* token_dtype='int64'"):
            DataLoader(tmp_path, Tokens(3), batch_size=1)
        with pytest.raises(OptionError, match=r"is list<.*Leave it out"):
            DataLoader([{"tokens": [1]}], Tokens(3, token_dtype="int64"), batch_size=1)
        with pytest.raises(penstock.errors.SchemaMismatchError, match=r"record 1: .* int64 tokens"):
            list(DataLoader(tmp_path, Tokens(3, token_dtype="int64"), batch_size=2))
        with pytest.raises(penstock.errors.SchemaMismatchError, match=r"if they are uint8.*dtype"):
            list(DataLoader(tmp_path, Tokens(3, token_dtype="uint8"), batch_size=1))

    @pytest.mark.parametrize("materialize", [True, False])
    @pytest.mark.parametrize("dtype", [None, "uint16"])
    def test_that_are_null_are_a_bad_record(
        self,
        *,
        materialize: bool,
        dtype: str | None,
        tmp_path: Path,
    ) -> None:
        rows: list[Any] = [[1, 2], None, [3, 4, 5], []]
        if dtype is None:
            column = pa.array(rows, pa.list_(pa.int64()))
        else:
            column = pa.array(
                [None if row is None else np.array(row, dtype).tobytes() for row in rows]
            )
        pq.write_table(pa.table({"tokens": column}), tmp_path / "a.parquet")
        options: Any = {"batch_size": 4, "materialize": materialize}
        encode = Tokens(3, token_dtype=dtype)
        with pytest.raises(penstock.errors.SchemaMismatchError, match=r"record 1: .*is null"):
            list(DataLoader(tmp_path / "a.parquet", encode, **options))
        (batch,) = DataLoader(tmp_path / "a.parquet", encode, on_error="mask", **options)
        assert batch.valid.tolist() == [True, False, True, True]
        assert batch["labels"].tolist() == [[2, -100, -100], [-100] * 3, [4, 5, -100], [-100] * 3]

    def test_are_not_what_token_files_hold(self, concat: Folder) -> None:
        for encode in (Tokens(3, token_dtype="uint16"), Tokens(3, field="ids")):
            with pytest.raises(OptionError, match="tokens already"):
                DataLoader(opened(concat), encode, batch_size=1)
        with pytest.raises(OptionError, match="no uint16 token is more than 65535"):
            DataLoader(opened(concat), Tokens(3, boundaries=65_536), batch_size=1)


class TestTogether:
    def test_a_loader_pickles_in_the_middle_of_what_was_made_together(self, concat: Folder) -> None:
        for encode in (None, Tokens(3), Tokens(3, boundaries=True)):
            loader = DataLoader(opened(concat), encode, batch_size=1, shuffle=True)
            run = iter(loader)
            for _ in range(7):
                next(run)
            twin = pickle.loads(pickle.dumps(loader))
            twin.load_state_dict(loader.state_dict())
            assert ids_of(twin) == ids_of(run)

    def test_a_batch_belongs_to_its_user_alone(self, concat: Folder) -> None:
        expected = all_shown(DataLoader(opened(concat), Tokens(3), batch_size=2))
        for _ in range(2):
            loader = DataLoader(opened(concat), Tokens(3), batch_size=2)
            for batch, wanted in zip(loader, expected, strict=True):
                assert shown(batch) == wanted
                for part in (batch["input_ids"], batch["labels"], batch.ids):
                    part.fill_(-5)


class TestStepsTogether:
    @given(
        length=st.integers(0, 60),
        position=st.integers(0, 30),
        batch_size=st.integers(1, 7),
        world=st.integers(1, 3),
        most=st.integers(1, 9),
        drop_last=st.booleans(),
        masked=st.lists(st.integers(0, 59), max_size=3),
    )
    def test_are_the_same_as_one_by_one(  # noqa: PLR0913
        self,
        length: int,
        position: int,
        batch_size: int,
        world: int,
        most: int,
        *,
        drop_last: bool,
        masked: list[int],
    ) -> None:
        cursor = Cursor(fingerprint="", length=length, position=min(position, length))
        if cursor.position:
            cursor = cursor.with_skips([n for n in masked if n < length])
        for rank in range(world):
            steps = Steps(cursor, None, Sharing(batch_size, rank, world, drop_last))
            number = steps.first
            while number < len(steps):
                task = steps.task(number, most)
                assert 1 <= task.steps <= most
                parts = task.apart()
                for cut in range(1, task.steps):
                    halves = [task.part(0, cut), task.part(cut, task.steps)]
                    again = [part for half in halves for part in half.apart()]
                    assert [part.position for part in again] == list(task.positions)
                    assert [part.step for part in again] == [part.step for part in parts]
                    for part, other in zip(again, parts, strict=True):
                        assert part.where.ids.tolist() == other.where.ids.tolist()
                assert len(parts) == len(task.positions) == task.steps
                for part, after in zip(parts, task.positions, strict=True):
                    alone = steps.task(number)
                    assert part.step == alone.step == number
                    assert part.position == alone.position == after
                    assert part.where.ids.tolist() == alone.where.ids.tolist()
                    assert part.where.positions.tolist() == alone.where.positions.tolist()
                    for one, other in ((part.valid, alone.valid), (part.unread, alone.unread)):
                        assert (one is None) == (other is None)
                        assert one is None or one.tolist() == other.tolist()
                    number += 1
