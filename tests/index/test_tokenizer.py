"""Tokenizers of any kind: the ids are those of the call that was given, text by text."""

from __future__ import annotations

import functools
import io
import json
import logging
import os
import pickle
import subprocess
import sys
from array import array
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest
import sentencepiece
import tiktoken
import tokenizers
import torch
from hypothesis import strategies as st
from tokenizers import processors

from penstock.errors import (
    CorruptFileError,
    MissingExtraError,
    ObjectNotFoundError,
    OptionError,
)
from penstock.index import load_tokenizer
from penstock.index.tokenizers._tokenizer import tokenizer_of
from penstock.storage import keep_tokenizers_to_one_thread
from tests.index.text_samples import EOS, ODD_TEXTS, sample_texts, tiktoken_from, trained_bpe
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import transformers

    from penstock.index.tokenizers._encoded import Tokenizer

TEXTS = [*ODD_TEXTS, *sample_texts(120, seed=4)]
# What tiktoken's `encode` refuses unless it is told otherwise.
WITHOUT_EOS = [text for text in TEXTS if EOS not in text]


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    # Threads of the library in this process would make every later fork print a warning.
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


def rich_bpe() -> tokenizers.Tokenizer:
    """Return a tokenizer of its own that puts special tokens around a text."""
    tokenizer = tokenizers.Tokenizer.from_str(trained_bpe().to_str())
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")],
    )
    return tokenizer


