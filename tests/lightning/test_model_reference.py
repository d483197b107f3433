"""The model of a data module: read live, kept as it was last seen, and changed between runs."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import pytest
import torch

from penstock.lightning import (
    CustomDataModule,
    DataModule,
    EngineOptions,
    PolarsDataModule,
    StreamingDataModule,
    where,
)
from penstock.schema import Category, Number, SchemaModel
from tests.lightning.preprocessing import shifted
from tests.lightning.small_models import FRAME, Net, Rows, batches, ids, model, seen, trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


def module(own: object, **options: Any) -> PolarsDataModule:
    return PolarsDataModule(own, **{"dataframe": FRAME, "num_workers": 0, **options})


def addresses(data: PolarsDataModule) -> list[str]:
    return list(next(iter(batches(data))))


def sizes(data: PolarsDataModule) -> list[int]:
    return [len(batch) for batch in batches(data)]


# Live.


def test_edits_of_the_model_hold_from_the_next_loader_on() -> None:
    own = model()
    data = module(own)
    assert addresses(data) == ["record/x", "record/c"]
    run = iter(batches(data))
    next(run)
    own.extend(Number("twice", query="[*].x"))
    own.batch_size = 5
    assert addresses(data) == ["record/x", "record/c", "record/twice"]
    assert sizes(data) == [5, 5, 1]
    assert data.hyperparameters is own.hyperparameters
    # One that is under way keeps its plan.
    assert [(list(batch), len(batch)) for batch in run] == [
        (["record/x", "record/c"], size) for size in (3, 3, 2)
    ]
    own.delete(where("name") == "c")
    assert addresses(data) == ["record/x", "record/twice"]
    with own.override(where("name") == "x", active=False):
        assert addresses(data) == ["record/twice"]
    assert addresses(data) == ["record/x", "record/twice"]


def test_what_is_learnt_is_the_models_own() -> None:
    own = model()
    data = module(own)
    list(batches(data, "validate"))
    words = own.interprocess_encoding_context["record/c"]
    assert words.snapshot() == []
    list(batches(data))
    assert words.snapshot() == list("abcdef")
    assert own.statistics["record/x"].count == 11
    assert data.interprocess_encoding_context["record/c"] is words
    own.reset()
    assert words.snapshot() == []


def test_a_schema_changes_between_runs_of_a_trainer() -> None:
    net = Net(batch_size=11)
    data = module(net)
    run = trainer(limit_val_batches=0)
    run.fit(net, datamodule=data)
    assert 0 in net.trained[0].x[1:]  # Some are masked.
    net.update(where("name") == "x", p_mask=0.0)
    net.schema.batch_size = 4
    run.test(net, datamodule=data, verbose=False)
    assert [one.x for one in net.evaluated] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    net.extend(Category("again", query="[*].c", p_unavailable=0))
    trainer(limit_val_batches=0).fit(net, datamodule=data)
    assert net.interprocess_encoding_context["record/again"].snapshot() == list("abcdef")
    # What leaves that stayed have learnt stays.
    assert net.interprocess_encoding_context["record/c"].snapshot() == list("abcdef")
    assert net.statistics["record/x"].count == 22


# Let go of.


@pytest.mark.parametrize("kind", [SchemaModel, Net])
def test_a_module_does_not_keep_its_model_alive_and_goes_on_with_what_it_saw(kind: Any) -> None:
    own = model() if kind is SchemaModel else Net()
    alive = weakref.ref(own)
    data = module(own)
    schema = own if isinstance(own, SchemaModel) else own.schema
    schema.batch_size = 4
    schema.extend(Number("twice", query="[*].x"))
    expected = [seen(batch) for batch in batches(data)]
    words = own.interprocess_encoding_context["record/c"]
    schema.reset()
    del own, schema
    gc.collect()
    assert alive() is None
    assert data.batch_size == 4
    assert "record/twice" in data.hyperparameters.requests
    assert [seen(batch) for batch in batches(data)] == expected
    assert words.snapshot() == list("abcdef")


def test_setting_one_attribute_detaches_and_the_others_stay_as_they_were_seen_last() -> None:
    own = model()
    data = module(own)
    own.batch_size = 5
    own.extend(Number("twice", query="[*].x"))
    data.batch_size = 4
    own.batch_size = 2
    own.delete(where("name") == "twice")
    assert sizes(data) == [4, 4, 3]
    assert addresses(data) == ["record/x", "record/c", "record/twice"]
    # It still shares the vocabulary.
    assert own.interprocess_encoding_context["record/c"].snapshot() == list("abcdef")


def test_another_tree_or_other_vocabularies_can_be_set() -> None:
    own, other = model(), SchemaModel(Category("c", p_unavailable=0), batch_size=1)
    other.encode([{"c": "f"}], "train")
    data = module(own)
    data.hyperparameters = other.hyperparameters
    assert addresses(data) == ["record/c"]
    assert sizes(data) == [3, 3, 3, 2]
    data.interprocess_encoding_context = other.interprocess_encoding_context
    assert [batch["record/c"].content.flatten().tolist() for batch in batches(data, "test")] == [
        *[[10_000] * 3] * 3, [10_000, 0],
    ]  # fmt: skip


# Pickled.


@pytest.mark.parametrize("has_run", [False, True])
def test_a_module_pickles_before_and_after_a_run(has_run: bool) -> None:  # noqa: FBT001
    net = Net()
    engine = EngineOptions(seed=1)
    modules = [
        module(net, preprocessor=shifted, by=2, engine=engine),
        CustomDataModule(net, train=Rows(), validate=Rows(), num_workers=0, engine=engine),
        StreamingDataModule(net, ".", "ndjson", train="x"),
        DataModule(FRAME, FRAME, encode=net.schema, batch_size=3, num_workers=0),
    ]
    for data in modules:
        is_here = not isinstance(data, StreamingDataModule)
        if has_run and is_here:
            trainer().fit(net, datamodule=data)
            next(iter(batches(data)))
        net.schema.reset()
        copy = pickle.loads(pickle.dumps(data))
        if is_here:
            expected = [seen(batch) for batch in batches(data, "train")]
            if isinstance(data, DataModule):
                net.schema.reset()
            assert [seen(batch) for batch in batches(copy, "train")] == expected


def test_batches_that_are_under_way_pickle_and_begin_anew() -> None:
    made = batches(module(Net(), observation_buffer_size=5))
    next(iter(made))
    copy = pickle.loads(pickle.dumps(made))
    assert len(copy) == len(made)
    assert ids(copy) == ids(made)


def test_a_checkpoint_of_a_model_keeps_what_was_learnt() -> None:
    net = Net()
    list(batches(module(net)))
    checkpoint: dict[str, Any] = {}
    net.on_save_checkpoint(checkpoint)
    other = Net()
    other.on_load_checkpoint(checkpoint)
    assert other.schema.state_dict() == net.schema.state_dict()
    other.on_load_checkpoint({})  # Of a model without a schema.
    assert isinstance(net.encode([{"x": 1}])["record/x"].content, torch.Tensor)
    assert [node.name for node in net.select(where("kind") == "number")] == ["x"]
    assert net.write({"record/x": {}}) == {"record/x": {}}


def test_the_batch_size_of_a_model_with_a_schema_can_be_set() -> None:
    net = Net(batch_size=3)
    data = module(net)
    net.batch_size = 5
    assert net.schema.batch_size == 5
    assert [len(batch) for batch in batches(data)] == [5, 5, 1]
