"""The protocol of tokenizers, their results as one flat array of ids, and documents in parts."""

from __future__ import annotations

import reprlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np

from penstock.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")
_INT64_MAX = np.iinfo(np.int64).max


class Encoded(NamedTuple):
    """Token ids of some texts, one text after the other."""

    ids: NDArray[Any]
    """Flat, of any integer dtype."""
    lengths: NDArray[np.int64]
    """int64[texts]: ids of each text."""
    trained: NDArray[np.bool_] | None = None
    """bool[ids]: which of them a model is trained on, of texts in parts."""
    ends: NDArray[np.bool_] | None = None
    """bool[texts]: whether a token that ends the text is trained, likewise."""


class Tokenizer(Protocol):
    """Makes token ids of texts: the same ones for a text, whichever texts are beside it.

    It can be sent to other processes if its content can: objects of the known libraries can, and
    functions that a module defines; a lambda cannot.
    """

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts, and how many each has."""


def encoded(results: Iterable[object]) -> Encoded:
    """Return what a tokenizer returned for each text: lists, arrays, or objects with `.ids`.

    >>> found = encoded([[5, 6], [], np.array([7])])
    >>> found.ids.tolist(), found.lengths.tolist()
    ([5, 6, 7], [2, 0, 1])
    """
    return flat([_ids(result, number) for number, result in enumerate(results)])


def batches(items: Iterable[T], size_of: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield items in order, some at a time, of at most one size together; larger ones alone."""
    some: list[T] = []
    size = 0
    for item in items:
        size += size_of(item)
        if size > most and some:
            yield some
            some, size = [], size_of(item)
        some.append(item)
    if some:
        yield some


def flat(parts: Sequence[NDArray[Any]]) -> Encoded:
    """Return arrays of the ids of each text as one."""
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    return Encoded(np.concatenate(parts) if parts else np.empty(0, np.int64), lengths)


def _ids(result: object, number: int) -> NDArray[Any]:
    ids = input_ids(getattr(result, "ids", result))
    try:
        # `array` takes nothing but integers, where NumPy would cut off fractions or guess a type.
        found = np.asarray(array("q", ids) if isinstance(ids, list | tuple) else ids)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        _refuse(result, number)
    if found.ndim == 1 and not found.size:
        return np.empty(0, np.int64)  # NumPy takes an empty list for one of floats.
    if found.ndim != 1 or found.dtype.kind not in "iu" or int(found.max()) > _INT64_MAX:
        _refuse(result, number)
    # Beside signed integers, unsigned ones of 64 bits would become floats.
    return found.astype(np.int64) if found.dtype == np.uint64 else found


def input_ids(result: object) -> object:
    """Return the `input_ids` of a mapping; other results unchanged."""
    return result.get("input_ids") if isinstance(result, Mapping) else result


def _refuse(result: object, number: int) -> NoReturn:
    raise OptionError(
        f"The tokenizer returned {reprlib.repr(result)} for text {number}: expected the token ids "
        "of that text, integers in a list or a one-dimensional array. Give a function that returns "
        "the ids of one text, or say batched=True if it takes a list of texts.",
        number=number,
    )


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

    def encode(self, documents: Sequence[Sequence[tuple[str, bool]]]) -> Encoded:
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
        return Encoded(ids, lengths, trained, ends)
