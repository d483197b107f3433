"""Vocabularies from one pass over what a data module trains with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from torch.utils.data import IterableDataset

import penstock
from penstock.errors import OptionError
from penstock.lightning import (
    CustomDataModule,
    PolarsDataModule,
    StreamingDataModule,
    fit_vocabulary,
)
from penstock.schema import Category, Number, SchemaModel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORDS = [{"n": number, "c": label} for number, label in enumerate("abbcccdddd")]


class Rows(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(RECORDS)


def without_d(record: dict[str, Any], mark: str) -> Iterator[dict[str, Any]]:
    if record["c"] != "d":
        yield {**record, "c": record["c"] + mark}
        yield {**record, "c": "new"}


def modules(model: SchemaModel, root: Path, **options: Any) -> list[Any]:
    with penstock.writer(root / "train", max_records_per_shard=3) as out:
        out.write(RECORDS)
    options = {"model": model, "sample_rate": 0.5, "observation_buffer_size": 4, **options}
    return [
        PolarsDataModule(train=pl.DataFrame(RECORDS), replacement=True, **options),
        CustomDataModule(train=Rows(), num_workers=2, **options),
        StreamingDataModule(root=root, suffix="ndjson", train=r"/train/", **options),
    ]


def test_a_vocabulary_is_learnt_from_all_records_of_training_once(tmp_path: Path) -> None:
    model = SchemaModel(Number("n"), Category("c", max_vocab_size=4), batch_size=2)
    words = model.interprocess_encoding_context["record/c"]
    for module in modules(model, tmp_path):
        assert fit_vocabulary(module) == {"record/c": 4}
        assert words.snapshot() == ["d", "c", "b", "a"]
        assert words.is_frozen
        assert model.statistics["record/n"].mean == pytest.approx(4.5)
        fit_vocabulary(module, order="first", min_count=2)
        assert words.snapshot() == ["b", "c", "d"]


def test_the_preprocessor_makes_the_labels(tmp_path: Path) -> None:
    model = SchemaModel(Number("n"), Category("c", max_vocab_size=9), batch_size=2)
    for module in modules(model, tmp_path, preprocessor=without_d, mark="!"):
        fit_vocabulary(module)
        labels = model.interprocess_encoding_context["record/c"].snapshot()
        assert labels == ["new", "c!", "b!", "a!"]


def test_without_a_split_of_training_there_is_nothing_to_learn() -> None:
    model = SchemaModel(Number("n"), batch_size=2)
    with pytest.raises(OptionError, match=r"has no train="):
        fit_vocabulary(PolarsDataModule(model, validate=pl.DataFrame(RECORDS)))


def test_a_data_module_has_the_records_itself() -> None:
    model = SchemaModel(Category("c", max_vocab_size=9), batch_size=2)
    data = PolarsDataModule(model, train=pl.DataFrame(RECORDS))
    with pytest.raises(OptionError, match="the data module has the records: leave source out"):
        fit_vocabulary(data, RECORDS)


def test_labels_without_room_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    model = SchemaModel(Category("c", max_vocab_size=3), batch_size=2)
    assert fit_vocabulary(model, RECORDS) == {"record/c": 3}
    text = "record/c: there are 4 labels, and max_vocab_size=3 keeps the first of them"
    assert text in caplog.text
    caplog.clear()
    fit_vocabulary(model, RECORDS[:6])
    assert not caplog.records
