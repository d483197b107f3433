"""Text files become token files: which tokens, in which samples, under which names."""

from __future__ import annotations

import logging
import operator
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import (
    IndexExistsError,
    MalformedLineError,
    ObjectExistsError,
    OptionError,
)
from penstock.index import (
    FileTextLinesIndexer,
    IndexStore,
    TokenizedSampleGenerator,
    create_default_jsonl_indexer,
    create_tokenize_and_index_jsonl_text_func,
    get_text_from_jsonl,
    read_bad_lines,
)
from penstock.index._load import read_meta
from tests.index.text_samples import sample_texts, trained_bpe
from tests.index.tokenize_samples import (
    EOS,
    by_hand,
    indexer,
    left_of,
    letters,
    letters_and_ends,
    line,
    tokenise,
    tokens_in,
    write_texts,
)
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "a.jsonl": ["to be", "", "or not", "x" * 700],
    "b2.jsonl": [],
    "b10.jsonl": ["ü", "that is the question"] * 20,
    "c.jsonl": ["", "", "?"],
}


@settings(max_examples=rounds(12, 500))
@given(
    texts=st.lists(st.lists(st.text("aäe\n", max_size=30), max_size=8), min_size=1, max_size=4),
    size=st.none() | st.integers(1, 40),
    unit_bytes=st.sampled_from([15, 60, 1 << 20]),
    pad=st.none() | st.just(7),
)
def test_samples_are_those_that_one_makes_by_hand(
    texts: list[list[str]],
    size: int | None,
    unit_bytes: int,
    pad: int | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    files = {f"{number}.jsonl": some for number, some in enumerate(texts)}
    write_texts(folder, files)
    pad = None if size is None else pad
    options: dict[str, Any] = {} if pad is None else {"keep_remainder": "pad", "pad_idx": pad}
    # Some tokens inside texts are that which ends documents: no border is guessed from it.
    report = tokenise(folder, letters_and_ends, sample_size=size, unit_bytes=unit_bytes, **options)
    expected = by_hand(files, size, letters_and_ends, pad)
    assert tokens_in(folder) == expected
    total = sum(len(letters(text)) + (size is not None) for some in texts for text in some)
    assert report.documents == sum(map(len, texts))
    assert report.samples == len(expected.rows)
    assert (report.tokens, report.tokens + report.dropped) == (total - report.dropped, total)
    meta = read_meta(str(folder / "index"))
    assert meta is not None
    assert meta.tokens is not None
    told = meta.tokens
    assert (told.documents, told.tokens) == (report.documents, report.tokens)
    assert (told.dropped, told.padding) == (report.dropped, report.padding)
    assert meta.records == report.samples
    if size is not None:
        assert report.samples * size == report.tokens + report.padding
    assert left_of(folder) == []


@pytest.mark.parametrize(
    ("workers", "packing"), [(0, "concat"), (0, "best_fit"), (1, "concat"), (2, "best_fit")]
)
def test_samples_do_not_depend_on_processes_nor_units(
    workers: int, packing: str, tmp_path: Path
) -> None:
    tokenizer = trained_bpe()
    files = {f"{n}.jsonl": sample_texts(60, n) for n in range(3)}
    found = []
    for number, options in enumerate([{}, {"num_workers": workers, "unit_bytes": 3000}]):
        folder = tmp_path / str(number)
        write_texts(folder, files)
        found.append(
            (
                tokenise(folder, tokenizer, sample_size=32, packing=packing, **options),
                tokens_in(folder),
            )
        )
    (one, alone), (many, together) = found
    assert together == alone
    assert (one.documents, one.samples, one.tokens) == (many.documents, many.samples, many.tokens)
    if packing == "concat":
        assert alone == by_hand(files, 32, lambda text: tokenizer.encode(text).ids)


@settings(max_examples=rounds(8, 300))
@given(
    texts=st.lists(st.lists(st.text("ae", max_size=30), max_size=9), min_size=1, max_size=3),
    size=st.integers(1, 12),
    unit_bytes=st.sampled_from([40, 1 << 20]),
)
def test_best_fit_keeps_every_document_whole_that_fits(
    texts: list[list[str]], size: int, unit_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    write_texts(folder, {f"{number}.jsonl": some for number, some in enumerate(texts)})
    options: dict[str, Any] = {"packing": "best_fit", "pad_idx": 0, "unit_bytes": unit_bytes}
    report = tokenise(folder, letters_and_ends, sample_size=size, **options)
    found = tokens_in(folder)
    assert found.ends is not None
    assert found.goes_on is not None
    stream = np.frombuffer(b"".join(found.bins.values()), "<u2")
    pieces = []
    rows = stream.reshape(-1, size).tolist()
    for sample, ends, goes_on in zip(rows, found.ends, found.goes_on, strict=True):
        assert set(sample[ends[-1] :]) <= {0}
        of = [sample[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        pieces += [(tokens, 0) for tokens in of[:-1]] + [(of[-1], goes_on)]
    documents = [[*letters_and_ends(text), EOS] for some in texts for text in some]
    cut = [
        (one[at : at + size], int(at + size < len(one)))
        for one in documents
        for at in range(0, len(one), size)
    ]
    assert sorted(pieces) == sorted(cut)
    assert report.padding == report.samples * size - report.tokens
    assert report.tokens == sum(map(len, documents))


def test_compressed_files_and_those_of_one_stem_each_have_their_own_tokens(tmp_path: Path) -> None:
    for name, text in (("a.jsonl", "one"), ("b/a.jsonl", "two"), ("c.jsonl", "three")):
        write_texts(tmp_path, {name: [text]})
    (tmp_path / "b" / "A.jsonl.zst").write_bytes(zstandard.compress(line("four").encode()))
    (tmp_path / "d.jsonl.zst").write_bytes(zstandard.compress(line("five").encode()))
    tokenise(tmp_path)
    assert {name: data[::2].decode() for name, data in tokens_in(tmp_path).bins.items()} == {
        "a-tokenized-samples.bin": "one",
        "b/A.jsonl.zst-tokenized-samples.bin": "four",
        "b/a.jsonl-tokenized-samples.bin": "two",
        "c-tokenized-samples.bin": "three",
        "d-tokenized-samples.bin": "five",
    }


def test_lines_are_documents_whatever_stands_around_them(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf\n{"text": "one"}\r\n  \n{"a": 1, "text": "two"}'
    (tmp_path / "a.jsonl").write_bytes(text)
    report = tokenise(tmp_path, sample_size=2, unit_bytes=4)
    assert (report.documents, report.samples) == (2, 4)
    assert tokens_in(tmp_path).bins == by_hand({"a.jsonl": ["one", "two"]}, 2).bins


def test_the_text_is_a_field_a_way_to_one_or_what_a_function_says(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"meta": {"body": "yes"}, "text": "no"}\n')
    for number, options in enumerate(
        [{"text_key": "meta.body"}, {"process_text_line_func": lambda text: text[19:22].decode()}]
    ):
        output = tmp_path / f"out{number}"
        tokenise(tmp_path, output_base_path=output, **options)
        assert tokens_in(output).bins == by_hand({"a.jsonl": ["yes"]}).bins
    with pytest.raises(OptionError, match="text_key='b' and process_text_line_func"):
        indexer(letters, tmp_path, text_key="b", process_text_line_func=bytes.decode)


def test_a_function_is_given_the_line_with_its_newline(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("one\ntwo")
    tokenise(tmp_path, process_text_line_func=bytes.decode)
    assert tokens_in(tmp_path).bins["a-tokenized-samples.bin"][::2] == b"one\ntwo"


def test_where_to_is_said_or_follows_from_where_from(tmp_path: Path) -> None:
    write_texts(tmp_path / "in", FILES)
    files = [tmp_path / "in" / "c.jsonl", tmp_path / "in" / "a.jsonl"]
    expected = by_hand({"c.jsonl": FILES["c.jsonl"], "a.jsonl": FILES["a.jsonl"]}, 5)
    for number, options in enumerate(
        [
            {"output_base_path": tmp_path / "out0"},
            {"index_store": IndexStore(tmp_path / "out1")},
            {"output_base_path": tmp_path / "out2", "base_output_path": tmp_path / "out2/mine"},
            {"input_base_path": tmp_path / "out3"},
        ]
    ):
        indexer(letters, input_file_paths=files, sample_size=5, **options)()
        output = tmp_path / f"out{number}"
        if number == 2:
            (output / "mine").rename(output / "tokenized-samples")
            continue
        assert tokens_in(output) == expected
    with pytest.raises(ValueError, match=r"input_base_path=.*input_file_paths="):
        create_tokenize_and_index_jsonl_text_func(letters, EOS, output_base_path=tmp_path)
    with pytest.raises(ValueError, match="output_base_path="):
        create_tokenize_and_index_jsonl_text_func(letters, EOS, input_file_paths=files)
    with pytest.raises(ValueError, match="does not lie below"):
        indexer(letters, tmp_path / "in", base_output_path=tmp_path / "elsewhere")
    with pytest.raises(OptionError, match="cannot tell what"):
        indexer(letters, tmp_path / "out0" / "index")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"packing": "best_fit"}, "sample_size="),
        ({"keep_remainder": "pad"}, "sample_size="),
        ({"packing": "worst_fit"}, '"concat" or "best_fit"'),
        ({"keep_remainder": "keep"}, '"drop" or "pad"'),
        ({"sample_size": 0}, "sample_size"),
        ({"sample_size": 1 << 32}, "at most"),
        ({"on_error": "null"}, '"raise" or "skip"'),
        ({"num_workers": -1}, "num_workers"),
        ({"token_dtype": np.float32}, "integers"),
        ({"token_dtype": np.uint8}, "eos_idx=256 does not fit.*np.uint16"),
        ({"pad_idx": 65_536, "sample_size": 2}, "pad_idx=65536 does not fit.*np.uint32"),
        ({"file_name_postfix": "a/b"}, "file_name_postfix"),
        ({"progress": "yes"}, "progress="),
    ],
)
def test_options_that_cannot_work_are_refused(
    options: dict[str, Any], match: str, tmp_path: Path
) -> None:
    write_texts(tmp_path, {"a.jsonl": ["a"]})
    with pytest.raises(OptionError, match=match):
        tokenise(tmp_path, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(("token", "workers"), [(65_536, 0), (-1, 0), (1 << 40, 1)])
def test_a_token_that_does_not_fit_is_named_with_its_document(
    token: int, workers: int, tmp_path: Path
) -> None:
    write_texts(tmp_path, {"a.jsonl": ["a"] * 50, "b.jsonl": ["a", "", *["a"] * 20, "b", "a"]})
    text = (tmp_path / "b.jsonl").read_text()
    (tmp_path / "b.jsonl").write_text("\n" + text)
    with pytest.raises(OptionError) as failure:
        tokenise(
            tmp_path,
            {"a": [1], "b": [3, token], "": []}.__getitem__,
            unit_bytes=64,
            num_workers=workers,
        )
    told = str(failure.value)
    assert f"token {token} does not fit uint16" in told
    assert f"line 24 (record 22, byte {text.index('b') - 10 + 1})" in told
    assert str(tmp_path / "b.jsonl") in told
    assert not (tmp_path / "index").exists()
    assert not (tmp_path / "tokenized-samples").exists()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, ">u4", np.uint64])
def test_tokens_are_stored_as_they_were_asked_for(dtype: Any, tmp_path: Path) -> None:
    write_texts(tmp_path, {"a.jsonl": ["ab"]})
    made = create_tokenize_and_index_jsonl_text_func(
        letters, 0, tmp_path, sample_size=3, token_dtype=dtype, progress=False
    )
    made()
    stored = np.dtype(dtype).newbyteorder("<")
    (data,) = tokens_in(tmp_path).bins.values()
    assert np.frombuffer(data, stored).tolist() == [97, 98, 0]
    meta = read_meta(str(tmp_path / "index"))
    assert meta is not None
    assert meta.tokens is not None
    assert meta.tokens.dtype == stored.name


BAD = [
    ("{oops", "character"),
    ("[1]", "an array, not an object"),
    ('{"a": 1}', "no field 'text'"),
    ('{"text": 3}', "a number, not a string"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=["json", "object", "field", "string"])
def test_a_line_that_is_no_document_is_named(bad: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line("one") * 40 + "\n" + f"{bad}\n" + line("two"))
    with pytest.raises(MalformedLineError) as failure:
        tokenise(tmp_path, sample_size=3, unit_bytes=100)
    assert failure.value.path == str(tmp_path / "a.jsonl")
    assert failure.value.line_number == 42
    assert "line 42 (record 40, byte 641)" in str(failure.value)
    assert reason in str(failure.value)
    assert 'on_error="skip"' in str(failure.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_lines_that_are_no_documents_are_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [line("one"), *(f"{bad}\n" for bad, _ in BAD), "\n", line("!"), line("two")]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    (tmp_path / "b.jsonl").write_text("{oops\n")

    def refusing(text: str) -> list[int]:
        if text == "!":
            raise ValueError("not this one")
        return letters(text)

    with caplog.at_level(logging.WARNING):
        report = tokenise(tmp_path, refusing, on_error="skip", unit_bytes=20)
    assert (report.documents, report.bad_documents) == (2, 6)
    assert tokens_in(tmp_path).rows == [[0, 0, 6], [0, 6, 6]]
    bad = list(read_bad_lines(tmp_path / "index"))
    assert [(one.file, one.line) for one in bad] == [
        *(("a.jsonl", number) for number in (2, 3, 4, 5, 7)), ("b.jsonl", 1),
    ]  # fmt: skip
    text = (tmp_path / "a.jsonl").read_bytes()
    assert [text[one.offset : one.offset + one.bytes].decode() for one in bad[:-1]] == [
        *lines[1:5], lines[6],
    ]  # fmt: skip
    assert "ValueError: not this one" in bad[4].reason
    assert "lines set aside, which are no documents: 6, first line" in caplog.text
    assert "bad_lines.ndjson" in caplog.text


def test_what_a_tokenizer_raises_comes_with_the_document(tmp_path: Path) -> None:
    write_texts(tmp_path, {"a.jsonl": ["a", "b", "c"]})
    with pytest.raises(KeyError) as failure:
        tokenise(tmp_path, {"a": [1], "b": [2]}.__getitem__)
    assert any("line 3 (record 2, byte 28)" in note for note in failure.value.__notes__)
    with pytest.raises(OptionError, match="expected the token ids") as failure:
        tokenise(tmp_path, {"a": [1], "b": "oops"}.__getitem__)
    assert any("line 2" in note for note in failure.value.__notes__)


def test_tokens_and_their_index_are_not_overwritten_unless_asked_to(tmp_path: Path) -> None:
    write_texts(tmp_path, FILES)
    tokenise(tmp_path, sample_size=5)
    before = tokens_in(tmp_path)
    with pytest.raises(FileExistsError, match="overwrite=True") as failure:
        tokenise(tmp_path, sample_size=6)
    assert isinstance(failure.value, ObjectExistsError)
    with pytest.raises(IndexExistsError, match="overwrite=True"):
        tokenise(tmp_path, sample_size=6, file_name_postfix="other")
    assert tokens_in(tmp_path) == before
    tokenise(tmp_path, sample_size=6, overwrite=True)
    assert tokens_in(tmp_path) == by_hand(FILES, 6)
    tokenise(tmp_path, sample_size=6, overwrite=True, file_name_postfix="other")
    assert sorted(path.name for path in (tmp_path / "tokenized-samples").iterdir()) == [
        "a-other.bin", "b10-other.bin", "b2-other.bin", "c-other.bin",
    ]  # fmt: skip
    assert left_of(tmp_path) == []


def test_an_index_of_records_and_one_of_tokens_do_not_replace_each_other(tmp_path: Path) -> None:
    write_texts(tmp_path, FILES)
    create_default_jsonl_indexer(tmp_path)()
    for overwrite in (False, True):
        with pytest.raises(IndexExistsError, match="output_base_path="):
            tokenise(tmp_path, overwrite=overwrite)
    assert not (tmp_path / "tokenized-samples").exists()
    IndexStore(tmp_path).clear()
    tokenise(tmp_path)
    for options in ({"overwrite": True}, {"update": True}):
        with pytest.raises(IndexExistsError, match="output_base_path="):
            create_default_jsonl_indexer(tmp_path, **options)()  # type: ignore[arg-type]


def test_the_index_keeps_its_documents_through_a_pickle(tmp_path: Path) -> None:
    write_texts(tmp_path, FILES)
    tokenise(tmp_path, sample_size=5)
    index = IndexStore(tmp_path).load()
    again = pickle.loads(pickle.dumps(index))
    assert index.documents is not None
    for here, there in zip(index.documents, again.documents, strict=True):
        assert not here.flags.owndata
        assert here.tolist() == there.tolist()


class OwnStore:
    """An index of a user's own."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def init_store(self) -> None:
        self.told.append("begin")

    def add_sample(self, file_location: str, byte_offset: int, num_bytes: int) -> None:
        self.told.append((file_location, byte_offset, num_bytes))

    def close(self) -> None:
        self.told.append("end")

    def load(self) -> Any:
        return self.told

    def exists(self) -> bool:
        return bool(self.told)

    def clear(self) -> None:
        self.told = []


def test_an_index_of_ones_own_hears_of_every_sample(tmp_path: Path) -> None:
    write_texts(tmp_path, FILES)
    store, output = OwnStore(), tmp_path / "out"
    make = indexer(letters, tmp_path, base_output_path=output, index_store=store, sample_size=5)
    make()
    expected = by_hand(FILES, 5)
    names = [str(output / name.removeprefix("tokenized-samples/")) for name in expected.names]
    rows = [(names[file], at, size) for file, at, size in expected.rows]
    assert store.told == ["begin", *rows, "end"]
    assert {path.name: path.read_bytes() for path in output.iterdir()} == expected.bins
    assert not (tmp_path / "index").exists()
    with pytest.raises(FileExistsError):
        make()
    assert left_of(tmp_path) == []


@pytest.mark.parametrize("size", [None, 5])
def test_a_generator_put_together_by_hand_makes_the_same_samples(
    size: int | None, tmp_path: Path
) -> None:
    write_texts(tmp_path, FILES)
    generator = TokenizedSampleGenerator(
        get_text_from_jsonl,
        letters,
        EOS,
        sample_size=size,
        base_output_path=tmp_path / "tokenized-samples",
    )
    assert generator.get_sample_schema() is None
    paths = [str(tmp_path / name) for name in FILES]
    FileTextLinesIndexer(paths, IndexStore(tmp_path), generator)()
    expected = by_hand(FILES, size)
    assert tokens_in(tmp_path)[:3] == expected[:3]
    meta = read_meta(str(tmp_path / "index"))
    assert meta is not None
    assert meta.kind == "tokens"
    with pytest.raises(FileExistsError):
        generator.prepare(paths[0])
    wrong = TokenizedSampleGenerator(get_text_from_jsonl, lambda _: [70_000], EOS)
    wrong.prepare(str(tmp_path / "z.jsonl"))
    with pytest.raises(OptionError, match=r"token 70000 does not fit uint16.*line 1 of"):
        wrong.create_samples(b'{"text": ""}')


class View:
    def __init__(self) -> None:
        self.bytes = self.documents = self.tokens = 0

    def add(self, count: int) -> None:
        self.bytes += count

    def count(self, documents: int, tokens: int) -> None:
        self.documents += documents
        self.tokens += tokens


def test_a_function_of_many_texts_is_told_how_to_say_so(tmp_path: Path) -> None:
    def many(texts: list[str]) -> list[list[int]]:
        return [letters(text) for text in operator.concat(texts, [])]

    write_texts(tmp_path, {"a.jsonl": ["one", "two"]})
    with pytest.raises(TypeError) as raised:
        tokenise(tmp_path, many, batched=False)
    assert any("batched=True" in note for note in raised.value.__notes__)


def test_a_view_hears_of_bytes_documents_and_tokens(tmp_path: Path) -> None:
    write_texts(tmp_path, FILES)
    view = View()
    report = tokenise(tmp_path, progress=view, unit_bytes=100, sample_size=5)
    assert view.bytes == sum(path.stat().st_size for path in tmp_path.glob("*.jsonl"))
    assert view.documents == report.documents
    assert view.tokens == report.tokens + report.dropped


@pytest.mark.parametrize("workers", [0, 1])
def test_half_a_letter_is_a_bad_document_where_the_tokenizer_does_not_take_it(
    workers: int, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(line("one") + '{"text": "two\\ud800"}\n' + line("three"))
    options: dict[str, Any] = {"sample_size": 1, "num_workers": workers}
    with pytest.raises(MalformedLineError, match=r"line 2 .* holds \\ud800 at character 3, half"):
        tokenise(tmp_path, trained_bpe().encode, **options)
    report = tokenise(tmp_path, trained_bpe().encode, on_error="skip", **options)
    assert (report.documents, report.bad_documents) == (2, 1)
