"""The writer of predictions: every row once, in files that are whole, with types that stay."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import weakref
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import lightning
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import penstock
from penstock.errors import ObjectExistsError, OptionError, SchemaMismatchError
from penstock.lightning import PolarsDataModule, StreamingDataModule, Writer
from penstock.lightning._parts import next_number
from penstock.lightning._predictions import column, known_types
from penstock.schema import Array, Category, DateParts, Number, Schema, SchemaModel, Set, Vector
from tests.integration.launching import ROOT, run_by_lightning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tests.servers.s3_server import S3Server

# Lightning 2.6 uses a class that torch has marked as old.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")

RECORDS = [{"n": number, "name": f"r{number}"} for number in range(10)]
SCHEMA = Schema(
    Number("n"),
    Category("kind", max_vocab_size=5, topk=[2, 4]),
    Set("tags", max_vocab_size=4),
    Set("sure", max_vocab_size=4, threshold=0.5),
    Vector("v", n_dim=1),
    Array(Number("price"), Category("sku"), name="items", max_length=2),
    DateParts("at", dateparts=["day_of_week"]),
)


class Model(lightning.LightningModule):
    """Returns what a function makes of a batch and its number."""

    def __init__(self, predict: Callable[[Any, int], Any], schema: Schema | None = SCHEMA) -> None:
        super().__init__()
        self.predict = predict
        if schema is not None:
            self.hyperparameters = schema.hyperparameters

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return self.predict(batch, batch_idx)


class Batches:
    """A loader of one's own, without a length."""

    def __init__(self, *batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def loader(records: Any = RECORDS, batch_size: int = 4, **options: Any) -> penstock.DataLoader:
    schema = Schema(Number("n")).for_split("predict")
    return penstock.DataLoader(records, schema, batch_size=batch_size, num_workers=0, **options)


def predict(writer: Writer, model: Model, batches: Iterable[Any] | None = None) -> None:
    trainer(writer).predict(model, loader() if batches is None else batches)


def trainer(writer: Writer) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[writer],
    )


def doubled(batch: Any, _: int = 0) -> dict[str, Any]:
    return {"predictions": {"record/n": {"content": batch["record/n"].content * 2}}}


def constant(**values: Any) -> Callable[[Any, int], Any]:
    """Return a function that predicts the same for every row, by name of the leaf."""
    return lambda batch, _: {
        "predictions": {
            f"record/{name}": {"content": _repeated(value, len(batch))}
            for name, value in values.items()
        }
    }


def _repeated(value: Any, rows: int) -> Any:
    if isinstance(value, dict):
        return {key: _repeated(one, rows) for key, one in value.items()}
    return [value] * rows


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for name in names(folder) for row in pq.read_table(folder / name).to_pylist()]


def content(folder: Path, address: str) -> list[Any]:
    return [row["predictions"][address]["content"] for row in rows(folder)]


def content_type(path: Path, address: str) -> pa.DataType:
    return pq.read_schema(path).field("predictions").type.field(address).type.field("content").type


# Rows.


def test_each_row_has_its_record_its_prediction_and_its_number(tmp_path: Path) -> None:
    predict(Writer(tmp_path), Model(doubled))
    assert names(tmp_path) == ["rank-00000-00000.parquet"]
    assert rows(tmp_path) == [
        {
            "inputs": record,
            "predictions": {"record/n": {"content": number * 2.0}},
            "source": None,
            "row": number,
        }
        for number, record in enumerate(RECORDS)
    ]


