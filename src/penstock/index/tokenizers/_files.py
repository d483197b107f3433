"""Tokenizers from files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock._lazy import require
from penstock.errors import CorruptFileError, ObjectNotFoundError, OptionError
from penstock.index.tokenizers._encoded import Encoded, Tokenizer
from penstock.index.tokenizers._tokenizer import (
    SentencePieceBatches,
    TiktokenArrays,
    TokenizersBatches,
)

if TYPE_CHECKING:
    import os


_PURPOSE = "Reading a tokenizer from a file"

_EOS_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]")
"""Names of the token that ends a document; the first one in the vocabulary counts."""


class NamedTokenizer(Tokenizer):
    """A tokenizer from a file, which another process reads again, and the facts in that file."""

    eos: int | None
    """The token that ends a document; None if the file names none."""
    vocabulary: int
    """One more than the largest id."""
    decode: Callable[[Sequence[int]], str]

    def __init__(self, path: str, batches: Tokenizer) -> None:
        self._path, self._batches = path, batches

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._path,)

    def encode(self, texts: Sequence[str]) -> Encoded:
        return self._batches.encode(texts)

    def without_special(self) -> tuple[Tokenizer, list[int], list[int]]:
        """Return a tokenizer of parts, and the special tokens around a document."""
        plain = getattr(self._batches, "without_special", None)
        return (self, [], []) if plain is None else plain()


def load_tokenizer(path: str | os.PathLike[str]) -> NamedTokenizer:
    """Return the tokenizer of a file: `tokenizer.json`, or `*.model` of sentencepiece.

    A folder that holds one of them will do, and so will the name of a model whose tokenizer is in
    the Hugging Face cache of this machine, or of an encoding in the cache of tiktoken; nothing is
    downloaded. Ids are those that the library's `encode` gives: with the special tokens that a
    `tokenizer.json` asks for, but never cut off or filled up.
    """
    file, name = Path(path).expanduser(), str(path)
    if not file.exists():
        cached = _cached(name)
        if cached is None and name in _encodings():
            return _EncodingTokenizer(name)
        file = cached or file
    file = _file(file)
    return (_JsonTokenizer if file.suffix == ".json" else _ModelTokenizer)(str(file))


class _JsonTokenizer(NamedTokenizer):
    """A `tokenizer.json`."""

    def __init__(self, path: str) -> None:
        library = require("tokenizers", extra="tokenizers", purpose=_PURPOSE)
        text = Path(path).read_bytes()
        try:
            tokenizer = library.Tokenizer.from_str(text.decode())
        except UnicodeDecodeError:
            raise _unreadable(path, "tokenizers", "it is no text in UTF-8") from None
        except Exception as failure:  # noqa: BLE001 (the library has no other class for it)
            raise _unreadable(path, "tokenizers", failure) from None
        # Many files cut and fill up to the length of a model's input.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        super().__init__(path, TokenizersBatches(tokenizer))
        known = map(tokenizer.token_to_id, [*self._configured(), *_EOS_NAMES])
        self.eos = next((number for number in known if number is not None), None)
        self.vocabulary = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        self.decode = lambda ids: str(
            tokenizer.decode(list(map(int, ids)), skip_special_tokens=False)
        )

    def _configured(self) -> list[str]:
        try:
            beside = Path(self._path).with_name("tokenizer_config.json").read_text("utf-8")
            token = json.loads(beside).get("eos_token")
        except (OSError, ValueError, AttributeError):
            return []  # The file is optional.
        if isinstance(token, dict):
            token = token.get("content")
        return [token] if isinstance(token, str) else []


class _ModelTokenizer(NamedTokenizer):
    """A `*.model` of sentencepiece."""

    def __init__(self, path: str) -> None:
        library = require("sentencepiece", extra="tokenizers", purpose=_PURPOSE)
        model = Path(path).read_bytes()
        if not model:
            # The library accepts it, and fails at the first text.
            raise _unreadable(path, "sentencepiece", "it is empty")
        try:
            processor = library.SentencePieceProcessor(model_proto=model)
        except RuntimeError as failure:
            raise _unreadable(path, "sentencepiece", failure) from None
        super().__init__(path, SentencePieceBatches(processor, "EncodeAsIds", {}))
        self.eos = processor.eos_id() if processor.eos_id() >= 0 else None
        self.vocabulary = processor.get_piece_size()
        self.decode = lambda ids: str(processor.decode(list(map(int, ids))))


class _EncodingTokenizer(NamedTokenizer):
    """An encoding of tiktoken, by its name; special tokens in a text are text."""

    def __init__(self, path: str) -> None:
        library = require("tiktoken", extra="tokenizers", purpose=_PURPOSE)
        reader: Any = import_module("tiktoken.load")
        read = reader.read_file

        def read_local(file: str) -> bytes:
            if "://" in file:
                raise ObjectNotFoundError(
                    f"{path}: this encoding of tiktoken is not in its cache, and nothing is "
                    "downloaded here. Get it once: "
                    f"python -c 'import tiktoken; tiktoken.get_encoding({json.dumps(path)})'",
                    path=path,
                )
            data: bytes = read(file)
            return data

        reader.read_file = read_local  # Called for what is not in the cache.
        try:
            encoding = library.get_encoding(path)
        finally:
            reader.read_file = read
        super().__init__(path, TiktokenArrays(encoding, "encode_ordinary", {}))
        ends = (name for name in _EOS_NAMES if name in encoding.special_tokens_set)
        self.eos = next(map(encoding.encode_single_token, ends), None)
        self.vocabulary = encoding.n_vocab
        self.decode = lambda ids: str(encoding.decode(list(map(int, ids))))


def _encodings() -> Sequence[str]:
    """Return the names of tiktoken's encodings; none where it is not installed."""
    if find_spec("tiktoken") is None:
        return ()
    library = require("tiktoken", extra="tokenizers", purpose=_PURPOSE)
    names: Sequence[str] = library.list_encoding_names()
    return names