@functools.cache
def model_bytes() -> bytes:
    """Return a trained model of sentencepiece."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sample_texts(200)),
        model_writer=written,
        vocab_size=200,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return written.getvalue()


def check(
    given: object, wanted: Iterable[Any], texts: list[str] = TEXTS, *, travels: bool = True
) -> Tokenizer:
    """Check that ids are those wanted, in batches of any size, and of a copy by pickle too."""
    wanted = [[int(number) for number in ids] for ids in wanted]
    tokenizer = tokenizer_of(given)
    copies = [pickle.loads(pickle.dumps(tokenizer))] if travels else []
    for size in (1, 7, len(texts)):
        for one in (tokenizer, *copies):
            ids: list[int] = []
            for start in range(0, len(texts), size):
                part = one.encode(texts[start : start + size])
                assert part.ids.dtype.kind in "iu"
                assert part.lengths.dtype == np.int64
                lengths = [len(some) for some in wanted[start : start + size]]
                assert part.lengths.tolist() == lengths
                ids += part.ids.tolist()
            assert ids == [number for some in wanted for number in some]
    assert tokenizer.encode([]).ids.tolist() == tokenizer.encode([]).lengths.tolist() == []
    return tokenizer


@pytest.mark.parametrize("made", [trained_bpe, rich_bpe])
def test_tokenizers_give_the_ids_of_encode(made: Callable[[], tokenizers.Tokenizer]) -> None:
    tokenizer = made()
    wanted = [tokenizer.encode(text).ids for text in TEXTS]
    for given in (
        tokenizer, tokenizer.encode, tokenizer.encode_batch, tokenizer.encode_batch_fast,
    ):  # fmt: skip
        check(given, wanted)
    plain = functools.partial(tokenizer.encode, add_special_tokens=False)
    check(plain, [plain(text).ids for text in TEXTS])


def test_tokenizers_that_would_cut_or_fill_up_are_refused() -> None:
    cutting, filling, changing = rich_bpe(), rich_bpe(), rich_bpe()
    cutting.enable_truncation(9)
    filling.enable_padding(pad_to_multiple_of=4)
    for call in (cutting, cutting.encode, functools.partial(cutting.encode, pair=None)):
        with pytest.raises(
            OptionError, match=r"cut texts off behind 9 tokens: .*no_truncation\(\)"
        ):
            tokenizer_of(call)
    with pytest.raises(OptionError, match=r"fill texts up with \[PAD\].*no_padding\(\).*pad_idx="):
        tokenizer_of(filling.encode_batch)
    ours = tokenizer_of(changing)
    changing.enable_truncation(9)
    with pytest.raises(OptionError, match=r"no_truncation\(\)"):
        ours.encode(TEXTS)


def test_tokenizers_that_split_special_tokens_do_so_in_every_process() -> None:
    tokenizer = rich_bpe()
    tokenizer.encode_special_tokens = True
    wanted = [tokenizer.encode(text).ids for text in TEXTS]
    assert all(trained_bpe().token_to_id(EOS) not in ids for ids in wanted)
    check(tokenizer, wanted)


def test_tiktoken_gives_the_ids_of_the_method() -> None:
    encoding = tiktoken_from(trained_bpe())
    halves = [*TEXTS, "half \ud800 of a pair", "two halves \ud83d\ude00 of one"]
    ordinary = [encoding.encode_ordinary(text) for text in halves]
    check(encoding, ordinary, halves)
    check(encoding.encode_ordinary, ordinary, halves)
    check(encoding.encode_ordinary_batch, ordinary, halves)
    check(encoding.encode, map(encoding.encode, WITHOUT_EOS), WITHOUT_EOS)
    check(encoding.encode_batch, map(encoding.encode, WITHOUT_EOS), WITHOUT_EOS)
    check(encoding.encode_to_numpy, map(encoding.encode, WITHOUT_EOS), WITHOUT_EOS)
    special = functools.partial(encoding.encode, allowed_special="all")
    assert encoding.eot_token in check(special, map(special, halves), halves).encode([EOS]).ids


def test_what_tiktoken_refuses_is_refused() -> None:
    encoding = tiktoken_from(trained_bpe())
    with pytest.raises(ValueError, match="disallowed special token"):
        tokenizer_of(encoding.encode).encode(["fine", f"not {EOS}"])


SPECIAL_TOKENS: dict[str, dict[str, int]] = {
    "one": {EOS: 300},
    "many": {EOS: 300, "<|x|>": 301, "<|endofprompt|>": 302, "\u00e9|": 303},
    "none": {},
    "one in the other": {EOS: 300, f"{EOS}<": 301, f"<{EOS}": 302, "<|": 303, "|>": 304},
    "beginning in itself": {"aba": 300, "  ": 301},
    "the number of a letter": {EOS: ord("a")},
}


@functools.cache
def small_encoding(name: str) -> tiktoken.Encoding:
    """Return an encoding of bytes and a few pairs, with some special tokens."""
    pairs = [b"th", b"he", b"the", b"  ", b" \n", b"<|", b"|>", b"end", b"ab", b"\xc3\xa9", b" a"]
    ranks = [bytes([number]) for number in range(256)] + pairs
    return tiktoken.Encoding(
        name,
        pat_str=r"'s| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks={token: number for number, token in enumerate(ranks)},
        special_tokens=SPECIAL_TOKENS[name],
    )


PIECES = st.sampled_from(
    [
        "the", " he", "s", "'s", " ", "  ", "\n", "\u00e9", "\u65e5\u672c", "\U0001f469\u200d",
        "12", "a", "b", "aba", "<", "<|", "<|end", "oftext|>", "|>", ">", "|", "\x00", "\ud800",
        "\udc00", EOS, "<|x|>", "\u00e9|",
    ]
)  # fmt: skip
SOME_TEXTS = st.lists(st.lists(PIECES | st.characters(), max_size=6).map("".join), max_size=12)


@pytest.mark.parametrize("name", SPECIAL_TOKENS)
@hypothesis.settings(max_examples=rounds(60, 2000))
@hypothesis.given(texts=SOME_TEXTS)
def test_tiktoken_gives_the_ids_of_each_text_whatever_texts_are_beside_it(
    name: str, texts: list[str]
) -> None:
    encoding = small_encoding(name)
    for call in (
        encoding.encode_ordinary,
        encoding.encode,
        encoding.encode_to_numpy,
        functools.partial(encoding.encode, disallowed_special=()),
        functools.partial(encoding.encode, disallowed_special={EOS}),
        functools.partial(encoding.encode, allowed_special="all"),
    ):
        try:
            wanted = [list(call(text)) for text in texts]
        except ValueError as refusal:
            with pytest.raises(type(refusal)):
                tokenizer_of(call).encode(texts)
            continue
        ids, lengths, *_ = tokenizer_of(call).encode(texts)
        assert lengths.tolist() == [*map(len, wanted)]
        assert ids.tolist() == [number for some in wanted for number in some]


def test_tiktoken_gives_the_ids_of_many_and_of_long_texts() -> None:
    encoding = tiktoken_from(trained_bpe())
    texts = ["", *sample_texts(2_000, seed=5), "long " * 40_000, *sample_texts(100, seed=6), ""]
    wanted = [encoding.encode_ordinary(text) for text in texts]
    ids, lengths, *_ = tokenizer_of(encoding).encode(texts)
    assert lengths.tolist() == [*map(len, wanted)]
    assert ids.tolist() == [number for some in wanted for number in some]


@pytest.mark.parametrize(
    "settings",
    [{}, {"add_bos": True, "add_eos": True}, {"reverse": True, "num_threads": 4}],
    ids=["plain", "ends", "reverse"],
)
def test_sentencepiece_gives_the_ids_of_the_method(settings: dict[str, Any]) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_bytes(), **settings)
    wanted = [processor.encode(text) for text in TEXTS]
    for given in (
        processor, processor.encode, processor.Encode, processor.EncodeAsIds,
        processor.encode_as_ids,
    ):  # fmt: skip
        check(given, wanted)
    ended = functools.partial(processor.encode, add_eos=True)
    check(ended, map(ended, TEXTS))


@functools.cache
def fast_tokenizer() -> transformers.PreTrainedTokenizerFast:
    # Where it is used: the library takes seconds to import.
    import transformers

    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=rich_bpe(), eos_token=EOS, model_max_length=8
    )


def test_transformers_give_the_ids_of_encode(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = fast_tokenizer()
    wanted = [tokenizer.encode(text, verbose=False) for text in TEXTS]
    plain = functools.partial(tokenizer.encode, add_special_tokens=False, verbose=False)
    with caplog.at_level(logging.WARNING):
        check(tokenizer.encode, wanted)
        check(tokenizer, wanted)
        check(plain, map(plain, TEXTS))
    assert not caplog.records


def test_transformers_are_not_disturbed_by_other_calls() -> None:
    tokenizer = fast_tokenizer()
    ours = tokenizer_of(tokenizer.encode)
    wanted = ours.encode(TEXTS).ids.tolist()
    tokenizer.encode("cut and filled up", truncation=True, max_length=6, padding=False)
    assert ours.encode(TEXTS).ids.tolist() == wanted
    assert len(tokenizer.encode(TEXTS[-2], truncation=True, max_length=6)) <= 6


def test_transformers_with_options_are_called_as_they_were_given() -> None:
    cut = functools.partial(fast_tokenizer().encode, truncation=True, max_length=5)
    check(cut, map(cut, TEXTS))


def test_a_method_that_a_derived_class_changes_is_called_itself() -> None:
    class Shouting(type(fast_tokenizer())):  # type: ignore[misc]
        def encode(self, text: str, *args: Any, **options: Any) -> list[int]:
            return super().encode(text.upper(), *args, **options)

    tokenizer = Shouting(tokenizer_object=rich_bpe(), eos_token=EOS)
    assert tokenizer.encode("words") != tokenizer("words")["input_ids"]
    check(tokenizer.encode, map(tokenizer.encode, TEXTS), travels=False)
    check(tokenizer, (tokenizer(text)["input_ids"] for text in TEXTS), travels=False)


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def all_letters(texts: list[str]) -> list[list[int]]:
    return [letters(text) for text in texts]


class Holder:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


@pytest.mark.parametrize(
    "form",
    [
        list, tuple, Holder, torch.tensor,
        lambda ids: array("i", ids), lambda ids: {"input_ids": ids, "attention_mask": ids},
        lambda ids: np.array(ids, np.uint16), lambda ids: np.array(ids, np.uint64), np.array,
    ],
    ids=["list", "tuple", "ids", "tensor", "array", "mapping", "uint16", "uint64", "int64"],
)  # fmt: skip
def test_a_function_may_return_ids_in_many_forms(form: Callable[[list[int]], object]) -> None:
    texts = ["ab", "", "c"]
    each = tokenizer_of(lambda text: form(letters(text)))
    many = tokenizer_of(lambda texts: [form(letters(text)) for text in texts], batched=True)
    mixed = tokenizer_of(lambda text: form(letters(text)) if text == "ab" else letters(text))
    for tokenizer in (each, many, mixed):
        ids, lengths, *_ = tokenizer.encode(texts)
        assert ids.dtype.kind in "iu"
        assert ids.tolist() == [97, 98, 99]
        assert lengths.tolist() == [2, 0, 1]


def takes_sequence(texts: Sequence[str], more: int = 0) -> list[list[int]]:
    return [[number + more for number in letters(text)] for text in texts]


def takes_iterable(texts: "Iterable[str]") -> Iterable[list[int]]:  # noqa: UP037 (as text)
    return (letters(text) for text in texts)


def takes_either(text: str | list[str]) -> list[int]:
    assert isinstance(text, str)
    return letters(text)


class TakesList:
    def __call__(self, texts: list[str]) -> dict[str, list[list[int]]]:
        return {"input_ids": all_letters(texts)}

    def method(self, texts: tuple[str, ...]) -> list[list[int]]:
        return all_letters(list(texts))


class HasEncode:
    def encode(self, text: str) -> list[int]:
        return letters(text)


@pytest.mark.parametrize(
    "given",
    [
        all_letters, takes_sequence, takes_iterable, takes_either, TakesList(), TakesList().method,
        functools.partial(takes_sequence, more=0), letters, HasEncode(), HasEncode().encode,
    ],
    ids=lambda given: getattr(given, "__qualname__", type(given).__name__),
)  # fmt: skip
def test_what_a_function_takes_is_read_from_its_annotation(given: object) -> None:
    check(given, map(letters, TEXTS))


def test_what_was_declared_wins_over_the_annotation() -> None:
    def one(text: list[str]) -> list[int]:
        return letters(text)  # type: ignore[arg-type]

    assert tokenizer_of(one, batched=False).encode(["ab"]).ids.tolist() == [97, 98]
    with pytest.raises(OptionError, match="text 0"):
        tokenizer_of(lambda texts: all_letters(texts)).encode(["ab"])  # noqa: PLW0108 (no type)


def test_a_function_that_takes_one_text_is_called_in_their_order() -> None:
    seen: list[str] = []

    def remember(text: str) -> list[int]:
        seen.append(text)
        return []

    tokenizer_of(remember).encode(["b", "a", "b"])
    assert seen == ["b", "a", "b"]


@pytest.mark.parametrize(
    "wrong",
    [
        None, "12", b"12", 7, 1.5, [1.0], [1, 2.5], ["1"], [None], [[1, 2]], [[1], [2, 3]],
        np.array([1.0]), np.array([[1, 2]]), np.array(3), {"ids": [1]}, {1, 2}, iter([1]),
        [2**63], np.array([2**63], np.uint64), torch.tensor([[1]]), np.array(["1"]),
    ],
    ids=lambda wrong: f"{type(wrong).__name__} {wrong}"[:40],
)  # fmt: skip
def test_what_is_no_list_of_integers_is_refused_by_the_number_of_the_text(wrong: object) -> None:
    returned = [[1], [2, 3], wrong, [4]]
    tokenizer = tokenizer_of(lambda text: returned[int(text)])
    with pytest.raises(
        OptionError, match=r"for text 2: expected the token ids .* batched=True"
    ) as e:
        tokenizer.encode(["0", "1", "2", "3"])
    assert e.value.number == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrong", [[[1]], [[1], [2], [3]], None, "ab", b"cd", 2, {"ids": [1, 2]}])
def test_a_result_for_each_text_is_expected(wrong: object) -> None:
    tokenizer = tokenizer_of(lambda _: wrong, batched=True)
    with pytest.raises(OptionError, match=r"for a list of 2 texts: .* batched=False"):
        tokenizer.encode(["a", "b"])


@pytest.mark.parametrize("wrong", [None, 3, "gpt2", {"encode": letters}])
def test_what_cannot_tokenise_is_refused(wrong: object) -> None:
    with pytest.raises(OptionError, match=r"tokenizer_func=.*expected a function"):
        tokenizer_of(wrong)


def test_an_error_of_the_function_comes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        tokenizer_of(lambda text: [1 // len(text)]).encode(["a", ""])


def test_a_tokenizer_of_ours_stays_itself() -> None:
    tokenizer = tokenizer_of(letters)
    assert tokenizer_of(tokenizer) is tokenizer
    assert tokenizer_of(tokenizer, batched=True) is tokenizer


def test_one_process_among_several_can_be_kept_to_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM")
    keep_tokenizers_to_one_thread()
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


def test_no_library_is_imported_that_was_not_given() -> None:
    program = (
        "import sys; from penstock.index.tokenizers._tokenizer import tokenizer_of\n"
        "tokenizer_of(lambda text: [1]).encode(['a'])\n"
        "print(*{'tokenizers', 'tiktoken', 'sentencepiece', 'transformers', 'torch'} "
        "& set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert told.stdout.strip() == b""


def test_a_tokenizer_comes_from_a_json_file(tmp_path: Path) -> None:
    tokenizer = rich_bpe()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for path in (tmp_path, tmp_path / "tokenizer.json", str(tmp_path)):
        named = load_tokenizer(path)
        assert named.eos == tokenizer.token_to_id(EOS)
        assert named.vocabulary == 602
        check(named, (tokenizer.encode(text).ids for text in TEXTS))
    assert len(pickle.dumps(named)) < 1000
    assert pickle.loads(pickle.dumps(named)).decode(np.array([0], np.uint16)) == EOS
    ids = tokenizer.encode(TEXTS[5], add_special_tokens=False).ids
    assert named.decode(ids) == TEXTS[5]


@pytest.mark.parametrize(
    "form", ["</s>", {"content": "</s>", "special": True}], ids=["text", "object"]
)
def test_the_configuration_beside_it_says_which_token_ends(tmp_path: Path, form: object) -> None:
    tokenizer = rich_bpe()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": form}))
    assert load_tokenizer(tmp_path).eos == tokenizer.token_to_id("</s>")


def test_a_tokenizer_need_not_say_which_token_ends(tmp_path: Path) -> None:
    tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 7}, [])).save(str(tmp_path / "t.json"))
    named = load_tokenizer(tmp_path / "t.json")
    assert named.eos is None
    assert named.vocabulary == 8


def test_a_tokenizer_comes_from_a_model_of_sentencepiece(tmp_path: Path) -> None:
    (tmp_path / "some.model").write_bytes(model_bytes())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_bytes())
    for path in (tmp_path, tmp_path / "some.model"):
        named = load_tokenizer(path)
        assert named.eos == processor.eos_id() == 2
        assert named.vocabulary == processor.get_piece_size()
        check(named, map(processor.encode, TEXTS))
    assert len(pickle.dumps(named)) < 1000
    assert named.decode(np.array(processor.encode("the water"), np.uint16)) == "the water"


def test_what_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    for name in ("broken.json", "broken.model", "ranks.tiktoken"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(CorruptFileError, match=r"broken\.json is no tokenizer that tokenizers can"):
        load_tokenizer(tmp_path / "broken.json")
    with pytest.raises(CorruptFileError, match=r"broken\.model is no tokenizer that sentencepiece"):
        load_tokenizer(tmp_path / "broken.model")
    with pytest.raises(OptionError, match=r"ranks\.tiktoken: not a kind.* tokenizer\.json .*model"):
        load_tokenizer(tmp_path / "ranks.tiktoken")
    (tmp_path / "other.model").write_text("")
    with pytest.raises(ObjectNotFoundError, match=r"there is no tokenizer\.json, and not exactly"):
        load_tokenizer(tmp_path)
    with pytest.raises(ObjectNotFoundError, match=r"gone\.json: there is no such file"):
        load_tokenizer(tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("library", "name"), [("tokenizers", "tokenizer.json"), ("sentencepiece", "some.model")]
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, name: str
) -> None:
    (tmp_path / name).write_text("{}")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"'{library}'.*penstock\[tokenizers\]"):
        load_tokenizer(tmp_path)