def test_payloads_of_every_kind_are_row_by_row_and_typed_by_the_tree(tmp_path: Path) -> None:
    def kinds(batch: Any, _: int) -> dict[str, Any]:
        n = batch["record/n"].content
        best = [{"label": 7, "probability": 0.6}, {"label": True, "probability": 0.4}]
        return {
            "predictions": {
                "record/n": {"content": n, "state": {"valued": n, "null": [0.0] * len(n)}},
                "record/kind": {
                    "content": {
                        "value": n[:, 0].int().tolist(),
                        "probability": n,
                        "topk": [best] * len(n),
                    }
                },
                "record/tags": {"content": {"x": n, 5: n + 1}},
                "record/sure": {"content": {"x": n > 4}},
                "record/v": {"content": n[..., None]},
                "record/items/price": {"content": n[..., None].expand(-1, 1, 2)},
                "record/items/sku": {"content": {"value": [["a", None]] * len(n)}},
                "record": {"embedding": n[..., None].expand(-1, 1, 3).bfloat16()},
            }
        }

    predict(Writer(tmp_path), Model(kinds))
    row = rows(tmp_path)[6]["predictions"]
    assert row["record/n"]["state"]["valued"] == 6
    assert row["record/kind"]["content"] == {
        "value": "6",
        "probability": 6.0,
        "topk": [{"label": "7", "probability": 0.6}, {"label": "true", "probability": 0.4}],
    }
    assert row["record/tags"]["content"] == [("x", 6.0), ("5", 7.0)]
    assert row["record/sure"]["content"] == [("x", True)]
    assert row["record/v"]["content"] == [6.0]
    assert row["record/items/price"]["content"] == [6.0, 6.0]
    assert row["record/items/sku"]["content"]["value"] == ["a", None]
    assert row["record"]["embedding"] == [6.0] * 3
    path = tmp_path / "rank-00000-00000.parquet"
    assert content_type(path, "record/n") == pa.float64()
    assert content_type(path, "record/v").value_type == pa.float32()
    assert content_type(path, "record/sure").item_type == pa.bool_()


def test_a_first_batch_of_nulls_fixes_no_type(tmp_path: Path) -> None:
    def late(batch: Any, number: int) -> dict[str, Any]:
        some = number > 0
        return {
            "predictions": {
                "record/n": {"content": [0.5 if some else None] * len(batch)},
                "mine": {"note": ["x" if some else None] * len(batch)},
                "lists": {"of": [["x"] if some else []] * len(batch)},
            }
        }

    records = [{"n": 1, "late": None if n < 4 else 0.5, "e": {}, "l": []} for n in range(10)]
    predict(Writer(tmp_path, flush_every_n_batches=1), Model(late), loader(records))
    found = rows(tmp_path)
    assert [row["inputs"]["late"] for row in found] == [None] * 4 + [0.5] * 6
    assert [row["predictions"]["record/n"]["content"] for row in found] == [None] * 4 + [0.5] * 6
    assert [row["predictions"]["mine"]["note"] for row in found] == [None] * 4 + ["x"] * 6
    assert [row["predictions"]["lists"]["of"] for row in found] == [[]] * 4 + [["x"]] * 6
    assert content_type(tmp_path / "rank-00000-00000.parquet", "record/n") == pa.float64()
    assert len(penstock.open(tmp_path)) == 10


def test_sets_may_have_other_labels_in_every_row(tmp_path: Path) -> None:
    def some(batch: Any, number: int) -> dict[str, Any]:
        found = [{f"label{number}": True} for _ in range(len(batch))]
        return {"predictions": {"record/sure": {"content": found}}}

    predict(Writer(tmp_path), Model(some))
    assert content(tmp_path, "record/sure") == [[(f"label{n // 4}", True)] for n in range(10)]


def test_labels_of_any_type_are_written_as_texts(tmp_path: Path) -> None:
    def labels(batch: Any, _: int) -> dict[str, Any]:
        some = [1, True, "1", 2.5, None, np.int64(7), "é", False, 0, 10**18][: len(batch)]
        return {"predictions": {"record/kind": {"content": {"value": some}}}}

    predict(Writer(tmp_path), Model(labels), loader(batch_size=10))
    found = [one["value"] for one in content(tmp_path, "record/kind")]
    assert found == ["1", "true", "1", "2.5", None, "7", "é", "false", "0", str(10**18)]


def test_labels_alone_are_the_value_of_a_category(tmp_path: Path) -> None:
    predict(Writer(tmp_path), Model(constant(kind="red", name="plain")))
    assert content(tmp_path, "record/kind")[0] == {
        "value": "red",
        "probability": None,
        "topk": None,
    }
    assert content(tmp_path, "record/name")[0] == "plain"  # No category of the tree.


