"""A schema in a loader: exact after a resume, on other workers, from files, columns and views."""

from __future__ import annotations

import json
import pickle
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import penstock
from penstock.schema import (
    Array,
    Category,
    DateParts,
    Number,
    Schema,
    Set,
    Vector,
    check_batch,
    fit_vocabulary,
)
from tests.schema.both_paths import assert_equal

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [
    {
        "id": number,
        "who": f"u{number * 7 % 23}",
        "tags": [f"t{(number + place) % 9}" for place in range(number % 4)],
        "items": [{"sku": f"s{(number * place) % 31}", "n": place} for place in range(number % 5)],
    }
    for number in range(200)
]


def schema() -> Schema:
    return Schema(
        Number("id", p_mask=0.3),
        Category("who", max_vocab_size=16, p_unavailable=0.2, target=True),
        Set("tags", max_vocab_size=6, p_unavailable=0.2),
        Array(Category("sku", p_mask=0.2), Number("n", p_prune=0.3), name="items", max_length=3),
    )


def loader(source: Any, own: Schema | None = None, **options: Any) -> penstock.DataLoader:
    return penstock.DataLoader(
        source, own or schema(), batch_size=16, shuffle=True, seed=3, **options
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("schema") / "records.jsonl"
    with penstock.writer(str(file)) as sink:
        sink.write(RECORDS)
    return file


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        for address in other:
            assert_equal(one[address], other[address], address)


@pytest.fixture(scope="module")
def expected(path: Path) -> list[Any]:
    return list(loader(str(path), num_workers=0))


@pytest.mark.parametrize("options", [{"num_workers": 2}, {"materialize": True}, {}])
def test_batches_do_not_depend_on_where_they_are_made(
    options: dict[str, Any], path: Path, expected: list[Any]
) -> None:
    assert_same(list(loader(str(path), **options)), expected)


@pytest.mark.parametrize("cut", [0, 1, 6, 12])
def test_a_resume_repeats_numbers_of_labels_and_hidden_slots(
    cut: int, path: Path, expected: list[Any]
) -> None:
    first = loader(str(path))
    run = iter(first)
    seen = [next(run) for _ in range(cut)]
    state = json.loads(json.dumps(first.state_dict()))
    again = loader(str(path), num_workers=2)
    again.load_state_dict(state)
    assert_same([*seen, *again], expected)


def by_record(batches: list[Any]) -> dict[int, Any]:
    """Return what batches hold of each record that counts."""
    found = {}
    for batch in batches:
        parts = [
            tensor.tolist()
            for field in batch.values()
            for tensor in (field.state, field.content, field.trainable, *field.targets.values())
        ]
        for row, number in enumerate(batch.ids.tolist()):
            if batch.valid is None or batch.valid[row]:
                assert number not in found
                found[number] = [part[row] for part in parts]
    return found


def ranks(count: int, size: int, state: Any = None) -> list[tuple[Any, Schema]]:
    """Return the loader of each rank, and its schema, which knows all labels."""
    found = []
    for rank in range(count):
        own = schema()
        fit_vocabulary(own, RECORDS)
        loader = penstock.DataLoader(
            RECORDS,
            own,
            batch_size=size,
            shuffle=True,
            seed=3,
            rank=rank,
            world_size=count,
            num_workers=0,
        )
        if state is not None:
            loader.load_state_dict(state)
        found.append((loader, own))
    return found


def test_chance_falls_on_records_alike_on_any_rank_in_any_batch_and_after_a_resume() -> None:
    ((alone, _),) = ranks(1, 16)
    expected = by_record([*alone])
    assert len(expected) == len(RECORDS)
    for count, size in ((1, 7), (1, 1), (2, 16), (3, 5)):
        assert by_record([b for one, _ in ranks(count, size) for b in one]) == expected
    before = ranks(2, 8)
    runs = [iter(one) for one, _ in before]
    seen = by_record([next(run) for _ in range(4) for run in runs])
    state = before[0][0].state_dict()
    state["encoder"] = before[0][1].merged([own.state_dict() for _, own in before])
    for count, size in ((1, 16), (3, 5)):
        after = ranks(count, size, json.loads(json.dumps(state)))
        assert seen | by_record([b for one, _ in after for b in one]) == expected
        # The first pass is counted once, and so is what ranks saw before they stopped.
        merged = after[0][1].merged([own.state_dict() for _, own in after])
        whole = schema()
        whole.load_state_dict(merged)
        assert whole.statistics["record/id"].count == 2 * len(RECORDS)  # type: ignore[index]


def test_every_batch_keeps_its_promises(expected: list[Any]) -> None:
    for batch in expected:
        check_batch(schema(), batch, "train")


def test_a_schema_pickles_with_what_it_has_learnt(path: Path) -> None:
    own = schema()
    list(loader(str(path), own))
    assert pickle.loads(pickle.dumps(own)).state_dict() == own.state_dict()
    assert own.state_dict()["vocabularies"]["record/tags"] != []


def test_splits_share_vocabularies_and_only_train_learns(path: Path) -> None:
    own = schema()
    list(loader(str(path), own))
    learnt = own.state_dict()
    check = own.for_split("validate")
    for batch in loader([{"who": "stranger"}, {"who": "u0"}], check):
        check_batch(check, batch, "validate")
        targets = batch["record/who"].targets["content"]
        assert targets.max().item() == 16
    assert own.state_dict() == learnt


@pytest.mark.filterwarnings("ignore:the vocabulary of")
def test_predictions_hide_nothing_and_need_no_targets() -> None:
    own = schema().for_split("predict")
    (batch,) = loader([{"id": 3}], own)
    assert batch["record/who"].state.tolist() == [[3]]
    assert not batch["record/who"].trainable.any()
    assert batch["record/id"].state.tolist() == [[0]]


def test_a_state_brings_its_labels_before_predictions_look_for_them() -> None:
    own = schema()
    fit_vocabulary(own, RECORDS)
    options: dict[str, Any] = {"batch_size": 50, "num_workers": 0}
    before = penstock.DataLoader(RECORDS, own.for_split("predict"), **options)
    next(iter(before))
    after = penstock.DataLoader(RECORDS, schema().for_split("predict"), **options)
    after.load_state_dict(before.state_dict())
    assert len([*after]) == 3  # And nothing warns of an empty vocabulary.


def pieces(unit: int, start: int) -> Any:
    """Return a unit of a stream: records, or a record batch."""
    records = RECORDS[unit * 20 + start : unit * 20 + 20]
    return iter(records) if unit % 2 else iter([pa.RecordBatch.from_pylist(records)])


@pytest.mark.filterwarnings("ignore:the vocabulary of")
@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 2}, {"shuffle": True}])
def test_predictions_from_a_stream_bring_their_records(options: dict[str, Any]) -> None:
    stream = penstock.stream(range(10), pieces, buffer=32)
    own = schema().for_split("predict")
    seen = []
    for batch in penstock.DataLoader(stream, own, batch_size=16, **options):
        check_batch(own, batch, "predict")
        assert len(batch["metadata"]) == len(batch)
        found = [record["id"] for (record,) in batch["metadata"]]
        assert found == batch["record/id"].content[:, 0].tolist()
        assert [RECORDS[number] for number in found] == [record for (record,) in batch["metadata"]]
        assert pickle.loads(pickle.dumps(batch["metadata"])) == batch["metadata"]
        seen += found
    assert sorted(seen) == [*range(200)]


