"""One interface for all tokenizers: texts in, token ids of all of them out."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from penstock._words import counted
from penstock.errors import OptionError
from penstock.index.tokenizers._encoded import Encoded, Tokenizer, batches, encoded, flat, input_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray


_JOINED_LETTERS = 128 << 10
"""Letters of the texts that tiktoken encodes in one call: more only costs memory."""
# Matches the text of an annotation: its names may be imported for type checkers only.
_MANY_TEXTS = re.compile(
    r"(?:[\w.]+\.)?(?:list|List|tuple|Tuple|Sequence|Collection|Iterable)\[str(?:, ?\.\.\.)?\]"
)


TokenizerFunc: TypeAlias = Callable[[str], list[int]]
"""A function from a text to its token ids."""


class EachText(Tokenizer):
    """Calls a function for one text after the other."""

    def __init__(self, function: Callable[[str], object]) -> None:
        self._function = function

    def encode(self, texts: Sequence[str]) -> Encoded:
        return encoded(map(self._function, texts))


class TokenizersBatches(Tokenizer):
    """A `tokenizers.Tokenizer`."""

    def __init__(
        self,
        tokenizer: Any,  # noqa: ANN401 (of a library that is not imported)
        options: Mapping[str, object] | None = None,
        *,
        splits_special: bool | None = None,
    ) -> None:
        if splits_special is not None:
            tokenizer.encode_special_tokens = splits_special
        self._tokenizer, self._options = tokenizer, dict(options or {})

    def __reduce__(self) -> tuple[object, ...]:
        # Its own pickle loses `encode_special_tokens`.
        splits_special = self._tokenizer.encode_special_tokens
        rebuild = functools.partial(type(self), splits_special=splits_special)
        return rebuild, (self._tokenizer, self._options)

    def encode(self, texts: Sequence[str]) -> Encoded:
        _refuse_cut_texts(self._tokenizer)  # Its owner may have changed it since.
        # Without the offsets of tokens in the text, which takes a third less time.
        return encoded(self._tokenizer.encode_batch_fast(list(texts), **self._options))

    def without_special(self) -> tuple[Tokenizer, list[int], list[int]]:
        """Return the same without special tokens, and those that it puts before and behind."""
        whole, inner = (
            self._tokenizer.encode("a", **{**self._options, **without}).ids
            for without in ({}, {"add_special_tokens": False})
        )
        width = len(inner)
        found = (n for n in range(len(whole) - width + 1) if whole[n : n + width] == inner)
        at = next(found, len(whole))
        plain = type(self)(self._tokenizer, {**self._options, "add_special_tokens": False})
        return plain, whole[:at], whole[at + width :]


class SentencePieceBatches(Tokenizer):
    """A `sentencepiece.SentencePieceProcessor`."""

    def __init__(
        self,
        processor: Any,  # noqa: ANN401 (of a library that is not imported)
        method: str,
        options: Mapping[str, object],
        settings: Mapping[str, object] | None = None,
    ) -> None:
        vars(processor).update(settings or {})
        self._processor, self._method, self._options = processor, method, options

    def __reduce__(self) -> tuple[object, ...]:
        # Its own pickle loses its settings: add_bos, add_eos, reverse …
        plain = (bool, int, float, str, type, type(None))
        settings = {k: v for k, v in vars(self._processor).items() if isinstance(v, plain)}
        return type(self), (self._processor, self._method, self._options, settings)

    def encode(self, texts: Sequence[str]) -> Encoded:
        method = getattr(self._processor, self._method)
        return encoded(method(list(texts), **{**self._options, "num_threads": 1}))


class TiktokenArrays(Tokenizer):
    """A `tiktoken.Encoding`: many texts in one call, joined by a special token of its own.

    Special tokens divide a text before anything else, so the ids on either side of one are those
    of the texts by themselves.
    """

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
        groups = batches(texts, len, _JOINED_LETTERS)
        return flat([ids for some in groups for ids in self._joined(some) or map(self._one, some)])

    def _joined(self, texts: list[str]) -> list[NDArray[Any]]:
        """Return the ids of each text by one call; nothing where that is not possible."""
        between, token = self._seam or ("", 0)
        whole, seams = between.join(texts), len(texts) - 1
        if not between or not seams or whole.count(between) != seams:
            return []
        try:
            ids = self._encoding.encode_to_numpy(
                whole, allowed_special={between}, **self._array_options
            )
        except ValueError:  # Some text is refused, or has half of a surrogate pair.
            return []
        borders = [-1, *np.flatnonzero(ids == token).tolist(), len(ids)]
        if len(borders) != seams + 2:  # An ordinary token has the same number.
            return []
        return [ids[before + 1 : end] for before, end in pairwise(borders)]

    def _one(self, text: str) -> NDArray[Any]:
        try:
            ids: NDArray[Any] = self._encoding.encode_to_numpy(text, **self._array_options)
        except UnicodeEncodeError:
            # Half of a surrogate pair; the others replace it.
            return np.array(getattr(self._encoding, self._method)(text, **self._options), np.int64)
        return ids


def _seam_of(encoding: Any) -> tuple[str, int] | None:  # noqa: ANN401 (of a library that is not imported)
    """Return a special token and its id that is always found between two texts, if there is one.

    It cannot begin inside itself, and no other special token begins where it does.
    """
    names: set[str] = encoding.special_tokens_set
    for text in sorted(names):
        is_alone = not any(
            other.startswith(text) or text.startswith(other) for other in names if other != text
        )
        begins_in_itself = any(text.startswith(text[at:]) for at in range(1, len(text)))
        if text and is_alone and not begins_in_itself:
            (token,) = encoding.encode(text, allowed_special={text}, disallowed_special=())
            return text, token
    return None


class _Call(NamedTuple):
    """An object, a method of one, or a partial of a method, taken apart."""

    owner: Any
    method: str
    """Empty: the object itself."""
    options: dict[str, object]

    @classmethod
    def of(cls, what: object) -> _Call:
        options: dict[str, object] = {}
        if isinstance(what, functools.partial) and not what.args:
            options, what = what.keywords, what.func
        owner = getattr(what, "__self__", None)
        if owner is None or not callable(what):
            return cls(what, "", options)
        return cls(owner, getattr(what, "__name__", ""), options)


def _is_from(owner: object, package: str, method: str) -> bool:
    """Whether a package itself defines a method, not a class derived from it."""
    module: str = getattr(getattr(type(owner), method), "__module__", "")
    return module.partition(".")[0] == package


def _refuse_cut_texts(tokenizer: Any) -> None:  # noqa: ANN401 (of a library that is not imported)
    """Raise for a tokenizer that cuts or fills up texts to the length of a model's input."""
    if tokenizer.truncation is not None:
        length = tokenizer.truncation["max_length"]
        raise OptionError(
            f"the tokenizer is set to cut texts off behind {length} tokens: the rest of longer "
            "documents would be missing. Call no_truncation() on it."
        )
    if tokenizer.padding is not None:
        token = tokenizer.padding["pad_token"]
        raise OptionError(
            f"the tokenizer is set to fill texts up with {token}, which would be part of "
            "documents. Call no_padding() on it; samples are filled up with pad_idx=."
        )