def test_a_vocabulary_may_be_smaller_than_topk_or_empty(tmp_path: Path) -> None:
    none = {"value": None, "probability": 0.0, "topk": []}
    predict(Writer(tmp_path), Model(constant(kind=none, tags={})))
    assert content(tmp_path, "record/kind") == [none] * 10
    assert content(tmp_path, "record/tags") == [[]] * 10


def test_without_predictions_the_column_is_null(tmp_path: Path) -> None:
    def sometimes(batch: Any, number: int) -> Any:
        return doubled(batch) if number == 1 else {"predictions": {}}

    predict(Writer(tmp_path), Model(sometimes))
    assert [row["predictions"] is None for row in rows(tmp_path)] == [True] * 4 + [False] * 4 + [
        True
    ] * 2


def test_records_without_a_field_are_rows(tmp_path: Path) -> None:
    batch = {"metadata": [[{}], {}, None]}
    predict(Writer(tmp_path), Model(lambda *_: {}), Batches(batch))
    assert rows(tmp_path) == [dict.fromkeys(("inputs", "predictions", "source", "row"))] * 2


def test_without_a_tree_types_are_those_of_the_first_values(tmp_path: Path) -> None:
    values = {"record/n": torch.arange(3.0), "other": {"nested": {"a": [1, None, 3]}}}
    batch = {"metadata": [[{"n": n}] for n in range(3)]}
    predict(Writer(tmp_path), Model(lambda *_: values, None), Batches(batch))
    assert [row["predictions"] for row in rows(tmp_path)] == [
        {"record/n": {"content": float(n)}, "other": {"nested": {"a": (1, None, 3)[n]}}}
        for n in range(3)
    ]


def test_a_model_or_a_function_may_turn_outputs_into_payloads(tmp_path: Path) -> None:
    class Writing(Model):
        def write(self, predictions: Any) -> Any:
            return {"record/n": {"content": predictions[0]}}

    def listed(batch: Any, _: int) -> Any:
        return {"predictions": [batch["record/n"].content, "other"]}

    predict(Writer(tmp_path / "a"), Writing(listed))
    predict(Writer(tmp_path / "b", write=lambda of: {"record/n": of[0] * 2}), Writing(listed))
    assert content(tmp_path / "a", "record/n") == list(map(float, range(10)))
    assert content(tmp_path / "b", "record/n") == [2.0 * n for n in range(10)]


