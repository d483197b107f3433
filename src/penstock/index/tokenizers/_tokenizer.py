"""One interface for all tokenizers: texts in, token ids of all of them out."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from penstock.errors import OptionError
from penstock.index.tokenizers._encoded import Tokenizer, encoded, input_ids
from penstock.index.tokenizers._libraries import EachText, known_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.index.tokenizers._encoded import Encoded

# Matches the text of an annotation: its names may be imported for type checkers only.
_MANY_TEXTS = re.compile(
    r"(?:[\w.]+\.)?(?:list|List|tuple|Tuple|Sequence|Collection|Iterable)\[str(?:, ?\.\.\.)?\]"
)


def tokenizer_of(what: object, *, batched: bool | None = None) -> Tokenizer:
    """Return a tokenizer that gives the ids which `what` gives text by text.

    Args:
        what: A function of one text, which returns its ids as a list, an array, an object with
            `.ids` or a mapping with `input_ids`; a function of a list of texts, which returns one
            of those for each; an object of `tokenizers`, `tiktoken`, `sentencepiece` or
            `transformers`, or a method of one such as `tokenizer.encode`.
        batched: Whether a function takes a list of texts; None: if its first parameter is
            annotated so (`list[str]`, `Sequence[str]` …). Known libraries need no `batched`.

    >>> encoded = tokenizer_of(lambda text: [ord(letter) for letter in text]).encode(
    ...     ["ab", "", "c"]
    ... )
    >>> encoded.ids.tolist(), encoded.lengths.tolist()
    ([97, 98, 99], [2, 0, 1])
    """
    if Tokenizer in type(what).__mro__:
        return cast("Tokenizer", what)
    known = known_tokenizer(what)
    if known is not None:
        return known
    function = what if callable(what) else getattr(what, "encode", None)
    # A name has an `encode`, too.
    if not callable(function) or isinstance(what, str):
        raise OptionError(
            f"tokenizer_func={what!r}: expected a function that returns the token ids of a text, "
            "such as tokenizer.encode, or a tokenizer of tokenizers, tiktoken, sentencepiece or "
            "transformers."
        )
    if _takes_many(function) if batched is None else batched:
        return _AllTexts(function)
    return EachText(function)


class _AllTexts(Tokenizer):
    """Calls a function with a list of texts."""

    def __init__(self, function: Callable[[list[str]], object]) -> None:
        self._function = function

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts, and how many each has."""
        if not texts:
            return encoded(())
        returned = input_ids(self._function(list(texts)))
        # As many characters as texts would pass for as many results.
        is_many = isinstance(returned, Iterable) and not isinstance(returned, str | bytes)
        results = list(cast("Iterable[object]", returned)) if is_many else []
        if len(results) != len(texts):
            what = f"{len(results)} results" if is_many else repr(returned)
            raise OptionError(
                f"The tokenizer returned {what} for a list of {len(texts)} texts: expected the "
                "token ids of each text. Say batched=False if it takes one text at a time."
            )
        return encoded(results)


def _takes_many(function: Callable[..., object]) -> bool:
    """Whether the first parameter of a function is annotated as many texts."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False  # Not written in Python.
    annotation = next((parameter.annotation for parameter in parameters), "")
    text = annotation if isinstance(annotation, str) else str(annotation)
    # In quotes where it was written so beside the future import.
    return _MANY_TEXTS.fullmatch(text.strip("'\" ")) is not None
