"""Files that are no tokenizer, told before anything is tokenised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import CorruptFileError
from penstock.index import load_tokenizer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("tokenizer.json", b"\x00\xff\xfe\x80", "no text in UTF-8"),
        ("tokenizer.json", b"", "tokenizers can read"),
        ("bpe.model", b"", "it is empty"),
        ("bpe.model", b"\x00\xff\xfe\x80", "sentencepiece can read"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_named(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CorruptFileError, match=rf"{name} is no tokenizer.*{words}") as raised:
        load_tokenizer(tmp_path / name)
    assert raised.value.path == str(tmp_path / name)