def test_a_postprocessor_returns_predictions_or_changes_them(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def change(context: dict[str, Any], predictions: dict[str, Any]) -> None:
        seen.append(context)
        predictions["record/n"]["seen"] = [one[0]["name"] for one in context["metadata"]]

    predict(Writer(tmp_path / "a", postprocessor=change), Model(doubled))
    predict(Writer(tmp_path / "b", 1, lambda *_: {"x": {}}), Model(doubled))
    assert [row["predictions"]["record/n"]["seen"] for row in rows(tmp_path / "a")] == [
        record["name"] for record in RECORDS
    ]
    assert [row["predictions"] for row in rows(tmp_path / "b")] == [None] * 10
    assert [context["batch_idx"] for context in seen] == [0, 1, 2]
    assert set(seen[0]) == {
        "input", "batch", "metadata", "batch_indices", "batch_idx", "dataloader_idx"
    }  # fmt: skip
    assert seen[1]["batch_indices"] == [4, 5, 6, 7]


def test_types_may_come_from_the_tree_of_a_data_module(tmp_path: Path) -> None:
    class Data(lightning.LightningDataModule):
        hyperparameters = SCHEMA.hyperparameters

        def predict_dataloader(self) -> Any:
            return loader()

    model = Model(constant(kind={"value": 3}), None)
    trainer(Writer(tmp_path)).predict(model, datamodule=Data())
    assert [(row["source"], row["row"]) for row in rows(tmp_path)] == [(None, n) for n in range(10)]
    assert content(tmp_path, "record/kind")[0]["value"] == "3"


def twice(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield record
    yield {**record, "n": -record["n"]}


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("preprocessor", [None, twice])
def test_rows_have_the_file_and_the_row_of_their_record(preprocessor: Any, tmp_path: Path) -> None:
    root = tmp_path / "data"
    for name, count in (("a", 7), ("b", 1), ("c", 5)):
        with penstock.writer(root / f"{name}.jsonl") as out:
            out.write([{"n": number + 1, "name": name} for number in range(count)])
    model = SchemaModel(Number("n"), batch_size=2)
    data = StreamingDataModule(
        model, root, "ndjson", predict=r"\.jsonl$", sharding="chunk", chunk_batch_size=3,
        num_workers=2, preprocessor=preprocessor,
        observation_buffer_size=9, sample_rate=0.5, replacement=True,  # Not for predictions.
    )  # fmt: skip
    for folder, ordered in ((tmp_path / "parts", False), (tmp_path / "whole", True)):
        writer = Writer(folder, 1, ordered=ordered)
        trainer(writer).predict(Model(doubled, None), datamodule=data)
    whole = rows(tmp_path / "whole")
    expected = [
        (str(root / f"{name}.jsonl"), row, sign * (row + 1))
        for name, count in (("a", 7), ("b", 1), ("c", 5))
        for row in range(count)
        for sign in ((1,) if preprocessor is None else (1, -1))
    ]
    assert [(one["source"], one["row"], one["inputs"]["n"]) for one in whole] == expected
    found = [one["predictions"]["record/n"]["content"] for one in whole]
    assert found == [2.0 * n for _, _, n in expected]
    parts = rows(tmp_path / "parts")
    assert parts != whole  # Batches of two workers come in turn.
    assert sorted(map(str, parts)) == sorted(map(str, whole))


def test_rows_have_the_files_of_the_loader_that_read_them(tmp_path: Path) -> None:
    model, loaders = SchemaModel(Number("n"), batch_size=2), []
    for name, count in (("a", 3), ("b", 2)):
        with penstock.writer(tmp_path / "data" / f"{name}.jsonl") as out:
            out.write([{"n": number} for number in range(count)])
        data = StreamingDataModule(
            model, tmp_path / "data", "ndjson", predict=rf"{name}\.jsonl$", num_workers=0
        )
        loaders.append(data.dataloader("predict"))

    class OfSeveral(Model):
        def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            return super().predict_step(batch, batch_idx)

    # Without a data module, and one loader that knows no files.
    folder = tmp_path / "parts"
    trainer(Writer(folder)).predict(OfSeveral(doubled, None), [*loaders, loader(RECORDS[:1])])
    places = [(str(tmp_path / "data" / "a.jsonl"), row) for row in range(3)]
    places += [(str(tmp_path / "data" / "b.jsonl"), row) for row in range(2)]
    assert [(one["source"], one["row"]) for one in rows(folder)] == [*places, (None, 0)]


def test_inputs_have_the_types_of_their_frame(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "n": pl.Series(range(5), dtype=pl.Int8),
            "late": pl.Series([None, None, None, None, 0.5], dtype=pl.Float32),
            "at": [datetime(2024, 1, day + 1, tzinfo=UTC) for day in range(5)],
        }
    )
    data = PolarsDataModule(SchemaModel(Number("n"), batch_size=2), dataframe=frame, num_workers=0)
    trainer(Writer(tmp_path, 1)).predict(Model(doubled, None), datamodule=data)
    types = [pq.read_schema(tmp_path / name).field("inputs").type for name in names(tmp_path)]
    at = pa.timestamp("us", "UTC")
    assert types == [pa.struct([("n", pa.int8()), ("late", pa.float32()), ("at", at)])] * 3
    assert [row["inputs"] for row in rows(tmp_path)] == frame.to_dicts()


def test_lightning_keeps_no_outputs(tmp_path: Path) -> None:
    made: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def looking(batch: Any, _: int) -> Any:
        alive.append(sum(one() is not None for one in made))
        output = doubled(batch)
        made.append(weakref.ref(output["predictions"]["record/n"]["content"]))
        return output

    model, batches = Model(looking), loader(batch_size=1)
    assert trainer(Writer(tmp_path)).predict(model, batches, return_predictions=True) is None
    assert max(alive) <= 1


# Errors.


@pytest.mark.parametrize(
    ("values", "fact"),
    [
        ({"record/n": ["a"] * 4}, "predictions of 'record/n', key 'content': record 4: .*'a'"),
        ({"record/n": [1.0] * 3}, "'record/n', key 'content': it has 3 rows, and the batch 4"),
        ({"record/n": torch.tensor(1.0)}, "'record/n', key 'content': .* has no rows"),
        ({"record/kind": {"content": {"best": [1] * 4}}}, "'record/kind', key .* it has 'best'"),
        ({"record/kind": torch.ones(4)}, "'record/kind', key 'content': .*does not fit struct"),
        ({"record/n": {"content": {"a": [1] * 4}}}, "'record/n', .* is of type double"),
        ({"mine": {"key": [0.5] * 4}}, "'mine', key 'key': record 4: .* 0.5.* int64"),
    ],
)
def test_predictions_that_do_not_fit_are_named_by_address_and_key(
    values: dict[str, Any], fact: str, tmp_path: Path
) -> None:
    def wrong(batch: Any, number: int) -> Any:
        return values if number else {"mine": {"key": [1] * len(batch)}}

    with pytest.raises(SchemaMismatchError, match=fact):
        predict(Writer(tmp_path, 1), Model(wrong))
    assert names(tmp_path) == ["rank-00000-00000.parquet"]


def test_outputs_and_batches_of_another_form_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"predictions are list.*Writer\(write=…\)"):
        predict(Writer(tmp_path / "a"), Model(lambda *_: {"predictions": [1]}))
    with pytest.raises(OptionError, match="no 'metadata'"):
        predict(Writer(tmp_path / "b"), Model(lambda *_: {}), Batches({"x": torch.ones(2)}))


