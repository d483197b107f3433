"""An encoding of tiktoken: many texts in one call, joined by a special token of its own.

Special tokens divide a text before anything else looks at it, so the ids on either side of one are
those of the texts by themselves.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.index.tokens._ids import Tokenizer, flat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.index.tokens._ids import Encoded

_JOINED_LETTERS = 128 << 10
"""Of texts in one call: more only costs memory."""


class TiktokenArrays(Tokenizer):
    """A `tiktoken.Encoding`."""

    def __init__(self, encoding: Any, method: str, options: Mapping[str, object]) -> None:  # noqa: ANN401 (of a library that is not imported)
        self._encoding, self._method, self._options = encoding, method, options
        # Lists of the same ids take a fifth more time.
        self._array_options = options
        if method == "encode_ordinary":
            self._array_options = {"disallowed_special": ()}
        # Where other special tokens are allowed, one of those could reach over a seam.
        can_join = self._array_options.keys() <= {"disallowed_special"}
        self._seam = _seam_of(encoding) if can_join else None

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts, and how many each has."""
        if self._seam is None:
            return flat(self._one_by_one(texts))
        return flat([ids for some in _groups(texts) for ids in self._joined(some, self._seam)])

    def _joined(self, texts: list[str], seam: _Seam) -> list[NDArray[Any]]:
        seams = len(texts) - 1
        whole = seam.text.join(texts)
        if not seams or whole.count(seam.text) != seams:
            return self._one_by_one(texts)
        try:
            ids = self._encoding.encode_to_numpy(
                whole, allowed_special={seam.text}, **self._array_options
            )
        except ValueError:  # Some text is refused, or has half of a surrogate pair.
            return self._one_by_one(texts)
        borders = [-1, *np.flatnonzero(ids == seam.token).tolist(), len(ids)]
        if len(borders) != seams + 2:  # An ordinary token has the same number.
            return self._one_by_one(texts)
        return [ids[before + 1 : end] for before, end in pairwise(borders)]

    def _one_by_one(self, texts: Sequence[str]) -> list[NDArray[Any]]:
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> NDArray[Any]:
        try:
            ids: NDArray[Any] = self._encoding.encode_to_numpy(text, **self._array_options)
        except UnicodeEncodeError:
            # Half of a surrogate pair; the others replace it.
            return np.array(getattr(self._encoding, self._method)(text, **self._options), np.int64)
        return ids


class _Seam(NamedTuple):
    """What stands between texts that are encoded together."""

    text: str
    token: int


def _seam_of(encoding: Any) -> _Seam | None:  # noqa: ANN401 (of a library that is not imported)
    """Return a special token that is found wherever it stands between two texts, if there is one.

    It is if it cannot begin in itself, and if no other special token can begin where it does.
    """
    names: set[str] = encoding.special_tokens_set
    for text in sorted(names):
        is_alone = not any(
            other.startswith(text) or text.startswith(other) for other in names if other != text
        )
        begins_in_itself = any(text.startswith(text[at:]) for at in range(1, len(text)))
        if text and is_alone and not begins_in_itself:
            (token,) = encoding.encode(text, allowed_special={text}, disallowed_special=())
            return _Seam(text, token)
    return None


def _groups(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield texts that are encoded together."""
    some: list[str] = []
    size = 0
    for text in texts:
        some.append(text)
        size += len(text)
        if size >= _JOINED_LETTERS:
            yield some
            some, size = [], 0
    if some:
        yield some
