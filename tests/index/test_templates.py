"""Templates: the text of a record, and which part of it is an answer."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from penstock.errors import MalformedLineError, OptionError
from penstock.index import read_meta
from penstock.index.tokenizers._encoded import PartsTokenizer
from penstock.index.tokenizers._tokenizer import tokenizer_of
from penstock.index.tokens._texts import BadText, ChatTurns, Template, text_of
from tests.cli.commands import document, invoke, succeed
from tests.cli.token_samples import bpe
from tests.index.tokenize_samples import indexer
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

CHAT = [
    {"role": "system", "content": "be short"},
    {"role": "user", "content": "1 + 1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "thanks"},
    {"role": "assistant", "content": "bye"},
]


def chat(**options: Any) -> Any:
    given: dict[str, Any] = {"template": None, "messages": "messages", "answers": None}
    return text_of("text", None, **given | options)


def in_brackets(parts: list[tuple[str, bool]]) -> str:
    """Return the text with what is trained in brackets; the end of the document is a bar."""
    marked = [f"[{text}]" if flag else text for text, flag in parts if text]
    return "".join(marked) + ("[|]" if parts[-1][1] else "|")


@pytest.mark.parametrize(
    ("template", "answers", "expected"),
    [
        ("Q: {q}\nA: {a}", None, "Q: why\nA: [so][|]"),
        ("Q: {q}\nA: {a}</s>\n\n", None, "Q: why\nA: [so</s>]\n\n[|]"),
        ("{a} because {q}", ["a"], "[so because ]why|"),
        ("{q}{a}{q}", ["q"], "[why]so[why][|]"),
        ("{{{m.n}}} {m.k}", ["m.n"], "{[1.5} ]true|"),
        ("{a}!\n{{x}}\n{{y}}", None, "[so!]\n{x}\n{y}[|]"),
        ("{q} {dotted.name}", None, "why [whole][|]"),
    ],
)
def test_only_answers_are_trained_with_the_rest_of_their_line(
    template: str, answers: list[str] | None, expected: str
) -> None:
    record = {"q": "why", "a": "so", "m": {"n": 1.5, "k": True}, "dotted.name": "whole"}
    assert in_brackets(Template.parsed(template, answers).of(record)) == expected


@settings(max_examples=rounds(50, 2000))
@given(
    texts=st.lists(st.text("ab{}\n", max_size=5), min_size=3, max_size=3),
    values=st.lists(st.text("cd{}\n", max_size=5), min_size=2, max_size=2),
    answers=st.sets(st.sampled_from(["x", "y"]), min_size=1),
)
def test_parts_are_the_text_that_python_formats(
    texts: list[str], values: list[str], answers: set[str]
) -> None:
    before, between, behind = (text.replace("{", "{{").replace("}", "}}") for text in texts)
    template = f"{before}{{x}}{between}{{y}}{behind}"
    record = dict(zip("xy", values, strict=True))
    *parts, (end, is_end) = Template.parsed(template, answers).of(record)
    assert "".join(text for text, _ in parts) == template.format(**record)
    assert (end, is_end) == ("", "y" in answers)
    assert all(one[1] != other[1] for one, other in pairwise(parts))
    # Trained are the answers, each with the rest of its line.
    literals = {"x": texts[1], "y": texts[2]}
    trained = "".join(record[name] + literals[name].partition("\n")[0] for name in sorted(answers))
    assert "".join(text for text, flag in parts if flag) == trained


def test_a_chat_is_trained_on_the_turns_of_the_assistant() -> None:
    found = in_brackets(chat().of({"messages": CHAT}))
    assert found == (
        "<|im_start|>system\nbe short<|im_end|>\n<|im_start|>user\n1 + 1?<|im_end|>\n"
        "<|im_start|>assistant\n[2<|im_end|>]\n<|im_start|>user\nthanks<|im_end|>\n"
        "<|im_start|>assistant\n[bye<|im_end|>]\n[|]"
    )
    own = chat(messages="c.d", template="{from}: {value}\n", answers="human")
    turns = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]
    assert in_brackets(own.of({"c": {"d": turns}})) == "human: [hi]\ngpt: ho\n|"
    assert isinstance(own, ChatTurns)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ("hello", "is a string, not a list of messages"),
        ([{"content": "x"}], "message 0 of 'messages' has no role"),
        ([{"role": "user", "content": None}], "message 0 of 'messages': field 'content' is null"),
        (["x"], "has no role"),
    ],
)
def test_a_chat_that_is_none_is_a_bad_document(messages: object, words: str) -> None:
    with pytest.raises(BadText, match=words):
        chat().of({"messages": messages})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"template": "no field"}, "names no field"),
        ({"template": "{a"}, "Name fields in braces"),
        ({"template": "{} {a}"}, "name or path of a field"),
        ({"template": "{a:>8}"}, "name or path of a field"),
        ({"template": "{a!r}"}, "name or path of a field"),
        ({"template": "{q} {a}", "answers": ["b"]}, "'b' is no field of the template, which has"),
        ({"answers": "a"}, "belongs to a template"),
        ({"template": len, "answers": "a"}, "makes the whole document"),
        ({"template": "{a}", "text_key": "a"}, "names its fields itself"),
        ({"template": "{a}", "process_text_line_func": len}, "both say what the text"),
    ],
)
def test_templates_that_cannot_be_are_refused_at_once(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(OptionError, match=words):
        indexer(input_base_path=tmp_path, **options)


def marked(record: dict[str, Any]) -> list[tuple[str, bool]]:
    return [("Q: ", False), (record["q"], False), (" A: ", False), (record["a"], True)]


def test_functions_of_records_work_in_processes(tmp_path: Path) -> None:
    rows = [{"q": f"{n}?", "a": "!" * n} for n in range(9)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for number, workers in enumerate([0, 2]):
        made = {"output_base_path": tmp_path / str(number), "num_workers": workers}
        report = indexer(input_base_path=tmp_path / "a.parquet", template=marked, **made)()
        assert report.trained == sum(range(9))
    assert indexer(
        input_base_path=rows, output_base_path=tmp_path / "all", template=lambda row: row["a"]
    )().trained == sum(range(9))
    with pytest.raises(MalformedLineError, match=r"record 0 is no document: len returned 2"):
        indexer(input_base_path=rows, output_base_path=tmp_path / "bad", template=len)()


def test_special_tokens_stand_once_around_all_parts() -> None:
    words = {word: number for number, word in enumerate(["<s>", "</s>", "a", "b", "c"])}
    tokenizer = Tokenizer(models.WordLevel(words, "c"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    around = [("<s>", 0), ("</s>", 1)]
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=around)
    documents = [[("a b", False), ("c", True)], [("", False)], [("b", True), ("a", False)]]
    ids, lengths, trained, ends = PartsTokenizer(tokenizer_of(tokenizer)).encode(documents)
    assert ids.tolist() == [0, 2, 3, 4, 1, 0, 1, 0, 3, 2, 1]
    assert lengths.tolist() == [5, 2, 4]
    flags = [0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0]
    assert trained.astype(int).tolist() == flags
    assert ends.tolist() == [True, False, False]


def test_the_command_says_how_much_is_trained(tmp_path: Path) -> None:
    bpe(tmp_path / "tokenizer.json")
    rows = [{"q": f"{n} mills?", "a": "a river", "messages": CHAT} for n in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--tokenizer", tmp_path, "--sample-size", 32, "--workers", 0]
    out = tmp_path / "out"
    made = document("tokenize", tmp_path / "a.jsonl", out, *given, "--template", r"Q: {q}\n{a}")
    meta = read_meta(str(out / "index"))
    assert meta is not None
    assert meta.trained is not None
    assert 0 < made["trained"] == meta.trained.tokens < made["tokens"]
    assert f"trained  {made['trained']:,} tokens" in succeed("info", out).replace("     ", " ")
    assert document("info", out)["trained"] == made["trained"]
    told = succeed("tokenize", tmp_path / "a.jsonl", tmp_path / "b", *given, "--messages=messages")
    assert "trained: " in told
    done = invoke(
        "tokenize", tmp_path / "a.jsonl", tmp_path / "c", *given, "--messages=messages",
        "--answers", "nobody",
    )  # fmt: skip
    assert "no token is trained" in done.stderr


def test_damaged_flags_are_found(tmp_path: Path) -> None:
    rows = [{"q": "why", "a": "so"}] * 20
    indexer(input_base_path=rows, output_base_path=tmp_path, template="{q}{a}", sample_size=8)()
    flags = tmp_path / "index" / "trained.bin"
    data = flags.read_bytes()
    assert document("check", tmp_path)["findings"] == 0
    flags.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert "trained.bin is damaged" in document("check", tmp_path, code=1)["shown"][0]
    for damaged in (data[:-1], None):
        flags.unlink()
        if damaged is not None:
            flags.write_bytes(damaged)
        assert "trained.bin" in invoke("info", tmp_path).stderr
