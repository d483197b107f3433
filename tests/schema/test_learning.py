"""What a schema has learnt, through edits, resumes and copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock
from penstock.errors import OptionError, SchemaMismatchError
from penstock.schema import (
    Array,
    Category,
    DateParts,
    Entity,
    Number,
    Schema,
    Set,
    fit_vocabulary,
    where,
)
from tests.schema.both_paths import assert_equal

if TYPE_CHECKING:
    from pathlib import Path

WORDS = [{"k": f"w{number % 11}", "s": [f"t{number % 7}"], "x": number} for number in range(40)]


def schema() -> Schema:
    return Schema(
        Category("k", max_vocab_size=20, p_unavailable=0),
        Set("s", max_vocab_size=8, p_unavailable=0),
        Number("x"),
    )


def loader(own: Schema) -> penstock.DataLoader:
    return penstock.DataLoader(WORDS, own, batch_size=4)


def test_a_frozen_vocabulary_stays_frozen_after_a_resume() -> None:
    own = schema()
    fit_vocabulary(own, WORDS, min_count=4)
    kept = own.state_dict()["vocabularies"]["record/k"]
    assert len(kept) < 11
    first = loader(own)
    next(iter(first))
    again = schema()
    second = loader(again)
    second.load_state_dict(first.state_dict())
    list(second)
    assert again.state_dict()["vocabularies"]["record/k"] == kept


def test_fitting_names_what_it_takes() -> None:
    with pytest.raises(TypeError, match=r"or a schema and a source, not object\..*model\.schema"):
        fit_vocabulary(object(), WORDS)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="the source is missing"):
        fit_vocabulary(schema())


def test_fitting_names_the_place_of_a_value_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n{"x": "one"}\n')
    with pytest.raises(SchemaMismatchError, match=r"record/x: 'one'.*a\.jsonl, line 2") as raised:
        fit_vocabulary(Schema(Number("x")), path)
    assert "where" in raised.value.remedy


def test_a_leaf_that_is_not_active_learns_when_it_is() -> None:
    own = schema()
    own.update(where("name") == "k", active=False)
    assert fit_vocabulary(own, WORDS) == {"record/s": 7}
    own.update(where("name") == "k", active=True)
    own.encode(WORDS[:3], "train")
    assert own.state_dict()["vocabularies"]["record/k"] == ["w0", "w1", "w2"]


def test_edits_while_a_loop_runs_change_the_next_loader_alone() -> None:
    expected = list(loader(schema()))
    own = schema()
    run = iter(loader(own))
    found = [next(run) for _ in range(2)]
    own.delete(where("name") == "x")
    own.update(where("name") == "s", max_vocab_size=3)
    own.update(where("name") == "k", p_mask=0.5)
    own.extend(Number("y"))
    found += run
    for one, other in zip(found, expected, strict=True):
        assert list(one) == list(other)
        for address in other:
            assert_equal(one[address], other[address], address)
    (batch, *_) = loader(own)
    assert list(batch) == ["record/k", "record/s", "record/y"]
    assert batch["record/s"].content.shape == (4, 1, 4)
    # Leaves that stayed have one vocabulary for both.
    assert len(own.state_dict()["vocabularies"]["record/k"]) == 11


def test_a_smaller_vocabulary_keeps_its_first_labels() -> None:
    own = schema()
    own.encode(WORDS[:5], "train")
    with own.override(where("name") == "s", max_vocab_size=2):
        batch = own.encode([{"s": ["t0", "t4"]}], "validate")
        assert batch["record/s"].content.tolist() == [[[1, 0, 1]]]
    assert len(own.state_dict()["vocabularies"]["record/s"]) == 5


def test_an_edit_after_a_batch_is_seen_by_the_next_one() -> None:
    own = schema()
    own.encode(WORDS[:1])
    own.extend(Array(Number("n"), name="items", max_length=2))
    batch = own.encode([{"items": [{"n": 5}]}])
    assert batch["record/items/n"].content.tolist() == [[[5, 0]]]
    assert batch["record/items/n"].state.tolist() == [[[0, 2]]]


def test_a_label_that_found_no_number_in_a_lot_may_have_one_in_the_next_batch() -> None:
    own = Schema(Category("k", max_vocab_size=2, p_unavailable=0))
    table = pa.table({"k": ["a", "b", "c", "a"] * 8})
    batches = iter(penstock.DataLoader(table, own, batch_size=4, num_workers=0))
    found: list[Any] = [next(batches) for _ in range(3)]
    assert found[2]["record/k"].content.tolist() == [[0], [1], [2], [0]]
    own.load_state_dict({**own.state_dict(), "vocabularies": {"record/k": ["c", "a"]}})
    assert next(batches)["record/k"].content.tolist() == [[1], [2], [0], [1]]


@pytest.mark.parametrize("count", [1, 300])
def test_many_different_dates_take_a_moment(count: int) -> None:
    leaf = DateParts("d", dateparts=["minute_of_hour"], pattern="%Y-%m-%d %H:%M")
    records = [{"d": f"2024-01-01 {n // 60 % 24:02}:{n % 60:02}"} for n in range(count)]
    found = Schema(leaf).encode(records)["record/d"].content["minute_of_hour"]
    assert found[:, 0].tolist() == [n % 60 + 5 for n in range(count)]
    with pytest.raises(ValueError, match=f"record {count}: record/d"):
        Schema(leaf).encode([*records, {"d": "soon"}])


def test_a_dictionary_that_holds_a_label_twice_gives_it_one_number() -> None:
    twice = pa.DictionaryArray.from_arrays([0, 1, 2, None], ["a", "a", "b"])
    table = pa.table({"t": pa.ListArray.from_arrays([0, 4], twice)})
    own = Schema(
        Array(
            Entity("e", query="[*].t"),
            Category("c", query="[*].t", p_unavailable=0),
            name="x",
            max_length=4,
        )
    )
    (batch,) = penstock.DataLoader(table, own, batch_size=1)
    for field in batch.values():
        assert field.content.tolist() == [[[0, 0, 1, 0]]]


@pytest.mark.parametrize("index", [pa.int8(), pa.int32()])
def test_columns_with_dictionaries_teach_the_labels_of_their_rows(index: pa.DataType) -> None:
    plain = pa.array([f"w{number * 7 % 50}" for number in range(100)] + [None])
    coded = plain.dictionary_encode().cast(pa.dictionary(index, pa.string()))
    lists = pa.ListArray.from_arrays([*range(0, 101, 4), 101], coded)
    found = []
    for table in (
        {"k": plain[:26], "s": lists.cast(pa.list_(pa.string()))},
        {"k": coded[:26], "s": lists},
    ):
        own = Schema(Category("k", p_unavailable=0), Set("s", max_vocab_size=60, p_unavailable=0))
        batches = penstock.DataLoader(pa.table(table), own, batch_size=4, num_workers=0)
        contents = [[batch[at].content.tolist() for at in batch] for batch in batches]
        found.append((contents, own.state_dict()))
    assert found[0] == found[1]


def test_a_full_vocabulary_names_a_label_that_it_has_no_room_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = Schema(Category("k", max_vocab_size=9, p_unavailable=0, query="[*].full"))
    records = [{"full": f"w{number % 11}"} for number in range(40)]
    list(penstock.DataLoader(records[:9], own, batch_size=3))
    assert not caplog.records  # It is full, and nothing is left out.
    list(penstock.DataLoader(records, own, batch_size=4))
    (line,) = [one.message for one in caplog.records]
    assert line.startswith("record/k: the vocabulary is full, with 9 labels; 'w9' and others are")


def test_labels_that_a_rank_proposes_are_not_left_out() -> None:
    words = Category("k", max_vocab_size=3).vocabulary()
    assert words is not None
    words.reserve(["a"], learn=True)
    words.configure_distributed(1, 2)
    words.reserve(["b", "c"], learn=True)
    words.reserve(["b", "a"], learn=True)
    assert words.left_out is None
    words.reserve(["c", "d"], learn=True)
    assert words.left_out == "d"
    words.load_snapshot(["a"])
    assert words.left_out is None