def _of_tokenizers(call: _Call) -> Tokenizer | None:
    _refuse_cut_texts(call.owner)
    known = {"", "encode", "encode_batch", "encode_batch_fast"}
    if call.method not in known or not call.options.keys() <= {"add_special_tokens"}:
        return None
    return TokenizersBatches(call.owner, call.options)


def _of_tiktoken(call: _Call) -> Tokenizer | None:
    method = call.method.removesuffix("_batch") or "encode_ordinary"
    options = {k: v for k, v in call.options.items() if k != "num_threads"}
    known = {"encode", "encode_ordinary", "encode_to_numpy"}
    if method not in known or not _is_from(call.owner, "tiktoken", method):
        return None
    if not hasattr(call.owner, "encode_to_numpy"):
        return EachText(functools.partial(getattr(call.owner, method), **options))
    return TiktokenArrays(call.owner, method, options)


def _of_sentencepiece(call: _Call) -> Tokenizer | None:
    method = call.method or "EncodeAsIds"
    known = {"encode", "Encode", "EncodeAsIds", "encode_as_ids"}
    if method not in known or not _is_from(call.owner, "sentencepiece", method):
        return None
    return SentencePieceBatches(call.owner, method, call.options)


def _of_transformers(call: _Call) -> Tokenizer | None:
    method = call.method or "__call__"
    if method not in {"encode", "__call__"} or not _is_from(call.owner, "transformers", method):
        return None
    if call.options.keys() <= {"add_special_tokens", "verbose"} and _is_plain(call.owner):
        # A copy, since the next call of theirs may set it to cut or fill up; and a worker process
        # need not import transformers, which takes seconds.
        backend = call.owner.backend_tokenizer
        copy = type(backend).from_str(backend.to_str())
        copy.no_padding()
        copy.no_truncation()
        options = {k: v for k, v in call.options.items() if k != "verbose"}
        return TokenizersBatches(copy, options, splits_special=call.owner.split_special_tokens)
    # Without the warning that a text is longer than the model: samples cut it.
    function = getattr(call.owner, method)
    return EachText(functools.partial(function, **{"verbose": False, **call.options}))


_LIBRARIES: dict[tuple[str, str], Callable[[_Call], Tokenizer | None]] = {
    ("tokenizers", "Tokenizer"): _of_tokenizers,
    ("tiktoken", "Encoding"): _of_tiktoken,
    ("sentencepiece", "SentencePieceProcessor"): _of_sentencepiece,
    ("transformers", "PreTrainedTokenizerBase"): _of_transformers,
}
"""Package and name of a class, and what makes a tokenizer of its objects."""


def _is_plain(owner: object) -> bool:
    """Whether a tokenizer of transformers does no more than call one of `tokenizers`."""
    plain = {"tokenization_utils_base", "tokenization_utils_tokenizers"}
    methods = [getattr(type(owner), name, None) for name in ("__call__", "encode", "_encode_plus")]
    return hasattr(owner, "backend_tokenizer") and all(
        getattr(method, "__module__", "").removeprefix("transformers.") in plain
        for method in methods
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
    call = _Call.of(what)
    for kind in type(call.owner).__mro__:
        make = _LIBRARIES.get((kind.__module__.partition(".")[0], kind.__name__))
        if make is not None and (known := make(call)) is not None:
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
        if not texts:
            return encoded(())
        returned = input_ids(self._function(list(texts)))
        # As many characters as texts would pass for as many results.
        is_many = isinstance(returned, Iterable) and not isinstance(returned, str | bytes)
        results = list(cast("Iterable[object]", returned)) if is_many else []
        if len(results) != len(texts):
            what = counted(len(results), "result") if is_many else repr(returned)
            raise OptionError(
                f"The tokenizer returned {what} for a list of {counted(len(texts), 'text')}: "
                "expected the token ids of each text. Say batched=False if it takes one text at a "
                "time."
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
