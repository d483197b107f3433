"""Texts, as the tokens of a tokenizer."""

from __future__ import annotations

import inspect
import os
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_

from penstock._lazy import require
from penstock.index import tokenizer_of
from penstock.schema._nodes import Leaf, check_count, check_text
from penstock.schema._values import BadSlotError, SlotValues, numbered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_in_use = threading.Lock()
"""A tokenizer of `transformers` keeps the length that it was last called with."""


def _after_fork_in_child() -> None:
    global _in_use  # noqa: PLW0603 (the thread that holds it is not here)
    _in_use = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Text(Leaf):
    """A text: `input_ids` and `attention_mask`, int64[max_length] each.

    Args:
        name: As for every leaf.
        model_name: The tokenizer: a folder, or a name that `transformers` finds on this machine.
        max_length: Tokens; longer texts are cut, shorter ones padded.
        tokenizer: The tokenizer itself, in place of the one that `model_name` names: one of
            `transformers` or `tokenizers`, a function from a text to its token ids, or one that
            is called as those of `transformers` are, with texts and `padding=`.
        revision: Which revision of `model_name`.
        local_files_only: False lets `transformers` download it.
    """

    kind = "text"
    guess = pa.string()
    model_name: str
    max_length: int

    def __init__(  # noqa: PLR0913 (options by name)
        self,
        name: str,
        *,
        model_name: str,
        max_length: int = 128,
        tokenizer: Any = None,
        revision: str | None = None,
        local_files_only: bool = True,
        **shared: Any,
    ) -> None:
        label = f"Text {name!r}"
        check_text(label, "model_name", model_name)
        check_count(label, "max_length", max_length)
        own = {"model_name": model_name, "max_length": max_length, "tokenizer": tokenizer}
        more: dict[str, Any] = {"revision": revision, "local_files_only": local_files_only}
        super().__init__(name, **own, **more, **shared)

    def wanted(self, found: pa.DataType) -> pa.DataType | None:
        return found if is_.is_string(found) or is_.is_large_string(found) else None

    def from_values(self, values: Sequence[Any]) -> SlotValues:
        for slot, value in enumerate(values):
            if value is not None and not isinstance(value, str):
                raise BadSlotError(slot, f"{value!r} is no text")
        texts, codes = numbered(values)
        ids = np.zeros((len(texts) + 1, self.max_length), np.int64)
        lengths = np.zeros(len(texts) + 1, np.int64)
        if texts:
            ids[:-1], lengths[:-1] = self._tokens(texts)
        mask = (np.arange(self.max_length) < lengths[:, None]).astype(np.int64)
        # The last row is that of null.
        return SlotValues(codes >= 0, {"input_ids": ids[codes], "attention_mask": mask[codes]})

    def _tokens(self, texts: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the tokens of texts, padded, and how many each text has."""
        given = vars(self)
        tokenizer = given["tokenizer"]
        if tokenizer is None:
            tokenizer = _named(self.model_name, given["revision"], given["local_files_only"])
        if _pads(tokenizer):
            if getattr(tokenizer, "pad_token", "") is None:
                tokenizer.pad_token = tokenizer.eos_token or tokenizer.sep_token
            with _in_use:
                made = tokenizer(
                    texts, padding="max_length", truncation=True, max_length=self.max_length
                )
            mask = np.array(made["attention_mask"], np.int64)
            return np.array(made["input_ids"], np.int64), mask.sum(axis=1)
        tokens, counts = tokenizer_of(tokenizer).encode(texts)[:2]
        rows = np.repeat(np.arange(len(texts)), counts)
        places = np.arange(len(tokens)) - np.repeat(np.cumsum(counts) - counts, counts)
        ids = np.zeros((len(texts), self.max_length), np.int64)
        kept = places < self.max_length
        ids[rows[kept], places[kept]] = np.asarray(tokens)[kept]
        return ids, np.minimum(counts, self.max_length)

    def empty(self, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        zeros = np.zeros((*shape, self.max_length), np.int64)
        return {"input_ids": zeros, "attention_mask": zeros.copy()}


@cache
def _named(name: str, revision: str | None, local_files_only: bool) -> Any:  # noqa: FBT001 (a key of the cache)
    transformers = require("transformers", extra="tokenizers", purpose=f"the tokenizer {name!r}")
    options = {} if revision is None else {"revision": revision}
    return transformers.AutoTokenizer.from_pretrained(
        name, local_files_only=local_files_only, **options
    )


def _pads(tokenizer: Any) -> bool:
    """Whether it pads and cuts by itself, and is called as those of `transformers` are."""
    if not callable(tokenizer) or inspect.ismethod(tokenizer):
        return False
    options = inspect.signature(tokenizer).parameters.values()
    return any(one.name == "padding" or one.kind == one.VAR_KEYWORD for one in options)
