"""Documents in parts: the parts are tokenised one by one, and some of them are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.index.tokenizers._encoded import EncodedParts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.index.tokenizers._encoded import Tokenizer


class PartsTokenizer:
    """Tokenises documents of parts, each a text and whether its tokens are trained.

    A part begins with a token of its own, as an answer does where a model writes it. The special
    tokens of a `tokenizers` tokenizer are put once around the document.

    >>> from penstock.index.tokenizers._tokenizer import tokenizer_of
    >>> letters = tokenizer_of(lambda text: list(text.encode()))
    >>> encoded = PartsTokenizer(letters).encode([[("a", False), ("bc", True)], [("d", False)]])
    >>> encoded.ids.tolist(), encoded.lengths.tolist()
    ([97, 98, 99, 100], [3, 1])
    >>> encoded.trained.tolist(), encoded.ends.tolist()
    ([False, True, True, False], [True, False])
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        plain = getattr(tokenizer, "without_special", None)
        self._inner, self._before, self._after = (tokenizer, [], []) if plain is None else plain()

    def encode(self, documents: Sequence[Sequence[tuple[str, bool]]]) -> EncodedParts:
        """Return the tokens of all documents, and which of them are trained."""
        parts = [(n, text, flag) for n, some in enumerate(documents) for text, flag in some if text]
        found = self._inner.encode([text for _, text, _ in parts])
        ends = np.array([bool(some) and some[-1][1] for some in documents], np.bool_)
        owners = np.fromiter((n for n, _, _ in parts), np.int64, len(parts))
        flags = np.fromiter((flag for _, _, flag in parts), np.bool_, len(parts))
        ids, trained = np.asarray(found.ids), np.repeat(flags, found.lengths)
        lengths = np.zeros(len(documents), np.int64)
        np.add.at(lengths, owners, found.lengths)
        for around, is_before in ((self._before, True), (self._after, False)):
            borders = np.cumsum(lengths) - (lengths if is_before else 0)
            places = np.repeat(borders, len(around))
            ids = np.insert(ids, places, np.tile(np.array(around, np.int64), len(documents)))
            same = np.zeros(len(documents), np.bool_) if is_before else ends
            trained = np.insert(trained, places, np.repeat(same, len(around)))
            lengths += len(around)
        return EncodedParts(ids, lengths, trained, ends)
