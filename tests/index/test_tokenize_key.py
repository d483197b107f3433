"""Whether work on tokens is the same as that which was left: its name tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penstock.index import load_tokenizer
from penstock.index.tokenizers._tokenizer import tokenizer_of
from penstock.index.tokens._build import work_key
from penstock.index.tokens._documents import TextField, TokenWork
from tests.index.text_samples import trained_bpe

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


def key(tokenizer: object) -> str | None:
    work = TokenWork(TextField("text"), tokenizer_of(tokenizer), np.dtype("<u2"), 0, skips=False)
    return work_key(work)


MODULE = """
WORDS = {words}

def helper(text):
    return {helper}

def tokens(text, first={first}):
    return [first, *(helper(one) for one in text if one not in {{"b", "c", "d"}}), *WORDS]
"""


def tokens(words: str = "[7]", helper: str = "ord(text)", first: str = "1") -> FunctionType:
    names: dict[str, Any] = {"__name__": "module_of_a_user"}
    exec(MODULE.format(words=words, helper=helper, first=first), names)
    function = names["tokens"]
    assert isinstance(function, FunctionType)
    return function


def test_a_function_has_its_code_in_the_name_and_what_it_uses_of_its_module() -> None:
    keys = [
        key(tokens()),
        key(tokens(words="[8]")),
        key(tokens(helper="ord(text) + 1")),
        key(tokens(helper="[ord(one) for one in text][0]")),
        key(tokens(first="2")),
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert key(tokens()) == keys[0]


def test_a_function_that_is_made_anew_each_time_has_no_name() -> None:
    def outer(number: int) -> Callable[[str], list[int]]:
        return lambda text: [number, len(text)]

    assert key(outer(1)) is None


def with_special(text: str, *, allowed: set[str]) -> list[int]:
    return [int(text in allowed)]


PROGRAM = """
import functools
from tests.index.test_tokenize_key import key, tokens, with_special
words = {"<|endoftext|>", "<|pad|>", "<|im_start|>", "<|im_end|>"}
print(key(functools.partial(with_special, allowed=words)), key(tokens()))
"""


def test_sets_have_no_order_in_any_process() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
    assert "None" not in told.pop()


def test_a_tokenizer_that_is_pickled_by_its_path_has_the_file_in_the_name(tmp_path: Path) -> None:
    tokenizers, path = pytest.importorskip("tokenizers"), tmp_path / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_str(trained_bpe().to_str())  # Others have the same one.
    tokenizer.save(str(path))
    before = key(load_tokenizer(path))
    assert before is not None
    assert key(load_tokenizer(path)) == before
    tokenizer.add_tokens(["penstock"])
    tokenizer.save(str(path))
    assert key(load_tokenizer(path)) != before
