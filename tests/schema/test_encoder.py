"""A schema keeps the contract of encoders, and its batches are those of other libraries."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import torch

import penstock
from penstock.errors import OptionError
from penstock.schema import Array, Category, DateParts, Number, Schema, Set, Text, check_batch
from penstock.schema._field import LeafField
from tests.batch.encoder_contract import EncoderContract, plain
from tests.schema.both_paths import both

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.batch import Encoder

RECORDS = [
    {"x": 1.5, "k": "a", "s": ["p", "q"], "at": "2024-01-01", "t": [{"n": 1}, {"n": None}]},
    {"x": None, "k": "b", "s": [], "at": None, "t": []},
    {"x": 3.0, "k": "a", "s": None, "at": "2024-02-03T04:05", "t": [{"n": 4}]},
    {"x": 0.0, "k": None, "s": ["q"], "at": "1969-12-31T23:59:59", "t": None},
]


def schema() -> Schema:
    return Schema(
        Number("x", p_mask=0.4),
        Category("k", max_vocab_size=4, target=True),
        Set("s", max_vocab_size=3),
        DateParts("at", dateparts=["hour_of_day"]),
        Array(Number("n", p_prune=0.5), name="t", max_length=2),
    )


class TestSchema(EncoderContract):
    @pytest.fixture
    def encoder(self) -> Encoder:
        encoder = schema().bind(penstock.open(pa.Table.from_pylist(RECORDS)))[1]
        encoder.interprocess_encoding_context["record/k"].reserve(["a", "b"], learn=True)
        encoder.interprocess_encoding_context["record/s"].reserve(["p", "q"], learn=True)
        return encoder

    @pytest.fixture
    def columns(self, encoder: Encoder) -> pa.RecordBatch:
        return penstock.open(pa.Table.from_pylist(RECORDS)).read(range(4), encoder.fields)

    def rows(self, value: Any) -> list[Any]:
        found = value.tensors()
        parts = [found["state"], found["trainable"], *_leaves(found)]
        return [*zip(*map(plain, parts), strict=True)]

    @pytest.fixture(autouse=True)
    def _plain_fields(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let fields compare by their values."""
        monkeypatch.setattr(
            LeafField, "decoded", lambda one: [*map(plain, _leaves(one.tensors()))], raising=False
        )


def _leaves(parts: Any) -> list[Any]:
    found = []
    for one in parts.values():
        found += _leaves(one) if isinstance(one, dict) else [one]
    return found


def test_a_batch_becomes_a_tensordict_and_an_arrow_table() -> None:
    (batch,) = penstock.DataLoader(RECORDS, schema(), batch_size=4)
    held = batch.as_tensordict()
    assert held.batch_size == torch.Size([4])
    assert torch.equal(held["record/x", "state"], batch["record/x"].state)
    hours = batch["record/at"].content["hour_of_day"]
    assert torch.equal(held["record/at", "content", "hour_of_day"], hours)
    assert torch.equal(held["record/k", "targets", "content"], batch["record/k"].targets["content"])
    table = pa.table(batch)
    assert table["record/x"].to_pylist()[1]["state"] == batch["record/x"].state[1].tolist()
    assert table["record/at"].to_pylist()[0]["content"] == {"hour_of_day": hours[0].tolist()}


@pytest.mark.parametrize("context", ["spawn", "fork", "forkserver"])
def test_workers_of_every_kind_make_the_same_batches(context: str) -> None:
    def run(**options: Any) -> list[Any]:
        loader = penstock.DataLoader(RECORDS * 4, schema(), batch_size=4, seed=1, **options)
        return [[*map(plain, _leaves(one.tensors()))] for batch in loader for one in batch.values()]

    found = run(num_workers=2, multiprocessing_context=context)
    assert str(found) == str(run(num_workers=0))


def test_an_error_names_leaf_record_and_file(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"x": 1}\n{"x": "no number"}\n')
    with pytest.raises(ValueError, match="record/x") as raised:
        list(penstock.DataLoader(str(path), Schema(Number("x")), batch_size=2, num_workers=0))
    text = "\n".join([str(raised.value), *raised.value.__notes__])
    assert "record 1" in text
    assert str(path) in text


@pytest.mark.filterwarnings("ignore:the vocabulary of")
def test_a_loader_for_predictions_brings_the_records() -> None:
    own = schema().for_split("predict")
    unlabelled = [{key: record[key] for key in record if key != "k"} for record in RECORDS]
    for batch in penstock.DataLoader(unlabelled, own, batch_size=3):
        check_batch(own, batch, "predict")
        assert batch["metadata"] == [[unlabelled[number]] for number in batch.ids.tolist()]
        assert batch.to("cpu")["metadata"] == batch["metadata"]
    bad = [{"x": 1}, {"x": {}}, {"x": 2}]
    split = Schema(Number("x")).for_split("predict")
    (batch,) = penstock.DataLoader(bad, split, batch_size=3, on_error="mask")
    assert batch["metadata"] == [[bad[0]], None, [bad[2]]]


