"""The tree of a schema: options, addresses, edits, documents."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from penstock.errors import CorruptFileError, OptionError
from penstock.schema import (
    Array,
    BadSlotError,
    Category,
    DateParts,
    Entity,
    Leaf,
    Number,
    RunningStats,
    Schema,
    SchemaModel,
    Set,
    SlotValues,
    Text,
    Tokens,
    ValueState,
    Vector,
    check_batch,
    fit_vocabulary,
    load_schema,
    predicate,
    register_leaf,
    where,
)

if TYPE_CHECKING:
    from pathlib import Path


def model() -> SchemaModel:
    return SchemaModel(
        Number("total", p_mask=0.1),
        Category("label", max_vocab_size=4, target=True, topk=[3, 2]),
        Array(
            Number("price"),
            Set("tags"),
            Entity("id"),
            Array(Vector("v", n_dim=2), name="deep", max_length=2, overflow="tail"),
            name="items",
            max_length=3,
        ),
        DateParts("at", dateparts=["day_of_week"]),
        Text("note", model_name="m", max_length=4),
        batch_size=8,
    )


def test_addresses_shapes_and_policies_follow_the_tree() -> None:
    tree = model().hyperparameters
    assert list(tree.requests) == [
        "record/total",
        "record/label",
        "record/items/price",
        "record/items/tags",
        "record/items/id",
        "record/items/deep/v",
        "record/at",
        "record/note",
    ]
    assert tree.shapes[next(at for at in tree.requests if at.name == "v")] == (1, 3, 2)
    assert tree.target == ["record/label"]
    assert [*map(str, tree.overflows(list(tree.requests)[5]))] == ["error", "error", "head", "tail"]
    assert list(tree.arrays) == ["record", "record/items", "record/items/deep"]
    assert Tokens is ValueState


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Number("a b"), "letters, digits"),
        (lambda: Number("a", p_mask=1.0), "p_mask"),
        (lambda: Number("a", p_prune=1.5), "p_prune"),
        (lambda: Number("a", target=True, p_prune=0.5), "contradict"),
        (lambda: Number("a", target=False, p_prune=0.5), "p_prune=0.5 contradict"),
        (lambda: Number("a", target=1), "True or False"),
        (lambda: Number("a", weight=0), "above 0"),
        (lambda: Number("a", query=" "), "query"),
        (lambda: Schema(Number("a", query="[*].x[")), "JMESPath"),
        (lambda: Array(Number("a"), name="x", fields=[Number("b")]), "not both"),
        (lambda: Array(Number("a"), Number("a"), name="x"), "two nodes"),
        (lambda: Array(Number("a"), name="x", max_length=0), "max_length"),
        (lambda: Array(Number("a"), name="x", overflow="middle"), "'head', 'tail', 'error'"),
        (lambda: Array(Number("a"), name="x", n_heads=3), "even"),
        (lambda: Category("a", max_vocab_size=2, topk=2), "less than"),
        (lambda: Category("a", topk=1), "topk"),
        (lambda: Category("a", n_bands=3), "n_bands"),
        (lambda: Vector("a", n_dim=0), "n_dim"),
        (lambda: Number("a", kind="price"), "kind= is the name"),
        (lambda: SchemaModel(Number("a"), batch_size=0), "batch_size"),
    ],
)
def test_what_cannot_be_raises_at_once(make: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        make()


def test_arrays_refuse_options_they_have_not() -> None:
    with pytest.raises(TypeError, match="p_mask"):
        Array(Number("a"), name="x", p_mask=0.1)


def test_other_options_of_leaves_are_metadata_and_misspelt_ones_are_named() -> None:
    assert Number("a", unit="EUR").metadata == {"unit": "EUR"}
    with pytest.warns(UserWarning, match="p_mask"):
        assert Number("a", p_maks=0.1).metadata == {"p_maks": 0.1}


def test_nodes_do_not_change() -> None:
    with pytest.raises(AttributeError, match="update"):
        Number("a").p_mask = 0.5


def test_a_model_has_what_data_modules_ask_of_it() -> None:
    own = model()
    states = own.interprocess_encoding_context
    assert set(states) == {"record/label", "record/items/tags"}
    for words in states.values():
        words.configure_distributed(0, 1)
        words.share()
        words.reserve(["a"], learn=False)
        assert words.encode("a") == words.unavailable_index
        words.reserve(["a"], learn=True)
        words.freeze()
        assert (words.encode("a"), words.encode(None), words.snapshot()) == (0, None, ["a"])
    predictions = {"record/label": {"content": [1]}}
    assert own.write(predictions) == predictions  # type: ignore[arg-type]
    tree = own.hyperparameters
    assert tree.active_requests == tree.requests
    own.update(where("name") == "total", active=False)
    assert set(own.hyperparameters.requests) - set(own.hyperparameters.active_requests) == {
        "record/total"
    }


def test_conditions_select_nodes() -> None:
    own = model()
    names = [node.name for node in own.select((where("kind") == "number") & ~where("p_mask"))]
    assert names == ["price"]
    assert [node.name for node in own.select(where("max_length").is_in([2, 3]))] == [
        "items",
        "deep",
    ]
    assert [node.name for node in own.select(where("address").matches("deep/"))] == ["v"]
    assert len(own.select()) == len(own.select(include_root=False)) + 1
    assert (
        own.select(predicate("long", lambda node: len(node.name) > 4), where("target"))[0].name
        == "label"
    )
    assert [one.name for one in own.select(where("dateparts").contains("day_of_week"))] == ["at"]
    assert len(own.select(where("query").is_null())) == len(own.hyperparameters.requests)
    with pytest.raises(TypeError, match="&"):
        _ = bool(where("name"))
    with pytest.raises(TypeError, match="condition"):
        own.select("total")  # type: ignore[arg-type]


def test_edits_make_other_trees_or_leave_all_as_it_was() -> None:
    own = model()
    before = own.hyperparameters
    own.update(where("name") == "total", target=True)
    assert own.hyperparameters.target == ["record/total", "record/label"]
    own.update(where("name") == "total", target=False, p_mask=0.2)
    assert own.hyperparameters.nodes["record/total"].p_mask == 0.2  # type: ignore[attr-defined, index]
    assert before == model().hyperparameters
    with pytest.raises(AttributeError, match="max_vocab_size"):
        own.update(where("kind") == "number", max_vocab_size=3)
    own.update(max_vocab_size=5, strict=False)
    with pytest.raises(OptionError, match="give the options"):
        own.update(where("kind") == "number")
    own.extend(where("name") == "items", Number("quantity"))
    own.extend(Number("extra"))
    kept = own.hyperparameters
    for wrong in (
        lambda: own.extend(where("name") == "items", Number("price")),
        lambda: own.extend(where("max_length").exists(), Number("x")),
        lambda: own.extend(where("name") == "items"),
        own.delete,
        lambda: own.delete(where("address").matches("record/")),
        lambda: own.delete(where("name") == "v"),
        lambda: own.update(where("name") == "total", p_mask=2),
        lambda: own.reset(where("name") == "nothing"),
    ):
        with pytest.raises(OptionError):
            wrong()
        assert own.hyperparameters is kept
    with own.override(where("name") == "label", target=False):
        assert own.hyperparameters.target == []
    assert own.hyperparameters is kept
    own.delete(where("name") == "deep")
    assert "record/items/deep/v" not in own.hyperparameters.requests


def test_a_saved_model_comes_back(tmp_path: Path) -> None:
    own = SchemaModel(Category("k", p_unavailable=0), Number("x"), batch_size=4, name="row")
    labels: list[Any] = [True, 1, "1", 2.5, 2**70, "\ud800", "é"]
    with pytest.warns(UserWarning, match="row/k: the vocabulary holds '1'"):
        own.encode([{"k": one, "x": 2} for one in labels], "train")
    assert own.state_dict()["vocabularies"]["row/k"] == labels
    own.save(tmp_path / "model.json")
    again = SchemaModel.load(tmp_path / "model.json")
    assert again.hyperparameters == own.hyperparameters
    assert again.state_dict() == own.state_dict()
    assert again.batch_size == 4
    assert load_schema(tmp_path / "model.json").state_dict() == own.state_dict()
    assert again.statistics["row/x"].mean == 2  # type: ignore[index]
    for text in ('{"version": 1}', "[" * 100_000, '{"a": ', "7"):
        (tmp_path / "model.json").write_text(text)
        with pytest.raises(CorruptFileError, match="no saved schema"):
            SchemaModel.load(tmp_path / "model.json")
    (tmp_path / "model.json").write_text('{"version": 9, "root": {}}')
    with pytest.raises(OptionError, match="version 9"):
        SchemaModel.load(tmp_path / "model.json")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([[9], [9]], ("state", "counts", "record/k", "state", "own")),
        ("x", ("state", "counts", "record/k", "state", "own")),
        ([1, "x", 2], ("state", "statistics", "record/x", "own")),
        ("x", ("state", "batches")),
        ([[1]], ("root", "fields")),
        ({}, ("root",)),
    ],
)
def test_a_damaged_file_of_a_model_is_named(value: Any, place: Any, tmp_path: Path) -> None:
    own = SchemaModel(Category("k"), Number("x"), batch_size=4)
    own.save(tmp_path / "model.json")
    document = part = json.loads((tmp_path / "model.json").read_bytes())
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(CorruptFileError, match=r"model\.json is no saved schema"):
        SchemaModel.load(tmp_path / "model.json")


@pytest.mark.parametrize(
    "node",
    [
        Number("a", unit=object()),
        Array(Number("a"), name="x", attention=object()),
    ],
)
def test_options_that_json_cannot_hold_are_named_when_they_are_saved(
    node: Any, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=f"{type(node).__name__}.* cannot be saved"):
        SchemaModel(node, batch_size=1).save(tmp_path / "model.json")


@register_leaf
class Shouted(Leaf):
    """A leaf of a user's own."""

    kind = "shouted"
    guess = pa.string()

    def from_values(self, values: Any) -> SlotValues:
        for slot, value in enumerate(values):
            if isinstance(value, list):
                raise BadSlotError(slot, "a list cannot be shouted")
        lengths = [0 if value is None else len(str(value)) for value in values]
        valued = np.array([value is not None for value in values], bool)
        return SlotValues(valued, {"": np.array(lengths, np.int64)})

    def empty(self, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"": np.zeros(shape, np.int64)}


