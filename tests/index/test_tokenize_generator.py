"""Token samples line by line: what is wrong is named, and nothing is left."""

from __future__ import annotations

import gc
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from penstock.datasets import TokensDataset
from penstock.errors import MalformedLineError, ObjectExistsError, OptionError
from penstock.index import (
    FileTextLinesIndexer,
    IndexStore,
    TokenizedSampleGenerator,
    get_text_from_jsonl,
)
from tests.index.tokenize_samples import EOS, by_hand, letters, line, tokens_in, write_texts

if TYPE_CHECKING:
    from pathlib import Path


def generator(folder: Path, tokenizer: object = letters, **options: Any) -> Any:
    options = {"base_output_path": folder / "tokenized-samples"} | options
    return TokenizedSampleGenerator(get_text_from_jsonl, tokenizer, EOS, **options)


def index(folder: Path, made: Any, *names: str) -> None:
    FileTextLinesIndexer([str(folder / name) for name in names], IndexStore(folder), made)()


def drafts(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name[0] == "."]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [("{oops", "line 3 is no document"), ('{"a": 1}', "no field 'text'")],
    ids=["json", "field"],
)
def test_a_bad_line_is_named_and_no_draft_is_left(bad: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line("one") + "\n" + f"{bad}\n")
    made = generator(tmp_path)
    with pytest.raises(MalformedLineError, match=reason) as failure:
        index(tmp_path, made, "a.jsonl")
    assert failure.value.line_number == 3
    assert failure.value.path == str(tmp_path / "a.jsonl")
    assert drafts(tmp_path) == []


def test_what_a_store_raises_leaves_no_draft(tmp_path: Path) -> None:
    write_texts(tmp_path, {"a.jsonl": ["one"]})
    made = generator(tmp_path, base_output_path=tmp_path.parent / "elsewhere")
    with pytest.raises(OptionError, match="does not lie below"):
        index(tmp_path, made, "a.jsonl")
    assert drafts(tmp_path.parent / "elsewhere") == []


def test_a_generator_that_is_let_go_leaves_no_draft(tmp_path: Path) -> None:
    made = generator(tmp_path)
    made.prepare(str(tmp_path / "a.jsonl"))
    assert drafts(tmp_path)
    made.prepare(str(tmp_path / "b.jsonl"))
    assert len(drafts(tmp_path)) == 1
    del made
    gc.collect()
    assert drafts(tmp_path) == []


def test_files_of_one_stem_have_their_own_token_files(tmp_path: Path) -> None:
    write_texts(tmp_path, {"x/a.jsonl": ["one"], "y/a.jsonl": ["two"], "y/A.jsonl": ["three"]})
    index(tmp_path, generator(tmp_path), "x/a.jsonl", "y/a.jsonl", "y/A.jsonl")
    assert {name: data[::2] for name, data in tokens_in(tmp_path).bins.items()} == {
        "a-tokenized-samples.bin": b"one",
        "y/a-tokenized-samples.bin": b"two",
        "y/A.jsonl-tokenized-samples.bin": b"three",
    }


def test_remedies_are_arguments_that_there_are(tmp_path: Path) -> None:
    write_texts(tmp_path, {"a.jsonl": ["one"]})
    index(tmp_path, generator(tmp_path), "a.jsonl")
    with pytest.raises(ObjectExistsError, match="base_output_path=") as failure:
        generator(tmp_path).prepare(str(tmp_path / "a.jsonl"))
    assert "overwrite" not in str(failure.value)
    assert "output_base_path" not in str(failure.value)
    wrong = generator(tmp_path, lambda _: [3, -1])
    wrong.prepare(str(tmp_path / "b.jsonl"))
    with pytest.raises(OptionError, match=r"token -1 .*from 0 on") as negative:
        wrong.create_samples(line("one").encode())
    assert "token_dtype=" not in str(negative.value)
    batches = generator(tmp_path, lambda texts: [letters(text) for text in texts], batched=True)
    batches.prepare(str(tmp_path / "b.jsonl"))
    assert len(batches.create_samples(line("one").encode())) == 1


def test_a_second_run_begins_without_what_the_first_one_had_left(tmp_path: Path) -> None:
    made = None
    for name in ("one", "two"):
        folder = tmp_path / name
        write_texts(folder, {"a.jsonl": ["to be"]})
        made = made or generator(folder, sample_size=4, base_output_path=None)
        index(folder, made, "a.jsonl")
        assert tokens_in(folder)[:3] == by_hand({"a.jsonl": ["to be"]}, 4)[:3]
        told = made.tokens_meta()
        assert (told.documents, told.tokens, told.dropped) == (1, 4, 2)


@pytest.mark.parametrize("size", [None, 4])
def test_a_file_that_failed_leaves_nothing_for_the_next_try(
    size: int | None, tmp_path: Path
) -> None:
    made = generator(tmp_path, sample_size=size)
    (tmp_path / "a.jsonl").write_text(line("one two") + "{oops\n")
    with pytest.raises(MalformedLineError):
        index(tmp_path, made, "a.jsonl")
    texts = {"a.jsonl": ["one two", "three"]}
    write_texts(tmp_path, texts)
    (tmp_path / "b.jsonl").write_text("{oops\n")
    with pytest.raises(MalformedLineError):
        index(tmp_path, made, "a.jsonl", "b.jsonl")
    shutil.rmtree(tmp_path / "tokenized-samples")  # As its error says.
    index(tmp_path, made, "a.jsonl")
    assert tokens_in(tmp_path).rows == by_hand(texts, size).rows
    meta = IndexStore(tmp_path).load().meta
    assert meta is not None
    assert meta.tokens is not None
    assert meta.tokens.documents == 2
    TokensDataset.create_from_index_on_filesystem(tmp_path)
