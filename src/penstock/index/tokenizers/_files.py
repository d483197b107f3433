"""Tokenizers from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from penstock._lazy import require
from penstock.errors import CorruptFileError, ObjectNotFoundError, OptionError
from penstock.index.tokenizers._encoded import Tokenizer
from penstock.index.tokenizers._tokenizer import SentencePieceBatches, TokenizersBatches

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from penstock.index.tokenizers._encoded import Encoded

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


def load_tokenizer(path: str | os.PathLike[str]) -> NamedTokenizer:
    """Return the tokenizer of a file: `tokenizer.json`, or `*.model` of sentencepiece.

    A folder that holds one of them will do. Ids are those that the library's `encode` gives: with
    the special tokens that a `tokenizer.json` asks for, but never cut off or filled up.
    """
    file = _file(Path(path))
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


def _file(path: Path) -> Path:
    """Return the file of a tokenizer; `path` may be its folder."""
    found = path
    if path.is_dir():
        models = sorted(path.glob("*.model"))
        found = path / "tokenizer.json"
        if not found.exists() and len(models) == 1:
            found = models[0]
    if not found.exists():
        what = "tokenizer.json, and not exactly one *.model" if path.is_dir() else "such file"
        raise ObjectNotFoundError(
            f"{path}: there is no {what}. Give a tokenizer.json or a *.model of sentencepiece.",
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


def _unreadable(path: str, library: str, failure: object) -> CorruptFileError:
    return CorruptFileError(
        f"{path} is no tokenizer that {library} can read: {str(failure).strip()}", path=path
    )