@pytest.mark.filterwarnings("ignore:the vocabulary of")
def test_records_of_a_stream_are_any_python_values() -> None:
    when = datetime(2024, 1, 1)  # noqa: DTZ001 (as records have them)
    records = [{"id": 1, "who": when}, {"id": {}}, {"id": "2", "metadata": "m", "who": {3}}]
    stream = penstock.stream([0], lambda _, start: iter(records[start:]))
    own = Schema(Number("id"), Category("metadata")).for_split("predict")
    (batch,) = penstock.DataLoader(stream, own, batch_size=3, on_error="mask")
    assert batch["metadata"] == [[records[0]], None, [records[2]]]
    targets = Schema(Category("who", target=True)).for_split("predict")
    (batch,) = penstock.DataLoader(stream, targets, batch_size=3)
    assert batch["metadata"] == [[record] for record in records]
    assert list(batch) == ["record/who", "metadata"]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("path", ["auto", "rows"])
def test_records_may_hold_sets_arrays_and_tensors(path: str, *, streams: bool) -> None:
    records = [
        {"s": {"b", "a"}, "v": torch.tensor([1.0, 2]), "x": torch.tensor(3.5), "other": object()},
        {"s": frozenset("c"), "v": np.array([3, 4]), "x": np.float32(2), "other": b"\xff"},
    ]
    own = Schema(
        Set("s", max_vocab_size=3, p_unavailable=0), Vector("v", n_dim=2), Number("x", target=True)
    )
    own.path = path
    stream = penstock.stream([0], lambda _, start: iter(records[start:]))
    (batch,) = penstock.DataLoader(stream if streams else records, own, batch_size=2)
    assert own.state_dict()["vocabularies"]["record/s"] == ["a", "b", "c"]
    assert batch["record/v"].content.tolist() == [[[1, 2]], [[3, 4]]]
    assert batch["record/x"].targets["content"].tolist() == [[3.5], [2]]


