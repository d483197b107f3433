"""data-forager 0.2.0 and Penstock make the same token files, and open each other's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.index.text_samples import sample_texts
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


def test_our_tokens_open_there(tmp_path: Path) -> None:
    write_texts(tmp_path, FILES)
    tokenise(tmp_path, sample_size=40, packing="best_fit", pad_idx=0)
    stream = np.frombuffer(b"".join(tokens_in(tmp_path).bins.values()), "<u2")
    assert sorted(json.loads(forager("read", tmp_path))) == sorted(stream.reshape(-1, 40).tolist())