def test_a_leaf_of_ones_own_is_encoded_checked_and_saved(tmp_path: Path) -> None:
    own = SchemaModel(Shouted("s", p_mask=0.5), batch_size=2)
    batch = own.encode([{"s": "abc"}, {}], "validate")
    check_batch(own, batch, "validate")
    own.save(tmp_path / "own.json")
    assert SchemaModel.load(tmp_path / "own.json").hyperparameters == own.hyperparameters
    assert pickle.loads(pickle.dumps(own)).hyperparameters == own.hyperparameters
    with pytest.raises(ValueError, match="record/s: a list cannot"):
        own.encode([{"s": [1]}], "train")


def test_one_pass_gives_vocabularies_and_statistics() -> None:
    records = [{"k": word, "x": number} for number, word in enumerate(["b", "a", "b", "c", None])]
    own = Schema(Category("k", p_unavailable=0), Number("x"))
    assert fit_vocabulary(own, records, min_count=1) == {"record/k": 3}
    assert own.state_dict()["vocabularies"]["record/k"] == ["b", "a", "c"]
    assert own.statistics["record/x"].count == 5  # type: ignore[index]
    fit_vocabulary(own, records, min_count=2)
    assert own.encode([{"k": "a"}], "train")["record/k"].content.tolist() == [[10_000]]
    assert own.state_dict()["vocabularies"]["record/k"] == ["b"]
    fit_vocabulary(own, records, order="first", freeze=False)
    own.encode([{"k": "new"}], "train")
    assert own.state_dict()["vocabularies"]["record/k"] == ["b", "a", "c", "new"]


def test_statistics_of_parts_are_those_of_the_whole() -> None:
    values = np.random.default_rng(0).normal(3, 2, 1000)
    whole, parts = RunningStats(), RunningStats()
    whole.update(values)
    for part in np.array_split(values, 7):
        one = RunningStats()
        one.update(part)
        parts.merge(one)
    assert parts.count == whole.count == 1000
    assert parts.mean == pytest.approx(values.mean())
    assert parts.variance == pytest.approx(values.var())
    for given in (values.tolist(), torch.tensor(values)):
        again = RunningStats()
        again.update(given)
        assert (again.mean, again.variance) == (whole.mean, whole.variance)


def test_a_query_that_leads_nowhere_is_named_once_and_then_refused() -> None:
    own = Schema(Number("x", query="[*][*].x"))

    def encode(times: int) -> None:
        for _ in range(times):
            assert own.encode([{"x": 1}], "train")["record/x"].state.tolist() == [[2]]

    encode(19)
    with pytest.warns(UserWarning, match=r"record/x: \[\*\]\[\*\]\.x"):
        encode(1)
    encode(979)
    with pytest.raises(ValueError, match="record/x"):
        own.encode([{"x": 1}], "train")
