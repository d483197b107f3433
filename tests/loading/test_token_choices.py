"""What `Tokens` makes of each kind of source, and what it refuses; through the real tokeniser."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock import DataLoader, Tokens
from penstock.errors import ChangedSourceError, OptionError
from penstock.index import create_tokenize_and_index_jsonl_text_func

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source

EOS = 0
TEXTS = ["abc", "defgh", "i", "jklmnop"]


def tokens(folder: Path, **options: Any) -> Source:
    """Return the texts as tokens, which are their letters."""
    folder.mkdir()
    lines = [json.dumps({"text": text}) + "\n" for text in TEXTS]
    (folder / "a.jsonl").write_text("".join(lines))
    create_tokenize_and_index_jsonl_text_func(
        lambda text: list(text.encode()), EOS, folder, **options
    )()
    return penstock.open(folder)


def batch_of(source: Source, encode: Tokens) -> Any:
    (batch,) = DataLoader(source, encode, batch_size=100)
    return batch


def test_documents_without_a_token_between_them_are_kept_apart(tmp_path: Path) -> None:
    source = tokens(tmp_path / "t")
    batch = batch_of(source, Tokens(16))
    assert bytes(batch["input_ids"][0].tolist()) == b"abcdefghijklmnop"
    ends = [place for place, label in enumerate(batch["labels"][0].tolist()) if label == -100]
    assert ends == [2, 7, 8, 15]
    assert batch["cu_seqlens"].tolist() == [0, 3, 8, 9, 16]
    assert "cu_seqlens" not in batch_of(source, Tokens(16, boundaries=False))


def test_documents_with_a_token_between_them_are_one_stream(tmp_path: Path) -> None:
    source = tokens(tmp_path / "t", sample_size=4)
    batch = batch_of(source, Tokens(20))
    assert batch["labels"][0].tolist()[:-1] == batch["input_ids"][0].tolist()[1:]
    assert "cu_seqlens" not in batch
    assert batch_of(source, Tokens(20, boundaries=True))["cu_seqlens"].tolist() == [
        0, 4, 10, 12, 20
    ]  # fmt: skip


def test_packed_rows_keep_their_borders_beside_others(tmp_path: Path) -> None:
    packed = tokens(tmp_path / "packed", sample_size=8, packing="best_fit")
    others = tokens(tmp_path / "others", sample_size=8)
    batch = batch_of(others + packed, Tokens(8))
    alone = batch_of(packed, Tokens(8))
    rows = len(alone)
    assert batch["labels"][-rows:].tolist() == alone["labels"].tolist()
    assert batch["position_ids"][-rows:].tolist() == alone["position_ids"].tolist()


def test_tokens_that_fill_no_window_are_told(tmp_path: Path) -> None:
    loader = DataLoader(tokens(tmp_path / "t", sample_size=4), Tokens(16), batch_size=1)
    assert "the last 4 fill no window" in str(loader.explain())


def test_another_length_is_no_change_of_files(tmp_path: Path) -> None:
    source = tokens(tmp_path / "t", sample_size=4)
    state = DataLoader(source, Tokens(8), batch_size=1).state_dict()
    with pytest.raises(ChangedSourceError, match="give Tokens the length, stride and shift"):
        DataLoader(source, Tokens(4), batch_size=1).load_state_dict(state)


def test_records_with_a_field_of_tokens_are_rows() -> None:
    source = penstock.open([{"ids": [1, 2, 3]}, {"ids": [4, 5]}])
    batch = batch_of(source, Tokens(3, field="ids"))
    assert batch["input_ids"].tolist() == [[1, 2, 3], [4, 5, 0]]
    assert batch["labels"].tolist() == [[2, 3, -100], [5, -100, -100]]


@pytest.mark.parametrize(
    ("encode", "match"),
    [
        (Tokens(4), "penstock tokenize"),
        (Tokens(4, field="text", stride=2), "Leave the stride out"),
        (Tokens, r"is a class: give one of its objects, as in Tokens\(…\)"),
    ],
    ids=["no field", "a stride", "no length"],
)
def test_what_cannot_be_is_refused_at_once(encode: Any, match: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n')
    with pytest.raises(OptionError, match=match):
        DataLoader(tmp_path, encode, batch_size=1)


def test_boundaries_are_a_flag_or_a_token() -> None:
    with pytest.raises(OptionError, match="boundaries='yes': expected"):
        Tokens(4, boundaries="yes")  # type: ignore[arg-type]
