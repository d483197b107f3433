"""Options of data modules: what they may be, by split, and what each wrong one raises."""

from __future__ import annotations

import dataclasses
import pickle
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.errors import OptionError
from penstock.lightning import (
    CustomDataModule,
    DataModule,
    EngineOptions,
    PolarsDataModule,
    StreamingDataModule,
)
from penstock.lightning._options import NUMBERED, SHARED
from penstock.schema import Number, SchemaModel, Strata
from tests.lightning.small_models import FRAME, Rows, batches, model

# Lightning 2.6 uses a class that torch has marked as old.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


def module(**options: Any) -> PolarsDataModule:
    return PolarsDataModule(model(), **{"train": FRAME, **options})


def options_of(data: Any) -> dict[Strata, Any]:
    found: dict[Strata, Any] = vars(data)["_options"]
    return found


DEFAULTS = {
    "num_workers": None,
    "persistent_workers": True,
    "pin_memory": True,
    "observation_buffer_size": 1,
    "sample_rate": 1.0,
    "chunk_batch_size": None,
    "sharding": "chunk",
    "file_buffer_size": 1,
    "replacement": False,
}


def test_defaults_are_those_of_the_table() -> None:
    for split, options in options_of(module()).items():
        assert options._asdict() == DEFAULTS, split
    custom = CustomDataModule(model(), train=Rows())
    assert options_of(custom)[Strata.train]._asdict() == DEFAULTS
    streaming = StreamingDataModule(model(), ".", "ndjson", train="x")
    for split, options in options_of(streaming).items():
        own = {**DEFAULTS, "sharding": "file", "replacement": split == "train"}
        assert options._asdict() == own


def test_splits_that_a_mapping_lacks_have_the_default_of_the_option() -> None:
    given: dict[str, Any] = {
        "num_workers": {" Train": 8, "VALIDATE ": 2},
        "sample_rate": {"train": 0.25},
        "observation_buffer_size": {"test": np.int64(7)},
        "replacement": {"validate": True, "train": None},
        "sharding": {"train": " Record"},
        "pin_memory": {},
    }
    found = options_of(StreamingDataModule(model(), ".", "ndjson", train="x", **given))
    assert [found[split].num_workers for split in Strata] == [8, 2, None, None]
    assert [found[split].sample_rate for split in Strata] == [0.25, 1.0, 1.0, 1.0]
    assert [found[split].observation_buffer_size for split in Strata] == [1, 1, 7, 1]
    assert [found[split].replacement for split in Strata] == [True, True, False, False]
    assert [found[split].sharding for split in Strata] == ["record", "file", "file", "file"]
    assert all(found[split].pin_memory for split in Strata)


def test_a_number_of_workers_comes_from_the_processors_of_each_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = options_of(module())[Strata.train]
    for usable, ranks, workers in ((64, 1, 8), (12, 2, 6), (4, 8, 0)):
        monkeypatch.setattr("penstock.lightning._options.usable_cpus", lambda n=usable: n)
        assert options.workers(ranks) == workers
        assert options._replace(num_workers=3).workers(ranks) == 3


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("num_workers", True, TypeError),
        ("num_workers", 1.0, TypeError),
        ("num_workers", "2", TypeError),
        ("num_workers", -1, ValueError),
        ("persistent_workers", 1, TypeError),
        ("persistent_workers", None, TypeError),
        ("pin_memory", "yes", TypeError),
        ("observation_buffer_size", 0, ValueError),
        ("observation_buffer_size", None, TypeError),
        ("observation_buffer_size", False, TypeError),
        ("sample_rate", 0, ValueError),
        ("sample_rate", 1.5, ValueError),
        ("sample_rate", float("nan"), ValueError),
        ("sample_rate", True, TypeError),
        ("sample_rate", None, TypeError),
        ("chunk_batch_size", 0, ValueError),
        ("chunk_batch_size", 2.0, TypeError),
        ("sharding", "row", ValueError),
        ("sharding", 1, TypeError),
        ("replacement", None, TypeError),
        ("replacement", 0, TypeError),
    ],
)
def test_a_wrong_value_raises_in_the_constructor_and_is_named(
    option: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=rf"^{option}={value!r}: expected"):
        module(**{option: value})
    with pytest.raises(error, match=rf"^{option}\['test'\]={value!r}: expected"):
        module(**{option: {"test": value}})


def test_an_unknown_split_is_an_error_of_its_option() -> None:
    with pytest.raises(ValueError, match=r"^num_workers=.*strata='val': expected one of train"):
        module(num_workers={"val": 1})
    with pytest.raises(ValueError, match="strata='val': expected one of train, validate"):
        module().dataloader("val")


@pytest.mark.parametrize("name", SHARED)
def test_one_is_as_good_as_a_mapping_of_it(name: str) -> None:
    value = {"sample_rate": 1, "num_workers": 0}.get(name, NUMBERED[name].default)
    one, other = module(**{name: value}), module(**{name: dict.fromkeys(Strata, value)})
    assert options_of(one) == options_of(other)
    assert isinstance(options_of(one)[Strata.train].sample_rate, float)


# Names.