def test_records_are_encoded_without_a_loader() -> None:
    own = schema()
    batch = own.encode([[RECORDS[0]], [RECORDS[1]]])
    check_batch(own, batch, "predict")
    assert batch["metadata"] == [[RECORDS[0]], [RECORDS[1]]]
    assert own.state_dict()["vocabularies"]["record/k"] == []
    again = own.encode([{"y": 2}], " Validate ", lambda record: {"x": record["y"]})
    assert again["record/x"].targets["content"].tolist() == [[2]]
    for several in ([RECORDS[0], RECORDS[1]], []):
        with pytest.raises(TypeError, match=r"a record is a dict, not .* \(number 1\)"):
            own.encode([[RECORDS[0]], several])
    with pytest.raises(TypeError, match="preprocess"):
        own.encode([{"x": 1}], "train", lambda _: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="strata"):
        own.encode([{"x": 1}], "training")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a folder with a tokenizer that is trained here, and the tokenizer itself."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    trained = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="<unk>"))
    trained.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.WordLevelTrainer(special_tokens=["<unk>", "<end>"])
    trained.train_from_iterator(["a red fox", "a blue fox and a cat"], trainer)
    # Without a token for padding: that of the end is used.
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained, unk_token="<unk>", eos_token="<end>"
    )
    folder = tmp_path_factory.mktemp("tokenizer")
    fast.save_pretrained(folder)
    return folder, trained, fast


@pytest.mark.parametrize("given", ["folder", "tokenizers", "transformers"])
def test_texts_go_through_a_tokenizer(given: str, tokenizer: Any) -> None:
    folder, trained, fast = tokenizer
    own = {"folder": None, "tokenizers": trained, "transformers": fast}[given]
    leaf = Text("b", model_name=str(folder), max_length=4, tokenizer=own)
    texts = ["a red fox", None, "a blue fox and a cat", "a red fox"]
    field = both([{"b": one} for one in texts], leaf)["record/b"]
    assert field.state.tolist() == [[0], [1], [0], [0]]
    assert field.content["attention_mask"].sum(-1).tolist() == [[3], [0], [4], [3]]
    ids, mask = field.content["input_ids"], field.content["attention_mask"]
    words = [trained.token_to_id(word) for word in ("a", "red", "fox")]
    assert ids[0, 0][:3].tolist() == ids[3, 0][:3].tolist() == words
    assert ids[2, 0].tolist() == trained.encode(texts[2]).ids[:4]
    assert not ids[1].any()
    copy = pickle.loads(pickle.dumps(Schema(leaf))).encode([{"b": texts[0]}])["record/b"]
    assert torch.equal(copy.content["input_ids"], ids[:1])
    assert torch.equal(copy.content["attention_mask"], mask[:1])


def test_a_tokenizer_without_tokens_for_padding_and_the_end_pads_with_its_separator(
    tokenizer: Any,
) -> None:
    transformers = pytest.importorskip("transformers")
    own = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer[1], sep_token="<end>")
    leaf = Text("b", model_name="m", max_length=5, tokenizer=own)
    ids = both([{"b": "a fox"}], leaf)["record/b"].content["input_ids"][0, 0]
    assert ids[2:].tolist() == [tokenizer[1].token_to_id("<end>")] * 3


def test_threads_share_a_tokenizer_among_texts_of_different_lengths(tokenizer: Any) -> None:
    leaves = [
        Text(f"b{length}", model_name="m", max_length=length, tokenizer=tokenizer[2])
        for length in (4, 9)
    ]
    texts = [f"a red fox and a blue cat {number}" for number in range(400)]

    def ids(leaf: Text) -> Any:
        return leaf.from_values(texts).content["input_ids"]

    expected = [ids(leaf) for leaf in leaves]
    with ThreadPoolExecutor(4) as threads:
        for number, found in enumerate(threads.map(ids, leaves * 20)):
            assert (found == expected[number % 2]).all()


def test_a_tokenizer_is_loaded_once_for_all_schemas(tokenizer: Any, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(tokenizer[0], folder)
    leaf = Text("b", model_name=str(folder), max_length=3)
    first = Schema(leaf).encode([{"b": "a fox"}])["record/b"]
    shutil.rmtree(folder)
    again = Schema(Text("c", model_name=str(folder), max_length=3)).encode([{"c": "a fox"}])
    assert torch.equal(again["record/c"].content["input_ids"], first.content["input_ids"])


def test_a_tokenizer_by_name_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install.*penstock\[tokenizers\]"):
        Schema(Text("b", model_name="some/model")).encode([{"b": "a"}])


def test_a_column_that_a_table_lacks_is_named_once_with_the_nearest_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        Schema(Number("price"), Number("prise")).bind(penstock.open(pa.table({"price": [1.0]})))
    (line,) = [one.message for one in caplog.records]
    assert "no field 'prise' in these records: did you mean 'price'? Leaves that read it" in line
    Schema(Number("x")).bind(penstock.open([{"y": 1}]))  # Later records may have it.
    assert len(caplog.records) == 1


def test_a_query_into_more_lists_than_arrays_is_named(caplog: pytest.LogCaptureFixture) -> None:
    deep = Schema(Number("x", query="[*].a[*].x"), Set("s", query="[*].a[*].s"))
    deep.bind(None)
    assert "record/x: [*].a[*].x goes into 1 lists, and 0 arrays" in caplog.text
    assert "record/s: " not in caplog.text


def test_a_path_and_a_rule_of_nulls_that_are_unknown_are_refused() -> None:
    for name in ("path", "null_semantics"):
        own = Schema(Number("x"))
        setattr(own, name, "row")
        with pytest.raises(OptionError, match=f"{name}='row'"):
            penstock.DataLoader(RECORDS, own, batch_size=1)


def test_large_vocabularies_are_saved_and_loaded() -> None:
    own = Schema(Category("k", max_vocab_size=10**6, p_unavailable=0))
    labels = [f"label {number}" for number in range(10**5)]
    own.interprocess_encoding_context["record/k"].reserve(labels, learn=True)  # type: ignore[index]
    again = Schema(Category("k", max_vocab_size=10**6, p_unavailable=0))
    again.load_state_dict(json.loads(json.dumps(own.state_dict())))
    assert again.encode([{"k": labels[-1]}])["record/k"].content.tolist() == [[10**5 - 1]]