def test_options_that_cannot_work_are_refused(tmp_path: Path) -> None:
    for options, fact in (
        ({"overwrite": "yes"}, "overwrite='yes': expected one of 'error', 'replace', 'append'"),
        ({"flush_every_n_batches": 0}, "flush_every_n_batches=0: expected a whole number, 1"),
        ({"flush_every_n_batches": True}, "flush_every_n_batches=True: expected"),
        ({"ordered": True, "overwrite": "append"}, "ordered=True merges the parts of one run"),
    ):
        with pytest.raises(OptionError, match=fact):
            Writer(tmp_path, **options)  # type: ignore[arg-type]
    for name in ("postprocessor", "write"):
        with pytest.raises(TypeError, match=f"{name}='f': expected a function"):
            Writer(tmp_path, **{name: "f"})  # type: ignore[arg-type]


# Files.


def test_parts_are_published_while_predictions_go_on(tmp_path: Path) -> None:
    published: list[int] = []

    def looking(batch: Any, _: int) -> Any:
        published.append(len(rows(tmp_path)))
        return doubled(batch)

    tmp_path.mkdir(exist_ok=True)
    predict(Writer(tmp_path, flush_every_n_batches=2), Model(looking), loader(batch_size=2))
    assert published == [0, 0, 4, 4, 8]
    assert names(tmp_path) == [f"rank-00000-0000{part}.parquet" for part in range(3)]
    assert len(rows(tmp_path)) == 10


def test_a_part_is_written_by_row_groups_and_a_wider_type_begins_another(tmp_path: Path) -> None:
    text = "x" * (1 << 20)
    records = [{"n": n, "text": text, "z": n if n < 40 else n / 2} for n in range(48)]

    def flowing() -> Iterator[dict[str, Any]]:
        yield from records

    predict(Writer(tmp_path), Model(doubled), loader(flowing))
    files = [pq.ParquetFile(tmp_path / name) for name in names(tmp_path)]
    assert [file.metadata.num_rows for file in files] == [32, 16]
    assert [file.num_row_groups for file in files] == [2, 1]
    assert [row["inputs"]["z"] for row in rows(tmp_path)] == [one["z"] for one in records]
    merged = Writer(tmp_path, ordered=True, overwrite="replace")
    predict(merged, Model(doubled), loader(flowing, shuffle=True))
    assert names(tmp_path) == ["predictions.parquet"]
    assert [row["inputs"]["z"] for row in rows(tmp_path)] == [one["z"] for one in records]


