"""Values that do not fit a leaf: raised by default, in every format, or masked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import MalformedLineError, SchemaMismatchError
from penstock.lightning import (
    Array,
    Category,
    EngineOptions,
    Entity,
    Number,
    PolarsDataModule,
    SchemaModel,
    Set,
)
from penstock.schema import check_batch
from tests.lightning.streaming_files import lines, module, write

if TYPE_CHECKING:
    from pathlib import Path

PLACES = {
    "ndjson": ("a.jsonl", "line 2"),
    "json": ("a.json", "line 1"),
    "csv": ("a.csv", "line 3"),
    "parquet": ("a.parquet", "row 1"),
    "feather": ("a.feather", "row 1"),
    "orc": ("a.orc", "row 1"),
    "avro": ("a.avro", "row 1"),
}
"""Of each suffix a file, and where its second record lies."""
RECORDS = [{"x": text, "y": label} for text, label in zip(("1", "n.a.", "3"), "abc", strict=True)]


def folder(path: Path, suffix: str) -> Path:
    write(path / PLACES[suffix][0], RECORDS, suffix)
    return path


def small_model(**options: Any) -> SchemaModel:
    return SchemaModel(
        Number("x", **options),
        Category("y", max_vocab_size=4, p_unavailable=0, target=True),
        batch_size=3,
    )


def batches(path: Path, suffix: str, model: SchemaModel, **options: Any) -> list[Any]:
    return list(trained(path, suffix, model, **options))


def trained(path: Path, suffix: str, model: SchemaModel, **options: Any) -> Any:
    own = module(path, suffix, model=model, train=".", replacement=False, **options)
    return own.dataloader("train")


@pytest.mark.parametrize("on_error", [None, "skip", "raise"])
@pytest.mark.parametrize("suffix", PLACES)
def test_a_misfit_raises_with_file_place_address_and_value(
    tmp_path: Path, suffix: str, on_error: str | None
) -> None:
    file, place = PLACES[suffix]
    expected = rf"record/x: 'n.a.' is no number.*{file}, {place}\).*bad_values='mask'"
    with pytest.raises(SchemaMismatchError, match=expected) as caught:
        batches(folder(tmp_path, suffix), suffix, small_model(), engine={"on_error": on_error})
    assert vars(caught.value)["value"] == "'n.a.'"


@pytest.mark.parametrize("path", ["auto", "rows"])
@pytest.mark.parametrize("suffix", PLACES)
def test_a_masked_misfit_is_hidden_and_nothing_of_it_is_learnt_or_predicted(
    tmp_path: Path, suffix: str, path: str
) -> None:
    model = small_model(p_mask=0.5)
    engine = {"bad_values": "mask", "path": path}
    loader = trained(folder(tmp_path, suffix), suffix, model, engine=engine)
    (batch,) = loader
    assert batch.valid.tolist() == [True, False, True]
    for address in ("record/x", "record/y"):
        assert batch[address].state[1].tolist() == [3]
        assert batch[address].content[1].tolist() == [0]
        assert batch[address].trainable[1].tolist() == [False]
        assert batch[address].targets["state"].tolist() == [[0], [3], [0]]
    assert batch["record/y"].targets["content"].tolist() == [[0], [0], [1]]
    assert model.interprocess_encoding_context["record/y"].snapshot() == ["a", "c"]
    assert model.statistics["record/x"].count == 2  # type: ignore[index]
    assert loader.loader.stats()["bad_records"] == 1
    check_batch(model, batch, "train")


def test_bad_lines_and_bad_values_are_decided_apart(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(RECORDS[:1]) + b"{\n" + lines(RECORDS[1:]))
    for engine, error in (
        ({}, MalformedLineError),
        ({"bad_values": "mask"}, MalformedLineError),
        ({"on_error": "skip"}, SchemaMismatchError),
    ):
        with pytest.raises(error) as caught:
            batches(tmp_path, "ndjson", small_model(), engine=engine)
        remedy = "on_error='skip'" if error is MalformedLineError else "bad_values='mask'"
        assert remedy in str(caught.value)
    engine = {"on_error": "skip", "bad_values": "mask"}
    found = batches(tmp_path, "ndjson", small_model(), engine=engine)
    assert found[0].valid.tolist() == [True, False, False]
    assert [len(batch) for batch in found] == [3, 1]


@pytest.mark.parametrize("sharding", ["file", "chunk", "record"])
@pytest.mark.parametrize("buffer", [1, 3])
def test_a_misfit_behind_a_preprocessor_is_named_with_the_line_of_its_record(
    tmp_path: Path, sharding: str, buffer: int
) -> None:
    write(tmp_path / "0.jsonl", RECORDS[:1])
    own = {"preprocessor": dict, "sharding": sharding, "observation_buffer_size": buffer}
    with pytest.raises(SchemaMismatchError, match=r"'n.a.' is no number.*a\.jsonl, line 2\)"):
        batches(folder(tmp_path, "ndjson"), "ndjson", small_model(), **own)


def test_a_row_in_place_of_a_bad_one_has_no_values_in_any_kind_of_leaf(tmp_path: Path) -> None:
    model = SchemaModel(
        Number("x"),
        Set("s", max_vocab_size=3, p_prune=0.5),
        Array(Number("n", p_mask=0.5), Entity("e"), name="items", max_length=2),
        Number("fields", query="[*].length(keys(@)) | [0]"),
        batch_size=2,
    )
    good = {"x": 1, "s": ["a", "b"], "items": [{"n": 1, "e": "u"}, {"n": 2, "e": "v"}]}
    some = [good, {**good, "x": "no"}, {**good, "x": "no"}, {"x": {}}]
    (tmp_path / "a.jsonl").write_bytes(lines(some))
    mixed, bad = batches(tmp_path, "ndjson", model, engine={"bad_values": "mask"})
    assert (mixed.valid.tolist(), bad.valid.tolist()) == ([True, False], [False, False])
    for batch in (mixed, bad):
        for address in model.hyperparameters.active_requests:
            field = batch[address]
            assert (field.state[~batch.valid] == 3).all()
            assert not field.content[~batch.valid].any()
            assert not field.trainable[~batch.valid].any()
        check_batch(model, batch, "train")
    assert mixed["record/fields"].content[0].tolist() == [3]


def test_a_frame_with_a_misfit_raises_or_masks() -> None:
    table = pa.table({"x": ["1", "n.a."]})
    for on_error in (None, "skip"):
        engine = EngineOptions(seed=1, on_error=on_error)
        own = PolarsDataModule(small_model(), train=table, num_workers=0, engine=engine)
        with pytest.raises(SchemaMismatchError, match=r"record 1: record/x: 'n.a.'.*bad_values"):
            list(own.dataloader("train"))
    with pytest.raises(ValueError, match="bad_values='skip': expected 'raise' or 'mask'"):
        EngineOptions(bad_values="skip")


# Words for nothing.


@pytest.mark.parametrize("path", ["auto", "rows"])
def test_words_for_nothing_are_null_in_columns_of_numbers_of_csv(tmp_path: Path, path: str) -> None:
    (tmp_path / "a.csv").write_text('n,f,k\n1,1.5,a\nN/A,NA,NA\n3,nan,c\n"NULL",2,\n')
    (tmp_path / "b.csv").write_text("n,f,k\n#N/A,null,x\n")
    model = SchemaModel(
        Number("n"), Number("f"), Category("k", max_vocab_size=9, p_unavailable=0), batch_size=5
    )
    (batch,) = batches(tmp_path, "csv", model, engine={"path": path})
    assert batch["record/n"].state.flatten().tolist() == [0, 1, 0, 1, 1]
    assert batch["record/f"].state.flatten().tolist() == [0, 1, 1, 0, 1]
    assert model.interprocess_encoding_context["record/k"].snapshot() == ["a", "NA", "c", "", "x"]
    engine = {"path": path, "format_options": {"null_values": ["-"]}}
    with pytest.raises(SchemaMismatchError, match=r"'N/A' is no number.*a\.csv, line 3"):
        batches(tmp_path, "csv", SchemaModel(Number("n"), batch_size=5), engine=engine)


def test_words_for_nothing_are_misfits_in_columns_of_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\nN/A\nthree\n")
    pq.write_table(pa.table({"n": ["1", "N/A"]}), tmp_path / "a.parquet")
    for suffix, place in (("csv", "line 3"), ("parquet", "row 1")):
        own = SchemaModel(Number("n"), batch_size=4)
        given = module(tmp_path, suffix, model=own, test=rf"{suffix}$")
        with pytest.raises(SchemaMismatchError, match=rf"'N/A' is no number.*{place}"):
            list(given.dataloader("test"))