class Watched(list[Any]):
    """Records that count how often they are read."""

    reads = 0

    def __getitem__(self, number: Any) -> Any:
        self.reads += 1
        return super().__getitem__(number)


def test_the_records_of_a_batch_are_read_when_they_are_looked_at() -> None:
    records = Watched(RECORDS[:4])
    own = Schema(Number("id")).for_split("predict")
    (batch,) = penstock.DataLoader(penstock.open(records), own, batch_size=4, num_workers=0)
    before = records.reads
    assert len(batch["metadata"]) == 4
    assert records.reads == before
    assert batch["metadata"] == [[record] for record in RECORDS[:4]]


def test_a_batch_moves_and_keeps_its_parts(expected: list[Any]) -> None:
    moved = expected[0].to("cpu")
    assert torch.equal(moved["record/id"].state, expected[0]["record/id"].state)
    assert moved["record/id"].targets.keys() == {"state", "content"}


def test_a_bad_value_names_record_and_leaf_and_can_be_masked() -> None:
    records = [{"id": 1}, {"id": {"no": "number"}}, {"id": 3}]
    with pytest.raises(penstock.errors.SchemaMismatchError, match=r"record 1: record/id"):
        list(penstock.DataLoader(records, Schema(Number("id")), batch_size=3))
    (batch,) = penstock.DataLoader(records, Schema(Number("id")), batch_size=3, on_error="mask")
    assert batch.valid.tolist() == [True, False, True]
    assert batch["record/id"].content[[0, 2]].tolist() == [[1], [3]]


NO_VALUES: list[Any] = [{"x": []}, {"x": "no"}, {"x": 3}, {"x": {}}]


@pytest.mark.parametrize("as_file", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_a_batch_of_bad_records_alone_has_no_values(
    size: int, *, as_file: bool, tmp_path: Path
) -> None:
    leaves = [
        Number("x"),
        Vector("v", n_dim=2, query="[*].x"),
        DateParts("d", dateparts=["hour_of_day"], query="[*].x"),
        Number("first", query="[*].h[?a].b | [0]"),
    ]
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(one) + "\n" for one in NO_VALUES[:2]))
    source = str(tmp_path / "bad.jsonl") if as_file else NO_VALUES[:2]
    for split in ("train", "predict"):
        for leaf in leaves[:3]:
            own = Schema(leaf, leaves[3]).for_split(split)
            batches = [*penstock.DataLoader(source, own, batch_size=size, on_error="mask")]
            assert [batch.valid.tolist() for batch in batches] == [[False] * size] * (2 // size)
            for batch in batches:
                assert (batch[f"record/{leaf.name}"].state == 3).all()
    (first, second) = penstock.DataLoader(
        NO_VALUES, Schema(Number("x")), batch_size=2, on_error="mask"
    )
    assert not first.valid.any()
    assert second["record/x"].content[0].tolist() == [3]