def test_files_of_an_earlier_run_stop_a_run_before_its_first_batch(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    predict(Writer(tmp_path / "sub"), Model(doubled))
    ran: list[int] = []
    with pytest.raises(ObjectExistsError, match=r"first rank-00000-00000\.parquet"):
        predict(Writer(tmp_path / "sub"), Model(lambda *_: ran.append(1)))
    assert ran == []
    predict(Writer(tmp_path), Model(doubled))


def test_a_folder_that_takes_no_files_stops_a_run_at_its_first_batch(tmp_path: Path) -> None:
    seen: list[int] = []

    def counted(batch: Any, number: int) -> Any:
        seen.append(number)
        return doubled(batch)

    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError, match="taken"):
        predict(Writer(tmp_path / "taken" / "parts"), Model(counted))
    assert seen == [0]


def test_append_adds_parts_behind_all_others(tmp_path: Path) -> None:
    for _ in range(2):
        predict(Writer(tmp_path, 2, overwrite="append"), Model(doubled))
    assert names(tmp_path) == [f"rank-00000-0000{part}.parquet" for part in range(4)]
    assert [row["row"] for row in rows(tmp_path)] == [*range(10)] * 2


@pytest.mark.parametrize("ordered", [False, True])
def test_replace_removes_files_of_earlier_runs_when_the_new_ones_are_whole(
    ordered: bool,  # noqa: FBT001 (a parameter of the test)
    tmp_path: Path,
) -> None:
    def failing(batch: Any, number: int) -> Any:
        if number == 2:
            raise ZeroDivisionError
        return doubled(batch)

    predict(Writer(tmp_path, ordered=not ordered), Model(doubled))
    before = names(tmp_path)
    again = {"flush_every_n_batches": 1, "overwrite": "replace", "ordered": ordered}
    with pytest.raises(ZeroDivisionError):
        predict(Writer(tmp_path, **again), Model(failing))  # type: ignore[arg-type]
    assert set(before) < set(names(tmp_path))
    predict(Writer(tmp_path, **again), Model(constant(n=1)))  # type: ignore[arg-type]
    assert content(tmp_path, "record/n") == [1.0] * 10
    assert len(names(tmp_path)) == (1 if ordered else 3)


@pytest.mark.filterwarnings("ignore:Total length of `list`:UserWarning")
@pytest.mark.parametrize("batches", [[], Batches()], ids=["no loader", "no batch"])
def test_a_run_without_batches_writes_nothing(batches: Any, tmp_path: Path) -> None:
    predict(Writer(tmp_path / "a", ordered=True), Model(doubled), batches)
    assert not (tmp_path / "a").exists()
    predict(Writer(tmp_path / "b"), Model(doubled))
    predict(Writer(tmp_path / "b", overwrite="replace"), Model(doubled), batches)
    assert names(tmp_path / "b") == []


def test_a_writer_serves_several_runs(tmp_path: Path) -> None:
    writer = Writer(tmp_path, overwrite="replace")
    one = trainer(writer)
    for _ in range(2):
        one.predict(Model(doubled), loader())
    assert len(rows(tmp_path)) == 10


