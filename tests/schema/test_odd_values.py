"""Values of another structure than a schema expects, and vocabularies of texts and numbers."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.errors import OptionError, SchemaMismatchError
from penstock.lightning import EngineOptions, StreamingDataModule
from penstock.schema import (
    Array,
    Category,
    Number,
    Schema,
    SchemaModel,
    Set,
    fit_vocabulary,
    load_schema,
)

if TYPE_CHECKING:
    from pathlib import Path

GOOD: dict[str, Any] = {
    "ev": [{"v": 1}],
    "u": {"a": 2},
    "h": [4],
    "t": [{"n": "p"}],
    "nn": [{"tx": [{"a": 1}]}],
}
LIST, OBJECT, NULL, PADDED = "a list", "an object", "value is null", "slots are padded"
ODD: list[tuple[dict[str, Any], str]] = [
    ({"ev": "none"}, f"record/ev/v: 'none' .* {LIST} .*{PADDED}"),
    ({"ev": ""}, f"record/ev/v: '' .* {LIST} .*{PADDED}"),
    ({"ev": {"v": 1}}, rf"record/ev/v: \{{'v': 1\}} .* {LIST} .*{PADDED}"),
    ({"ev": True}, f"record/ev/v: True .* {LIST} .*{PADDED}"),
    ({"ev": [1, 2]}, f"record/ev/v: 1 .* {OBJECT} .*{NULL}"),
    ({"ev": [[{"v": 1}]]}, rf"record/ev/v: \[\{{'v': 1\}}\] .* {OBJECT} .*{NULL}"),
    ({"ev": [{"v": 1}, 7, None]}, f"record/ev/v: 7 .* {OBJECT} .*{NULL}"),
    ({"u": [1, 2]}, rf"record/a: \[1, 2\] .* {OBJECT} .*{NULL}"),
    ({"u": "x"}, f"record/a: 'x' .* {OBJECT} .*{NULL}"),
    ({"u": [{"a": 1}]}, rf"record/a: \[\{{'a': 1\}}\] .* {OBJECT} .*{NULL}"),
    ({"h": "abc"}, f"record/h: 'abc' .* {LIST} .*{NULL}"),
    ({"h": {"0": 1}}, rf"record/h: \{{'0': 1\}} .* {LIST} .*{NULL}"),
    ({"t": "one"}, f"record/t: 'one' .* {LIST} .*{PADDED}"),
    ({"t": ["x", {"n": "q"}]}, f"record/t: 'x' .* {OBJECT} .*{NULL}"),
    ({"nn": [{"tx": "no"}]}, f"record/nn/tx/a: 'no' .* {LIST} .*{PADDED}"),
    ({"nn": [{"tx": [{"a": 3}]}, 5]}, f"record/nn/tx/a: 5 .* {OBJECT} .*{PADDED}"),
]
FINE: list[dict[str, Any]] = [
    *({}, {"ev": None, "u": None, "h": None, "t": None, "nn": None}),
    {"ev": [], "u": {}, "h": [], "t": [], "nn": [{}, None, {"tx": None}]},
]


def schema(**options: Any) -> Schema:
    return Schema(
        Array(Number("v"), name="ev", max_length=3),
        Number("a", query="[*].u.a"),
        Number("h", query="[*].h[0]"),
        Set("t", query="[*].t[*].n", max_vocab_size=5),
        Array(Array(Number("a"), name="tx", max_length=2), name="nn", max_length=2),
        **options,
    )


def line_file(folder: Path, records: list[dict[str, Any]]) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def run(source: Any, path: str, **options: Any) -> tuple[dict[str, Any], float, list[str]]:
    """Return states and contents, how many records were odd, and what was said."""
    own = schema()
    own.path = path
    given = {"batch_size": 50, "num_workers": 0, **options}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = penstock.DataLoader(source, own, **given)
        parts: dict[str, list[Any]] = {str(at): [] for at in own.hyperparameters.requests}
        for batch in loader:
            for at in parts:
                fields = (batch[at].state.tolist(), batch[at].content.tolist())
                parts[at] += zip(*fields, strict=True)
    return parts, loader.stats()["odd_records"], [str(one.message) for one in caught]


@pytest.mark.parametrize(("odd", "text"), ODD, ids=[json.dumps(odd) for odd, _ in ODD])
def test_both_paths_say_what_is_odd_where_it_is_and_what_became_of_it(
    odd: dict[str, Any], text: str, tmp_path: Path
) -> None:
    records = [GOOD, *FINE, {**GOOD, **odd}, GOOD, odd]
    file = line_file(tmp_path, records)
    expected = run(str(file), "rows")
    assert expected[1] == 2
    (said,) = expected[2]
    assert f"in record 4 ({file}, line 5)" in said
    with pytest.warns(UserWarning, match=text):
        warnings.warn(said, stacklevel=1)
    for options in ({}, {"batch_size": 1, "materialize": False}):
        assert run(str(file), "auto", **options) == expected
    assert run(records, "auto")[:2] == run(records, "rows")[:2] == expected[:2]


def test_workers_say_the_same(tmp_path: Path) -> None:
    file = line_file(tmp_path, [GOOD, *(odd for odd, _ in ODD)])
    expected = run(str(file), "auto", batch_size=4)
    assert expected[1] == len(ODD)
    assert run(str(file), "auto", batch_size=4, num_workers=2) == expected


def test_columns_of_tables_with_another_structure_are_odd_as_well(tmp_path: Path) -> None:
    for number, (odd, _) in enumerate(ODD):
        try:
            table = pa.Table.from_pylist([odd])
        except pa.ArrowException:
            continue  # No column holds values of two kinds.
        pq.write_table(table, tmp_path / f"{number}.parquet")
        expected = run([odd], "rows")
        assert expected[1] == 1
        assert run(str(tmp_path / f"{number}.parquet"), "auto")[:2] == expected[:2], odd


def test_a_leaf_warns_once_for_all_batches_epochs_and_splits() -> None:
    own = schema()
    records = [{"ev": "no", "u": "no"}] * 8
    loader = penstock.DataLoader(records, own, batch_size=2, epochs=2)
    with pytest.warns(UserWarning, match="stands where") as caught:
        list(loader)
    assert len(caught) == 2
    list(penstock.DataLoader(records, own.for_split("validate"), batch_size=2))
    own.encode(records)
    assert loader.stats()["odd_records"] == 16


def test_a_record_of_a_stream_is_named_by_its_id() -> None:
    def read(unit: int, start: int = 0) -> Any:
        return iter([{"ev": "no" if unit == 256 else [{"v": 1}]}][start:])

    own = Schema(Array(Number("v"), name="ev", max_length=2))
    loader = penstock.DataLoader(penstock.stream([*range(257)], read), own, batch_size=1)
    with pytest.warns(UserWarning, match="'no' stands where") as caught:
        *_, last = loader
    assert f"in record {last.ids[0]:,}; " in str(caught[0].message)


@pytest.mark.parametrize("preprocessor", [None, dict])
def test_a_data_module_names_file_and_line(tmp_path: Path, preprocessor: Any) -> None:
    file = line_file(tmp_path, [GOOD, {**GOOD, "ev": "none"}])
    model = SchemaModel(Array(Number("v"), name="ev", max_length=2), batch_size=2)
    about: dict[str, Any] = {"root": tmp_path, "suffix": "ndjson", "preprocessor": preprocessor}
    own = StreamingDataModule(model, **about, test=".", num_workers=0)
    with pytest.warns(UserWarning, match=rf"'none' .*\({file}, line 2\)"):
        list(own.dataloader("test"))
    model = SchemaModel(Array(Number("v"), name="ev", max_length=2), batch_size=2, strict=True)
    own = StreamingDataModule(model, **about, test=".", num_workers=0)
    with pytest.raises(SchemaMismatchError, match=rf"'none' .*\({file}, line 2\).*bad_values"):
        list(own.dataloader("test"))
    engine = EngineOptions(bad_values="mask")
    own = StreamingDataModule(model, **about, test=".", num_workers=0, engine=engine)
    (batch,) = own.dataloader("test")
    assert batch.valid.tolist() == [True, False]
    assert batch["record/ev/v"].state.tolist() == [[[0, 2]], [[3, 3]]]


@pytest.mark.parametrize("path", ["auto", "rows"])
@pytest.mark.parametrize(("odd", "text"), ODD, ids=[json.dumps(odd) for odd, _ in ODD])
def test_strict_makes_it_a_misfit(odd: dict[str, Any], text: str, path: str) -> None:
    own = schema(strict=True)
    own.path = path
    records = [GOOD, odd, *FINE]
    address, _, _ = text.partition(":")
    expected = rf"record 1: {address}: .* stands where .* \(strict=True\)"
    with pytest.raises(SchemaMismatchError, match=expected):
        list(penstock.DataLoader(records, own, batch_size=5))
    loader = penstock.DataLoader(records, own, batch_size=5, on_error="mask")
    (batch,) = loader
    assert batch.valid.tolist() == [True, False, True, True, True]
    assert (loader.stats()["bad_records"], loader.stats()["odd_records"]) == (1, 0)


def test_strict_is_saved_with_a_model(tmp_path: Path) -> None:
    for strict in (True, False):
        SchemaModel(Number("x"), batch_size=2, strict=strict).save(tmp_path / "model.json")
        assert SchemaModel.load(tmp_path / "model.json").strict is strict
        assert load_schema(tmp_path / "model.json").for_split("test").strict is strict
    with pytest.raises(OptionError, match="strict=1: expected True or False"):
        Schema(Number("x"), strict=1)  # type: ignore[arg-type]


def test_a_query_into_the_record_itself_is_no_fault_of_records() -> None:
    records = [{"x": 1}]
    for leaf in (
        Number("x", query="[*][*].x"),
        Number("x", query="[*][0].x"),
        Array(Number("x", query="[*]"), name="l"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loader = penstock.DataLoader(records, Schema(leaf), batch_size=1)
            list(loader)
        assert loader.stats()["odd_records"] == 0


def test_rows_that_do_not_count_are_not_odd() -> None:
    records = [{"ev": "no", "x": "bad"}, {"ev": [], "x": 1}]
    own = Schema(Array(Number("v"), name="ev"), Number("x"))
    loader = penstock.DataLoader(records, own, batch_size=2, on_error="mask")
    list(loader)
    assert loader.stats()["odd_records"] == 0


# Labels.


@pytest.mark.parametrize("leaf", [Category, Set])
def test_a_vocabulary_of_texts_and_numbers_warns_once_with_both(leaf: Any) -> None:
    records = [{"k": "x"}, {"k": 1}, {"k": "1"}, {"k": 2}]
    own = Schema(leaf("k", max_vocab_size=8))
    loader = penstock.DataLoader(records, own, batch_size=1, epochs=2)
    with pytest.warns(UserWarning, match="record/k: .*'x', which is a text, and 1, ") as caught:
        list(loader)
    assert len(caught) == 1
    assert own.state_dict()["vocabularies"]["record/k"] == ["x", 1, "1", 2]
    with pytest.warns(UserWarning, match="record/k: .*'x', which is a text, and 1, "):
        fit_vocabulary(Schema(leaf("k", max_vocab_size=8)), records, order="first")


def test_fit_vocabulary_names_odd_values() -> None:
    own = Schema(Array(Category("k"), name="ev"))
    with pytest.warns(UserWarning, match="record/ev/k: 'no' stands where a list"):
        assert fit_vocabulary(own, [{"ev": "no"}]) == {"record/ev/k": 0}