def _file(path: Path) -> Path:
    """Return the file of a tokenizer; `path` may be its folder."""
    found = path
    if path.is_dir():
        models = sorted(path.glob("*.model"))
        found = path / "tokenizer.json"
        if not found.exists() and len(models) == 1:
            found = models[0]
    if not found.exists():
        what = "such file or folder, and no model of this name in the local Hugging Face cache"
        if path.is_dir():
            what = "tokenizer.json, and not exactly one *.model"
        raise ObjectNotFoundError(
            f"{path}: there is no {what}. Give a tokenizer.json or a *.model of sentencepiece, or "
            "the name of a model that was downloaded before: hf download NAME tokenizer.json",
            path=str(path),
        )
    if found.suffix not in {".json", ".model"}:
        raise OptionError(
            f"{found}: not a kind of tokenizer that is read from a file; these are tokenizer.json "
            "(of tokenizers and transformers) and *.model (of sentencepiece). Others, such as "
            "*.tiktoken, whose ranks alone do not say how text is split, work from Python: "
            "create_tokenize_and_index_jsonl_text_func(tokenizer_func=…)."
        )
    return found


def _cached(name: str) -> Path | None:
    """Return the file of a model's tokenizer in the Hugging Face cache, which is only looked at."""
    if find_spec("huggingface_hub") is None:
        return None
    library = require("huggingface_hub", extra="tokenizers", purpose=_PURPOSE)
    with suppress(ValueError):  # For a path, which is no name.
        for file in ("tokenizer.json", "tokenizer.model"):
            found = library.try_to_load_from_cache(name, file)
            if isinstance(found, str):
                return Path(found)
    return None


def _unreadable(path: str, library: str, failure: object) -> CorruptFileError:
    return CorruptFileError(
        f"{path} is no tokenizer that {library} can read: {str(failure).strip()}", path=path
    )
