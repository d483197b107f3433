"""data-forager 0.2.0 and Penstock make the same token files, and open each other's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.utils.data

from penstock import DataLoader
from penstock.datasets import TokensDataset
from penstock.index import create_tokenize_and_index_jsonl_text_func
from tests.index.text_samples import sample_texts, trained_bpe
from tests.index.tokenize_samples import left_of, tokenise, tokens_in, write_texts

ROOT = Path(__file__).parents[2]
FILES = {
    "a2.jsonl": sample_texts(20, 1),
    "A10.jsonl": [],
    "b.jsonl": ["short"],
    "sub/c.jsonl": sample_texts(30, 2),
}


def forager(*arguments: object) -> str:
    program = [sys.executable, "-m", "tests.index.tokenize_forager", *map(str, arguments)]
    return subprocess.run(
        program, check=True, capture_output=True, text=True, timeout=60, cwd=ROOT
    ).stdout


@pytest.mark.parametrize("size", [None, 40])
def test_both_make_the_same_files(size: int | None, tmp_path: Path) -> None:
    for name in ("theirs", "ours"):
        write_texts(tmp_path / name, FILES)
    forager("tokenize", tmp_path / "theirs", size or 0)
    tokenise(tmp_path / "ours", sample_size=size, unit_bytes=700)
    for path in sorted(path for path in (tmp_path / "theirs").rglob("*") if path.is_file()):
        ours = tmp_path / "ours" / path.relative_to(tmp_path / "theirs")
        assert ours.read_bytes() == path.read_bytes(), path.name
    theirs = tokens_in(tmp_path / "theirs")
    assert theirs[:3] == tokens_in(tmp_path / "ours")[:3]
    assert theirs.ends is None
    assert left_of(tmp_path / "ours") == []


@pytest.mark.parametrize("template", [None, "Text: {text}"])
def test_our_tokens_open_there(template: str | None, tmp_path: Path) -> None:
    write_texts(tmp_path, FILES)
    tokenise(tmp_path, sample_size=40, packing="best_fit", pad_idx=0, template=template)
    stream = np.frombuffer(b"".join(tokens_in(tmp_path).bins.values()), "<u2")
    assert sorted(json.loads(forager("read", tmp_path))) == sorted(stream.reshape(-1, 40).tolist())


@pytest.mark.parametrize(
    "loader_of", [DataLoader, torch.utils.data.DataLoader], ids=["penstock", "torch"]
)
def test_the_seeds_second_use_case_runs_with_its_imports_changed(
    loader_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where it is used: the library takes seconds to import.
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    eos = "<|endoftext|>"
    PreTrainedTokenizerFast(tokenizer_object=trained_bpe(), eos_token=eos).save_pretrained(
        tmp_path / "trained"
    )
    texts = sample_texts(200, words=200)
    write_texts(tmp_path / "corpus", {"a.jsonl": texts[:150], "sub/b.jsonl": texts[150:]})
    monkeypatch.chdir(tmp_path)

    tokenizer = AutoTokenizer.from_pretrained("trained")

    # One-time: tokenize JSONL text and create fixed-length samples
    indexer = create_tokenize_and_index_jsonl_text_func(
        input_base_path="./corpus",
        tokenizer_func=tokenizer.encode,
        eos_idx=tokenizer.eos_token_id,
        sample_size=1024,  # Fixed context length
    )
    indexer()
    # Creates: ./corpus/tokenized-samples/*.bin, ./corpus/index/*
    assert len(list(Path("./corpus/tokenized-samples").glob("*.bin"))) == 2
    assert Path("./corpus/index/sample_locations.bin").exists()

    # Training: fixed-length token sequences ready for NTP
    dataset = TokensDataset.create_from_index_on_filesystem(
        "./corpus",
        token_dtype=np.uint16,
    )
    loader = loader_of(dataset, batch_size=8, shuffle=True)

    seen = []
    for batch in loader:
        # batch shape: (8, 1024) — ready for next-token prediction
        input_ids = batch[:, :-1]
        labels = batch[:, 1:]
        assert (input_ids[:, 1:] == labels[:, :-1]).all()
        assert batch.shape == (min(8, len(dataset) - len(seen)), 1024)
        seen += batch.tolist()
    ended = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in texts]
    stream = [token for tokens in ended for token in tokens]
    whole = [stream[at : at + 1024] for at in range(0, len(stream) - 1023, 1024)]
    assert len(whole) > 8
    assert sorted(seen) == sorted(whole)