def test_a_killed_run_leaves_its_published_parts_and_a_draft_that_the_next_one_clears(
    tmp_path: Path,
) -> None:
    plan = {
        "killed_at": 5,
        "text_bytes": 4 << 20,
        "writers": {"out": {"flush_every_n_batches": 3}},
        "loader": {"batch_size": 2},
    }
    program = [sys.executable, "-m", "tests.integration.writer_program", tmp_path]
    done = subprocess.run([*program, json.dumps(plan)], cwd=ROOT, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder = tmp_path / "out"
    draft, part = names(folder)
    assert draft.startswith(".rank-00000-00001.parquet.")
    assert pq.read_table(folder / part).num_rows == 6
    predict(Writer(folder, overwrite="replace"), Model(doubled))
    assert names(folder) == ["rank-00000-00001.parquet"]
    assert len(rows(folder)) == 10


def test_two_ranks_write_every_record_once(tmp_path: Path) -> None:
    plan = {
        "writers": {"parts": {"flush_every_n_batches": 2}, "whole": {"ordered": True}},
        "loader": {"global_batch_size": 4, "shuffle": True},
        "trainer": {"devices": 2, "strategy": "ddp"},
        "module": {"files": {}, "ordered": {"ordered": True}},
    }
    with penstock.writer(tmp_path / "data" / "only.jsonl") as out:
        out.write(RECORDS)
    run_by_lightning("writer_program", tmp_path, plan)
    parts = [f"rank-0000{rank}-0000{part}.parquet" for rank in range(2) for part in range(2)]
    assert names(tmp_path / "parts") == parts
    assert names(tmp_path / "whole") == ["predictions.parquet"]
    whole = rows(tmp_path / "whole")
    assert [(row["row"], row["inputs"]["n"]) for row in whole] == [(n, n) for n in range(11)]
    assert content(tmp_path / "whole", "record/n") == [2.0 * n for n in range(11)]
    assert sorted(rows(tmp_path / "parts"), key=lambda row: row["row"]) == whole
    # The other rank has no file, and so no batch.
    assert names(tmp_path / "files") == ["rank-00000-00000.parquet"]
    assert [row["inputs"] for row in rows(tmp_path / "ordered")] == RECORDS
    assert rows(tmp_path / "files") == rows(tmp_path / "ordered")


def test_a_bucket_holds_predictions_as_a_folder_does(
    s3_server: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.storage_options.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    path = f"s3://{bucket}/out"
    predict(Writer(path, flush_every_n_batches=2), Model(doubled))
    keys = [f"out/rank-00000-0000{part}.parquet" for part in range(2)]
    assert s3_server.list_keys(bucket) == keys
    with pytest.raises(ObjectExistsError):
        predict(Writer(path), Model(doubled))
    predict(Writer(path, ordered=True, overwrite="replace"), Model(doubled), loader(shuffle=True))
    assert s3_server.list_keys(bucket) == ["out/predictions.parquet"]
    (tmp_path / "a.parquet").write_bytes(s3_server.get(bucket, "out/predictions.parquet"))
    assert [row["row"] for row in rows(tmp_path)] == [*range(10)]


# Functions.

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, max_side=3)
NUMBERS = hnp.arrays(np.float32, SHAPES, elements=st.integers(-9, 9))


@given(NUMBERS)
def test_an_array_a_tensor_and_a_list_are_one_column_without_axes_of_one(array: Any) -> None:
    squeezed = array.squeeze(tuple(axis for axis in range(1, array.ndim) if array.shape[axis] == 1))
    for values in (array, torch.tensor(array), array.tolist(), [*torch.tensor(array)]):
        assert column(values, None, np.arange(len(array)), "").to_pylist() == squeezed.tolist()


@given(NUMBERS, st.sampled_from([pa.float64(), pa.float32()]))
def test_a_type_keeps_as_many_axes_as_it_has_lists(array: Any, type_: pa.DataType) -> None:
    for _ in range(array.ndim - 1):
        type_ = pa.list_(type_)
    wider = array[:, None, ...]
    found = column(wider, type_, np.arange(len(array)), "")
    assert found.type == type_
    if 1 not in array.shape[1:]:
        assert found.to_pylist() == array.tolist()


@given(st.dictionaries(st.text(), st.lists(st.none() | st.floats(0, 1), min_size=3, max_size=3)))
def test_a_map_by_label_is_a_map_by_row(values: dict[str, list[float | None]]) -> None:
    found = column(values, pa.map_(pa.string(), pa.float64()), np.arange(3), "")
    by_row = [[(label, rows[row]) for label, rows in values.items()] for row in range(3)]
    assert found.to_pylist() == by_row


@given(st.sets(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))))
def test_the_next_number_is_free_for_all_ranks(taken: set[tuple[int, int]]) -> None:
    parts = {f"rank-{rank:05d}-{part:05d}.parquet" for rank, part in taken}
    number = next_number([*parts, "predictions.parquet", "rank-00000-x.parquet"])
    assert number == 1 + max((part for _, part in taken), default=-1)


def test_types_of_a_tree_have_a_list_for_each_array_with_slots() -> None:
    types = known_types(SCHEMA.hyperparameters)
    assert types["record/items/price", "content"] == pa.list_(pa.float64())
    assert types["record/items", "embedding"] == pa.list_(pa.float32())
    assert types["record/tags", "content"] == pa.map_(pa.string(), pa.float64())
    assert ("record/at", "content") not in types
