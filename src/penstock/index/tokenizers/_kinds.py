"""Tokenizers of libraries that we know, each with its fastest call that changes no id.

Nothing is imported from these libraries: what was given says by its type where it comes from.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import OptionError
from penstock.index.tokenizers._tiktoken import TiktokenArrays
from penstock.index.tokens._ids import Tokenizer, encoded
from penstock.storage import keep_tokenizers_to_one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.index.tokens._ids import Encoded

__all__ = [
    "EachText",
    "SentencePieceBatches",
    "Tokenizer",
    "TokenizersBatches",
    "known_tokenizer",
    "single_threaded",
]


def single_threaded() -> None:
    """Keep the tokenizers of this process to one thread: for one process among several.

    `tokenizers` asks the environment at every call, and would start a thread for every core.
    """
    keep_tokenizers_to_one_thread()


def known_tokenizer(what: object) -> Tokenizer | None:
    """Return a tokenizer for an object of a library that we know, or for a method of one."""
    call = _Call.of(what)
    if _is_a(call.owner, "tokenizers", "Tokenizer"):
        return _of_tokenizers(call)
    if _is_a(call.owner, "tiktoken", "Encoding"):
        return _of_tiktoken(call)
    if _is_a(call.owner, "sentencepiece", "SentencePieceProcessor"):
        return _of_sentencepiece(call)
    if _is_a(call.owner, "transformers", "PreTrainedTokenizerBase"):
        return _of_transformers(call)
    return None


class EachText(Tokenizer):
    """Calls a function for one text after the other."""

    def __init__(self, function: Callable[[str], object]) -> None:
        self._function = function

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts, and how many each has."""
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
        # It forgets the last one itself when it is pickled.
        splits_special = self._tokenizer.encode_special_tokens
        rebuild = functools.partial(type(self), splits_special=splits_special)
        return rebuild, (self._tokenizer, self._options)

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts, and how many each has."""
        _refuse_cut_texts(self._tokenizer)  # Whoever gave it may have changed it since.
        # Without the offsets of tokens in the text, which takes a third less time.
        return encoded(self._tokenizer.encode_batch_fast(list(texts), **self._options))


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
        # Pickled, it forgets what it was made with: add_bos, add_eos, reverse …
        plain = (bool, int, float, str, type, type(None))
        settings = {k: v for k, v in vars(self._processor).items() if isinstance(v, plain)}
        return type(self), (self._processor, self._method, self._options, settings)

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts, and how many each has."""
        method = getattr(self._processor, self._method)
        return encoded(method(list(texts), **{**self._options, "num_threads": 1}))


class _Call(NamedTuple):
    """What was given: an object, a method of one, or a partial of a method."""

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


def _is_a(what: object, package: str, name: str) -> bool:
    """Return whether an object is of a class of that name and package, or of one derived."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package
        for kind in type(what).__mro__
    )


def _is_from(owner: object, package: str, *methods: str) -> bool:
    """Return whether a package itself defines these methods, not a class derived from it."""
    modules = [getattr(getattr(type(owner), method), "__module__", "") for method in methods]
    return all(module.partition(".")[0] == package for module in modules)


def _refuse_cut_texts(tokenizer: Any) -> None:  # noqa: ANN401 (of a library that is not imported)
    """Refuse a tokenizer that is set to the length of some model's input."""
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
        # A copy, since theirs may be set to cut or fill up by the next who calls it; a worker
        # process then need not import their library, which takes seconds.
        backend = call.owner.backend_tokenizer
        copy = type(backend).from_str(backend.to_str())
        copy.no_padding()
        copy.no_truncation()
        options = {k: v for k, v in call.options.items() if k != "verbose"}
        return TokenizersBatches(copy, options, splits_special=call.owner.split_special_tokens)
    # Not told that a text is longer than the model: it will be cut into samples.
    function = getattr(call.owner, method)
    return EachText(functools.partial(function, **{"verbose": False, **call.options}))


def _is_plain(owner: object) -> bool:
    """Return whether a tokenizer of transformers does no more than call one of `tokenizers`."""
    plain = {"tokenization_utils_base", "tokenization_utils_tokenizers"}
    methods = [getattr(type(owner), name, None) for name in ("__call__", "encode", "_encode_plus")]
    return hasattr(owner, "backend_tokenizer") and all(
        getattr(method, "__module__", "").removeprefix("transformers.") in plain
        for method in methods
    )