def test_an_unknown_option_is_an_error_with_the_nearest_name() -> None:
    text = r"^the data module has no option 'sampel_rate'. Did you mean 'sample_rate'\?"
    with pytest.raises(TypeError, match=text):
        module(sampel_rate=0.5)
    with pytest.raises(TypeError, match=r"no option 'dataset'\. Did you mean 'datasets'"):
        CustomDataModule(model(), dataset={"train": Rows()})
    with pytest.raises(TypeError, match=r"no option 'zzz'\.$"):
        module(zzz=1)
    with pytest.raises(TypeError, match="no argument 'shufle': Did you mean 'shuffle'"):
        DataModule(FRAME, batch_size=2, shufle=True)
    with pytest.raises(TypeError, match=r"no option 'sead'\. Did you mean 'seed'"):
        EngineOptions(sead=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("seed", "Give engine=EngineOptions(seed=…)."),
        ("on_error", "Give engine=EngineOptions(on_error=…)."),
        ("batch_size", "The model has it: SchemaModel(…, batch_size=…)."),
        ("shuffle", "observation_buffer_size= is the number of observations that a shuffle draws"),
        ("drop_last", "The last batch of an epoch is always handed out."),
        ("val", "Did you mean 'validate'?"),
    ],
)
def test_an_option_that_is_elsewhere_is_an_error_that_says_where(name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=rf"no option '{name}'\. {re.escape(hint)}"):
        module(**{name: 1})


@pytest.mark.parametrize("name", ["chunk_batch_size", "file_buffer_size", "sharding"])
def test_options_of_other_modules_do_not_fall_through_to_a_preprocessor(name: str) -> None:
    def takes_all(record: dict[str, Any], **options: Any) -> dict[str, Any]:
        return record | options

    def takes_one(record: dict[str, Any], sharding: Any = 0) -> dict[str, Any]:
        return record | {"sharding": sharding}

    for preprocessor in (None, takes_all):
        with pytest.raises(TypeError, match=f"no option '{name}'"):
            CustomDataModule(model(), train=Rows(), preprocessor=preprocessor, **{name: 1})
    CustomDataModule(model(), train=Rows(), preprocessor=takes_one, sharding=1)


def test_engine_options_are_checked_and_frozen_and_pickle() -> None:
    for wrong in (
        {"seed": "7"},
        {"seed": True},
        {"allow_empty": 1},
        {"mask_padding": None},
        {"storage_options": 3},
        {"format_options": ["delimiter"]},
    ):
        with pytest.raises(TypeError, match=f"EngineOptions: {next(iter(wrong))}[= ]"):
            EngineOptions(**wrong)
    for wrong in (
        {"assignment": "fair"},
        {"equalize": None},
        {"epoch": "long"},
        {"on_error": "mask"},
        {"path": "fast"},
        {"null_semantics": "sql"},
        {"multiprocessing_context": "thread"},
    ):
        with pytest.raises(OptionError, match=f"EngineOptions: {next(iter(wrong))}=.*: expected"):
            EngineOptions(**wrong)
    engine = EngineOptions(seed=np.int32(3), equalize="drop")
    assert pickle.loads(pickle.dumps(engine)) == engine
    assert dataclasses.replace(engine, seed=4).seed == 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        engine.seed = 4  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"engine={'seed': 1}: expected EngineOptions"):
        module(engine={"seed": 1})


# The model.


def test_a_model_is_anything_with_three_attributes() -> None:
    schema = SchemaModel(Number("x"), batch_size=4)

    class Other:
        hyperparameters = schema.hyperparameters
        batch_size = 2
        interprocess_encoding_context = schema.interprocess_encoding_context

    other = Other()
    data = PolarsDataModule(other, train=FRAME, num_workers=0)
    assert [len(batch) for batch in batches(data)] == [2] * 5 + [1]


def test_a_model_that_lacks_some_of_them_is_a_type_error_that_names_them() -> None:
    with pytest.raises(
        TypeError, match="no hyperparameters, batch_size, interprocess_encoding_context"
    ):
        PolarsDataModule(None, train=FRAME)
    with pytest.raises(TypeError, match=r"has no batch_size: give a SchemaModel"):
        PolarsDataModule(
            SimpleNamespace(hyperparameters=1, interprocess_encoding_context={}), train=FRAME
        )
    with pytest.raises(TypeError, match=r"hyperparameters is a dict, and a tree"):
        PolarsDataModule(
            SimpleNamespace(hyperparameters={}, batch_size=1, interprocess_encoding_context={}),
            train=FRAME,
        )


# Splits.


@pytest.mark.parametrize(
    ("kind", "one", "whole"),
    [(PolarsDataModule, FRAME, "dataframe"), (CustomDataModule, Rows(), "datasets")],
)
def test_splits_are_named_or_in_one_mapping(kind: Any, one: Any, whole: str) -> None:
    for given in ({"train": one}, {whole: {" TRAIN": one}}):
        data = kind(model(), **given, num_workers=0)
        assert data.dataloader("train") is not None
        assert data.dataloader("test", required=False) is None
        with pytest.raises(ValueError, match=r"^no data.* configured for strata: test$"):
            data.dataloader("test")
        assert (data.val_dataloader(), data.test_dataloader(), data.predict_dataloader()) == (
            [], [], [],
        )  # fmt: skip
    with pytest.raises(ValueError, match="at least one of train, validate, test and predict"):
        kind(model())
    with pytest.raises(ValueError, match=f"give {whole}= or train=, not both"):
        kind(model(), train=one, **{whole: {"train": one}})
    with pytest.raises(ValueError, match=f"{whole}= has no split"):
        kind(model(), **{whole: {}})
    with pytest.raises(ValueError, match="strata='val'"):
        kind(model(), **{whole: {"val": one}})
    for wrong in ([{"x": 1}], "frame.csv", 5, {"x": [1]}):
        with pytest.raises(TypeError, match=r"^train="):
            kind(model(), train=wrong)
