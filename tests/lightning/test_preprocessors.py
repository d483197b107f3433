"""Preprocessors: how they are registered, found and called, and what they may make."""

from __future__ import annotations

from datetime import date
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from torch.utils.data import get_worker_info

from penstock import DataLoader, stream
from penstock.errors import OptionError
from penstock.lightning import (
    PREPROCESSORS,
    EngineOptions,
    PolarsDataModule,
    Preprocessor,
    PreprocessorMode,
    _preprocess,
    preprocess,
)
from penstock.schema import Category, Number, SchemaModel
from tests.lightning.preprocessing import inverse, placed, shifted, some
from tests.lightning.small_models import FRAME, batches, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning", "ignore:.*use of fork:DeprecationWarning"
)

Record = dict[str, Any]


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.lightning._preprocess.PREPROCESSORS", {})


def registered(name: str) -> Preprocessor:
    return _preprocess.PREPROCESSORS[name]


def module(preprocessor: Any, **options: Any) -> PolarsDataModule:
    schema = SchemaModel(Number("x"), batch_size=4)
    return PolarsDataModule(
        schema, **{"train": FRAME, "num_workers": 0, "preprocessor": preprocessor, **options}
    )


def values(data: PolarsDataModule, strata: str = "train") -> list[float]:
    return [
        x for batch in batches(data, strata) for x in batch["record/x"].content.flatten().tolist()
    ]


PLAIN = FRAME["x"].to_list()
SOME = [x + part for x in PLAIN if x % 4 != 1 for part in (0, 0.1)]


# Registration.


def test_a_registered_function_stays_what_it_was() -> None:
    assert preprocess(shifted) is shifted
    assert preprocess(yields=True)(some) is some
    assert preprocess(**{"yield": False})(partial) is partial
    assert registered("shifted") == Preprocessor("shifted", shifted)
    assert registered("shifted").mode is PreprocessorMode.transformation
    assert registered("some").mode is PreprocessorMode.generator
    assert isinstance(PREPROCESSORS, dict)


def test_a_wrong_registration_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="yields and yield are the same option"):
        preprocess(**{"yield": True, "yields": True})
    with pytest.raises(TypeError, match="yields=1 is neither True nor False"):
        preprocess(yields=1)
    with pytest.raises(TypeError, match="no option 'mode'"):
        preprocess(mode="generator")
    for wrong in (5, partial(shifted, by=2)):
        with pytest.raises(TypeError, match="preprocess takes a function, not"):
            preprocess(wrong)
        with pytest.raises(TypeError, match="preprocess takes a function, not"):
            preprocess(yields=True)(wrong)


def test_another_function_under_the_same_name_warns() -> None:
    preprocess(shifted)
    preprocess(shifted)

    def other(record: Record) -> Record:
        return record

    other.__name__ = "shifted"
    with pytest.warns(UserWarning, match="'shifted' is registered anew") as caught:
        preprocess(other)
    assert caught[0].filename == __file__
    assert registered("shifted").func is other


def test_a_preprocessor_is_frozen_and_has_one_of_two_modes() -> None:
    one = Preprocessor("some", some, "generator")  # type: ignore[arg-type]
    assert one.mode is PreprocessorMode.generator
    with pytest.raises(AttributeError):
        one.name = "other"  # type: ignore[misc]
    with pytest.raises(ValueError, match="sometimes"):
        Preprocessor("some", some, "sometimes")  # type: ignore[arg-type]
    assert Preprocessor("some", some, " Generator") == one  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="func=5: expected a function"):
        Preprocessor("some", 5)  # type: ignore[arg-type]


# Resolution.


def test_functions_names_and_objects_do_the_same() -> None:
    preprocess(shifted)
    for one in (shifted, "shifted", Preprocessor("mine", shifted)):
        assert values(module(one)) == [x + 1 for x in PLAIN]
        assert values(module(one, by=2)) == [x + 2 for x in PLAIN]
    assert values(module(partial(shifted, by=3))) == [x + 3 for x in PLAIN]


def test_an_unknown_name_is_an_error_with_the_nearest_one() -> None:
    preprocess(shifted)
    with pytest.raises(ValueError, match=r"no preprocessor 'shift'. Did you mean 'shifted'\?"):
        module("shift")
    with pytest.raises(ValueError, match=r"no preprocessor 'x'. Register it with @preprocess"):
        module("x")
    with pytest.raises(TypeError, match="preprocessor=7: expected a function"):
        module(7)


