"""What a schema hides in each split, by which chance, and what it keeps as targets."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import penstock
from penstock.errors import SchemaMismatchError
from penstock.schema import (
    Array,
    Category,
    DateParts,
    Entity,
    Number,
    Schema,
    Set,
    Text,
    Vector,
    check_batch,
)
from tests.schema.both_paths import both

RECORDS: list[dict[str, Any]] = [
    {
        "n": number,
        "c": f"c{number % 5}",
        "s": [f"s{number % 3}"],
        "d": "2024-01-01T07:00",
        "v": [1, 2],
        "t": "ab",
        "ev": [{"m": number, "e": number}] * (number % 3),
    }
    for number in range(400)
]
PARTS = {"dateparts": ["hour_of_day"]}


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def every_kind(**options: Any) -> list[Any]:
    """Return a leaf of each kind."""
    return [
        Number("n", **options),
        Category("c", max_vocab_size=8, p_unavailable=0, **options),
        Set("s", max_vocab_size=3, p_unavailable=0, **options),
        DateParts("d", **PARTS, **options),
        Vector("v", n_dim=2, **options),
        Text("t", model_name="m", max_length=3, tokenizer=letters, **options),
        Array(Number("m", **options), Entity("e", **options), name="ev", max_length=2),
    ]


def parts(content: Any) -> list[torch.Tensor]:
    return [*content.values()] if isinstance(content, dict) else [content]


def test_fields_of_each_kind_have_their_types_and_shapes() -> None:
    batch = both(RECORDS[:5], *every_kind())
    expected = {
        "record/n": (torch.float32, (5, 1)),
        "record/c": (torch.int64, (5, 1)),
        "record/s": (torch.float32, (5, 1, 4)),
        "record/d": (torch.int64, (5, 1)),
        "record/v": (torch.float32, (5, 1, 2)),
        "record/t": (torch.int64, (5, 1, 3)),
        "record/ev/m": (torch.float32, (5, 1, 2)),
        "record/ev/e": (torch.int64, (5, 1, 2)),
    }
    assert list(batch) == list(expected)
    for address, (dtype, shape) in expected.items():
        field = batch[address]
        assert field.state.dtype == torch.int64
        assert field.trainable.dtype == torch.bool
        assert not field.trainable.any()
        assert field.targets == {}
        for part in parts(field.content):
            assert (part.dtype, tuple(part.shape)) == (dtype, shape)
    check_batch(Schema(*every_kind()), batch, "train")


@pytest.mark.parametrize("split", ["train", "validate", "test"])
@pytest.mark.parametrize("options", [{"p_mask": 0.3}, {"p_prune": 0.3}, {"target": True}])
def test_hidden_slots_are_empty_and_their_values_are_targets(split: str, options: Any) -> None:
    plain = both(RECORDS, *every_kind(), split=split)
    own = Schema(*every_kind(**options))
    batch = both(RECORDS, schema=own, split=split)
    check_batch(own, batch, split)
    assert "metadata" not in batch
    for address, field in batch.items():
        hidden = field.state == 3
        assert torch.equal(hidden, field.trainable)
        assert torch.equal(field.targets["state"], plain[address].state)
        empty = 3 if address == "record/d" else 0
        before = parts(field.targets["content"])
        for part, old, known in zip(
            parts(field.content), before, parts(plain[address].content), strict=True
        ):
            assert torch.equal(old, known)
            assert (part[hidden] == empty).all()
            assert torch.equal(part[~hidden], old[~hidden])
        assert torch.equal(field.state[~hidden], plain[address].state[~hidden])


@pytest.mark.filterwarnings("ignore:the vocabulary of")
def test_predictions_hide_nothing_whatever_the_options_say() -> None:
    own = Schema(*every_kind(p_mask=0.9, p_prune=0.9))
    batch = both(RECORDS[:5], schema=own, split="predict")
    for address, field in both(RECORDS[:5], *every_kind(), split="predict").items():
        if address != "metadata":
            assert torch.equal(batch[address].state, field.state)
            assert batch[address].targets == {}


def test_targets_of_predictions_are_empty_fields_and_are_not_read() -> None:
    own = Schema(Number("x"), *every_kind(target=True))
    bad = [{"x": 1, "n": "no number", "ev": 7}, {}]
    batch = both(bad, schema=own, split="predict")
    check_batch(own, batch, "predict")
    for address in own.hyperparameters.target:
        field = batch[address]
        assert (field.state == 3).all()
        assert not field.trainable.any()
        assert field.targets == {}
        empty = 3 if address == "record/d" else 0
        assert all((part == empty).all() for part in parts(field.content))


def test_masks_fall_on_slots_and_prunes_on_records() -> None:
    fields = Array(Number("m", p_mask=0.25), Number("e", p_prune=0.25), name="ev", max_length=8)
    batch = both(RECORDS, fields)
    masked = batch["record/ev/m"].trainable[:, 0]
    assert 0.2 < masked.float().mean() < 0.3
    assert 0 < masked.any(1).sum() < 400
    assert (masked.any(1) & ~masked.all(1)).any()
    pruned = batch["record/ev/e"].trainable[:, 0]
    assert torch.equal(pruned.any(1), pruned.all(1))
    assert 0.17 < pruned.float().mean() < 0.33


def test_leaves_and_splits_draw_on_their_own_and_epochs_anew() -> None:
    fields = [Number("n", p_prune=0.5), Number("c", query="[*].n", p_prune=0.5)]
    train, check = (both(RECORDS, *fields, split=split) for split in ("train", "validate"))
    draws = [one[at].trainable for one in (train, check) for at in ("record/n", "record/c")]
    loader = penstock.DataLoader(RECORDS, Schema(*fields), batch_size=400, num_workers=0)
    draws += [batch["record/n"].trainable for _ in range(2) for batch in loader][1:]
    for number, one in enumerate(draws):
        assert not any(torch.equal(one, other) for other in draws[:number])


def test_targets_are_there_also_where_nothing_was_hidden() -> None:
    batch = both([{"n": 1}], Number("n", p_mask=1e-9))
    assert not batch["record/n"].trainable.any()
    assert batch["record/n"].targets["state"].tolist() == [[0]]


def test_masks_and_prunes_together_keep_the_values_from_before_both() -> None:
    batch = both(RECORDS, Number("n", p_mask=0.5, p_prune=0.5))
    assert batch["record/n"].targets["state"].unique().tolist() == [0]
    assert 0.65 < batch["record/n"].trainable.float().mean() < 0.85


def test_labels_that_are_taken_away_are_unknown_in_targets_too() -> None:
    fields = [
        Category("c", max_vocab_size=8, p_unavailable=1, target=True),
        Set("s", max_vocab_size=3, p_unavailable=1, p_mask=0.5),
    ]
    batch = both([*RECORDS, {"s": []}, {}], *fields)
    labels = batch["record/c"].targets["content"][:, 0]
    assert labels[:400].unique().tolist() == [8]
    assert labels[400:].tolist() == [0, 0]
    sets = batch["record/s"].targets["content"][:, 0]
    assert (sets[:400] == torch.tensor([0.0, 0, 0, 1])).all()
    assert not sets[400:].any()
    some = both(RECORDS, Set("s", max_vocab_size=3, p_unavailable=0.3), split="train")
    assert 0.2 < some["record/s"].content[:, 0, 3].mean() < 0.4
    other = both(RECORDS, Set("s", max_vocab_size=3, p_unavailable=1), split="validate")
    assert other["record/s"].content[:, 0, 3].all()  # A vocabulary that knows nothing.


def test_each_label_of_a_set_is_taken_away_by_itself_and_whole() -> None:
    records = [{"s": ["a", "b", "a", None, "c"]}, {"s": None}, {"s": ["b"]}] * 200
    leaf = Set("s", max_vocab_size=3, p_unavailable=0.4)
    kept = both(records, leaf)["record/s"].content[:, 0]
    three, none, one = kept[::3], kept[1::3], kept[2::3]
    assert not none.any()
    assert torch.equal(one[:, 3], 1 - one[:, 1])
    assert torch.equal(three[:, 3].bool(), (three[:, :3] == 0).any(1))
    shares = three[:, :3].mean(0)
    assert ((shares > 0.5) & (shares < 0.7)).all()
    # All eight ways to keep some of three labels come.
    assert len(three[:, :3].unique(dim=0)) == 8


def damaged(part: str, change: Any) -> Any:
    def damage(batch: Any) -> None:
        value = getattr(batch["record/n"], part)
        setattr(batch["record/n"], part, change(value))

    return damage


def hidden_without_targets(batch: Any) -> None:
    batch["record/n"].targets = {}


def target_hidden(batch: Any) -> None:
    batch["record/n"].targets["state"][:] = 3


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda batch: batch._fields.pop("record/n"), "not exactly the active leaves"),
        (lambda batch: batch._fields.update(metadata=[]), "not exactly"),
        (damaged("state", lambda state: state[:, 0]), "state is"),
        (damaged("state", torch.Tensor.float), "not integers"),
        (damaged("state", lambda state: state + 5), "codes beyond"),
        (damaged("trainable", torch.Tensor.int), "not bool"),
        (damaged("content", lambda content: content[:-1]), "content does not begin"),
        (damaged("trainable", torch.Tensor.logical_not), "a slot to predict is not hidden"),
        (damaged("trainable", torch.zeros_like), "a hidden slot is not to be predicted"),
        (hidden_without_targets, "no targets"),
        (target_hidden, "a target is itself hidden"),
    ],
)
def test_a_batch_that_breaks_a_promise_is_named(damage: Any, says: str) -> None:
    own = Schema(Number("n", p_mask=0.5), Number("c", query="[*].n", target=True))
    batch = own.encode(RECORDS, "train")
    check_batch(own, batch, "train")
    damage(batch)
    with pytest.raises(SchemaMismatchError, match=says):
        check_batch(own, batch, "train")


def test_a_target_that_is_not_hidden_is_named() -> None:
    own = Schema(Number("n", target=True))
    batch = Schema(Number("n")).encode(RECORDS, "train")
    with pytest.raises(SchemaMismatchError, match="a target is not to be predicted"):
        check_batch(own, batch, "train")
    with pytest.raises(SchemaMismatchError, match="metadata"):
        check_batch(own, batch, "predict")