def test_a_function_is_not_taken_for_another_one_of_its_name() -> None:
    def shifted_twice(record: Record) -> Record:
        return shifted(record, 2)

    shifted_twice.__name__ = "shifted"
    preprocess(shifted)
    assert values(module(shifted_twice)) == [x + 2 for x in PLAIN]


def test_a_generator_function_needs_no_registration() -> None:
    assert values(module(some)) == pytest.approx(SOME)
    assert values(module(partial(some, times=1))) == [x for x in PLAIN if x % 4 != 1]
    assert values(module(preprocess(some), times=0)) == []


def test_an_async_function_is_refused() -> None:
    async def later(record: Record) -> Record:
        return record

    with pytest.raises(TypeError, match="the preprocessor 'later' is async: give a plain function"):
        module(later)


def test_an_object_whose_call_is_a_generator_function_needs_none_either() -> None:
    class Twice:
        def __call__(self, record: Record) -> Iterator[Record]:
            yield record
            yield record

    assert values(module(Twice())) == [x for x in PLAIN for _ in range(2)]


# Options.


def test_a_preprocessor_gets_what_it_asks_for() -> None:
    calls: list[Record] = []

    def asks(record: Record, by: float, strata: str = "", **rest: Any) -> Record:
        calls.append({"by": by, "strata": strata, **rest})
        return record

    def asks_little(record: Record, strata: str) -> Record:
        calls.append({"strata": strata})
        return record

    schema = SchemaModel(Number("x"), Category("c"), batch_size=11)
    frames = {"dataframe": FRAME, "num_workers": 0}
    list(batches(PolarsDataModule(schema, **frames, preprocessor=asks, by=2, z=1), "test"))
    words = schema.interprocess_encoding_context
    expected = {"by": 2, "strata": "test", "z": 1, "interprocess_encoding_context": words}
    assert calls == [expected] * 11
    calls.clear()
    list(batches(PolarsDataModule(schema, **frames, preprocessor=asks_little), "validate"))
    assert calls == [{"strata": "validate"}] * 11


def test_wrong_options_raise_in_the_constructor() -> None:
    def needs(record: Record, window: int) -> Record:
        return {**record, "window": window}

    def nothing() -> Record:
        return {}

    with pytest.raises(TypeError, match=r"'needs' cannot be called: missing.*'window'"):
        module(needs)
    with pytest.raises(TypeError, match=r"preprocessor 'needs'\. Did you mean 'window'"):
        module(needs, windw=3)
    with pytest.raises(TypeError, match="'nothing' cannot be called: too many"):
        module(nothing)
    with pytest.raises(TypeError, match="multiple values for argument 'record'"):
        module(lambda record, **options: record | options, record=1)
    for name in ("strata", "interprocess_encoding_context"):
        with pytest.raises(OptionError, match=f"{name}= is given to preprocessors by the data"):
            module(shifted, **{name: 1})
    module(needs, window=3)


# What they make.


def listed(record: Record, kind: Any) -> Any:
    return kind([record])


@pytest.mark.parametrize("kind", [list, tuple, iter, lambda made: dict(enumerate(made)).values()])
def test_a_generator_returns_any_iterable_of_dicts(kind: Any) -> None:
    mode = PreprocessorMode.generator
    assert values(module(Preprocessor("listed", listed, mode), kind=kind)) == PLAIN


@pytest.mark.parametrize(
    ("made", "mode", "text"),
    [
        (None, "transformation", "a dict, got NoneType. To drop or multiply records, register it"),
        ([{}], "transformation", "'bad' must produce a dict, got list"),
        ((one for one in ()), "transformation", "got generator. To drop or multiply records"),
        ({}, "generator", "'bad' must produce an iterable of dicts, got dict"),
        ("ab", "generator", "'bad' must produce an iterable of dicts, got str"),
        (None, "generator", "'bad' must produce an iterable of dicts, got NoneType"),
        ([{}, 5], "generator", "'bad' must produce dicts, got int"),
    ],
)
def test_a_wrong_observation_is_a_type_error_with_its_record(
    made: Any, mode: Any, text: str
) -> None:
    def bad(record: Record) -> Any:
        return made if record["x"] == 5 else ([record] if mode == "generator" else record)

    data = module(Preprocessor("bad", bad, mode))
    with pytest.raises(TypeError, match=text) as caught:
        values(data)
    assert "record 2 of unit 1" in " ".join(caught.value.__notes__)


def test_records_may_be_changed_in_place() -> None:
    def in_place(record: Record) -> Record:
        record["x"] *= 10
        return record

    data = module(in_place)
    assert values(data) == values(data) == [x * 10 for x in PLAIN]


def test_records_hold_plain_values_of_every_column() -> None:
    found: list[Record] = []

    def keep(record: Record) -> Record:
        found.append(record)
        return {"x": 1}

    frame = pl.DataFrame(
        {
            "nested": [{"a": [1, None], "b": {"c": "x"}}, None],
            "when": pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 2), eager=True),
            "money": pl.Series(["1.50", None]).cast(pl.Decimal(10, 2)),
            "kind": pl.Series(["u", "v"], dtype=pl.Categorical),
            "day": [None, date(2024, 2, 29)],
            "raw": [b"\xff", None],
        }
    )
    values(module(keep, train=frame))
    assert found == frame.to_dicts()


# In a loader.


def test_a_transformation_keeps_the_number_of_batches_and_a_generator_does_not_know_it() -> None:
    one, several = (batches(module(preprocessor)) for preprocessor in (shifted, some))
    assert len(one) == len(list(one)) == 3
    with pytest.raises(TypeError, match="the number of batches is not known"):
        len(several)


def test_observations_are_sampled_one_by_one_behind_the_preprocessor() -> None:
    frame = pl.DataFrame({"x": [float(number) for number in range(400)]})
    data = module(some, train=frame, sample_rate=0.5)
    found = values(data)
    assert 200 < len(found) < 400
    whole = [x + part for x in range(400) if x % 4 != 1 for part in (0, 0.1)]
    assert sorted(found) == found
    kept = {round(x, 1) for x in found}
    assert kept < {round(x, 1) for x in whole}
    halves = [round(x + 0.1, 1) in kept for x in range(400) if x in kept]
    assert 0 < sum(halves) < len(halves)


@pytest.mark.parametrize("mode", ["fork", "spawn"])
def test_workers_run_functions_and_names(mode: Any) -> None:
    preprocess(some)
    engine = EngineOptions(multiprocessing_context=mode, seed=1)
    data = module("some", num_workers=2, chunk_batch_size=2, engine=engine, predict=FRAME)
    assert sorted(values(data)) == pytest.approx(SOME)
    # Predictions bring what the preprocessor made.
    records = [row for batch in batches(data, "predict") for (row,) in batch["metadata"]]
    assert sorted(record["x"] for record in records) == pytest.approx(SOME)
    assert {record["c"] for record in records} == set("abcdf")


@pytest.mark.parametrize(("workers", "mode"), [(0, None), (2, "fork"), (2, "spawn")])
def test_a_preprocessor_sees_its_share_and_draws_for_itself(workers: int, mode: Any) -> None:
    found = []
    for rank in range(2):
        engine = EngineOptions(multiprocessing_context=mode, seed=1)
        data = module(placed, num_workers=workers, chunk_batch_size=1, engine=engine, predict=FRAME)
        data.trainer = SimpleNamespace(global_rank=rank, world_size=2, num_nodes=1)  # type: ignore[assignment]
        found += [row for batch in batches(data, "predict") for (row,) in batch["metadata"]]
    readers = 2 * max(1, workers)
    shares = [number + readers / 100 for number in range(readers)]
    assert sorted({record["x"] for record in found}) == pytest.approx(shares)
    assert len(found) == len({record["drawn"] for record in found}) == len(FRAME)


def test_torch_says_in_which_worker_a_preprocessor_runs_and_units_are_read_whole() -> None:
    def look(record: Record) -> Record:
        info = get_worker_info()
        return {"x": record["x"], "worker": info and [info.id, info.num_workers]}

    def read(unit: int, start: int) -> Iterator[Record]:
        assert get_worker_info() is None  # Or a dataset in a unit would leave records out.
        yield from [{"x": unit}][start:]

    for workers in (0, 2):
        loader = DataLoader(stream(range(4), read).map(look), batch_size=2, num_workers=workers)
        assert sorted((record["x"], record["worker"]) for batch in loader for record in batch) == [
            (unit, [unit % 2, 2] if workers else None) for unit in range(4)
        ]


def test_an_error_of_a_worker_keeps_its_type_and_says_where() -> None:
    data = module(inverse, num_workers=1)
    with pytest.raises(ZeroDivisionError) as caught:
        values(data)
    assert "record" in " ".join(caught.value.__notes__)


def test_two_observations_of_one_record_have_ids_of_their_own() -> None:
    first, second = (counted(batches(module(some))) for _ in range(2))
    assert len(set(first)) == len(first) == len(SOME)
    assert first == second
