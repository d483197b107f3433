"""Tokens on the command line: shown as numbers and as text, told of, planned, checked, refused."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

import penstock
from penstock.cli.show import _printing as _show_tokens
from tests.cli.commands import document, invoke, succeed, written
from tests.cli.token_samples import END, TEXTS, bpe, corpus
from tests.datasets.mds_files import write_mds

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a tokenizer, texts, and tokens of them."""
    bpe(tmp_path / "tokenizer.json")
    corpus(tmp_path / "corpus")
    tokenize(tmp_path, "tokens", "--sample-size", 48)
    return tmp_path


def tokenize(place: Path, name: str, *arguments: object) -> None:
    given = [place / "corpus", place / name, "--tokenizer", place / "tokenizer.json"]
    succeed("tokenize", *given, "--workers", 0, *arguments)


def megatron(place: Path, each: int = 1) -> Path:
    """Write the texts as Megatron-LM does, so many sequences a document; return their file."""
    rows = [np.append(row, 0) for row in penstock.open(place / "documents")]
    lengths = np.array([len(row) for row in rows], np.int32)
    np.concatenate(rows).astype(np.uint16).tofile(place / "corpus_text_document.bin")
    pointers = np.append(0, np.cumsum(lengths[:-1], dtype=np.int64) * 2).astype(np.int64)
    head = b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + (8).to_bytes(1, "little")
    documents = np.arange(0, len(rows) + 1, each, dtype=np.int64)
    counts = len(rows).to_bytes(8, "little") + len(documents).to_bytes(8, "little")
    body = lengths.tobytes() + pointers.tobytes() + documents.tobytes()
    (place / "corpus_text_document.idx").write_bytes(head + counts + body)
    return place / "corpus_text_document.bin"


def test_tokens_are_numbers_without_a_tokenizer(place: Path) -> None:
    expected = penstock.open(place / "tokens")[3].tolist()
    assert document("show", place / "tokens", "3") == [expected]
    assert str(expected) in succeed("show", place / "tokens", "3")
    assert len(document("show", place / "tokens")) == 5
    assert len(document("show", place / "tokens", "--sample", "3")) == 3
    assert document("show", place / "tokens", "-1") == [
        penstock.open(place / "tokens")[-1].tolist()
    ]


def test_a_terminal_gets_the_first_and_the_last_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_show_tokens.sys.stdout, "isatty", lambda: True)
    text = _show_tokens.ids_text(np.arange(1000))
    assert text.startswith("[0, 1, 2")
    assert text.endswith("998, 999]")
    assert "968 more" in text


def test_the_text_has_the_ends_of_documents_marked(place: Path) -> None:
    told = succeed("show", place / "tokens", "0", "--decode", place / "tokenizer.json")
    head, *lines = told.splitlines()
    assert head.startswith("# 0 – ")
    assert "48 tokens" in head
    assert lines[:3:2] == TEXTS[:2]
    assert lines[1] == "── end of document ──"
    assert lines[-1] == "── goes on in another sample ──"
    assert END not in told
    (shown,) = document("show", place / "tokens", "0", "--decode", place / "tokenizer.json")
    assert shown["documents"][:2] == TEXTS[:2]
    assert shown["padding"] == 0


def test_padding_is_marked(place: Path) -> None:
    tokenize(place, "packed", "--sample-size", 256, "--packing", "best_fit")
    shown = document("show", place / "packed", ":", "--decode", place / "tokenizer.json")
    assert sorted(text for one in shown for text in one["documents"]) == sorted(TEXTS)
    padded = next(number for number, one in enumerate(shown) if one["padding"])
    told = succeed("show", place / "packed", padded, "--decode", place / "tokenizer.json")
    assert f"{shown[padded]['padding']} token" in told.splitlines()[-1]
    assert "padding" in told.splitlines()[-1]


def as_of_another_tool(folder: Path) -> None:
    """Leave nothing of an index but what other tools write, too."""
    (folder / "index" / "meta.json").unlink()
    for file in (folder / "index").glob("document_*.bin"):
        file.unlink()


def test_a_folder_of_another_tool_is_cut_where_the_tokenizer_ends_documents(place: Path) -> None:
    as_of_another_tool(place / "tokens")
    (shown,) = document("show", place / "tokens", "0", "--decode", place / "tokenizer.json")
    assert shown["documents"][:2] == TEXTS[:2]


def test_megatron_files_are_shown_by_either_name_or_their_prefix(place: Path) -> None:
    tokenize(place, "documents")
    file = megatron(place)
    for path in (file, file.with_suffix(".idx"), file.with_suffix("")):
        (shown,) = document("show", path, "5", "--decode", place / "tokenizer.json")
        assert shown["documents"] == [TEXTS[5]]
    assert "Megatron-LM" in succeed("info", file)
    assert "nothing wrong" in succeed("check", file)
    assert document("plan", file, "--batch-size", "8")["records"] == len(TEXTS)


def test_documents_of_several_sequences_end_where_they_end(place: Path) -> None:
    tokenize(place, "documents")
    file = megatron(place, each=3)
    told = document("info", file)
    assert (told["records"], told["documents"]) == (len(TEXTS), len(TEXTS) // 3)
    text = succeed("info", file)
    assert "120, a sequence each" in text
    assert "a document each" not in text
    for number in (0, 1, 2, 119):
        shown = succeed("show", file, number, "--decode", place / "tokenizer.json")
        assert ("end of document" in shown) == (number % 3 == 2)
        assert ("goes on in the next sample" in shown) == (number % 3 != 2)
        assert TEXTS[number] in shown


@pytest.mark.parametrize("verb", ["info", "check", "show", "convert", "plan", "materialize"])
@pytest.mark.parametrize(
    ("path", "code", "told"),
    [
        ("tokens/tokenized-samples", 2, "/tokens, which its index opens"),
        ("tokens/tokenized-samples/0-tokenized-samples.bin", 2, "/tokens, which its index opens"),
        ("pairs", 2, "pairs/a.bin"),
        ("lone.bin", 2, "lone.idx"),
        ("lone.idx", 3, "lone.bin"),
    ],
)
def test_a_part_of_tokens_says_which_path_to_give(
    place: Path, verb: str, path: str, code: int, told: str
) -> None:
    if path == "pairs":
        tokenize(place, "documents")
        (place / "pairs").mkdir()
        for end in (".bin", ".idx"):
            half = megatron(place).with_suffix(end).rename(place / "pairs" / f"a{end}")
            shutil.copy(half, half.with_stem("b"))
    elif path.startswith("lone"):
        tokenize(place, "documents")
        megatron(place).with_suffix(path[-4:]).rename(place / path)
    more = {"convert": [place / "out.jsonl"], "plan": ["--batch-size", 2]}.get(verb, [])
    done = invoke(verb, place / path, *(["x:int64"] if verb == "materialize" else more))
    assert (done.exit_code, done.stdout) == (code, "")
    assert told in done.stderr
    assert not (place / "out.jsonl").exists()


def test_tokens_are_not_converted_but_the_lines_beside_them_are(place: Path) -> None:
    done = invoke("convert", place / "tokens", place / "out.jsonl")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "holds tokens, not lines" in done.stderr
    tokenize(place, "corpus", "--sample-size", 48)
    assert document("convert", place / "corpus", place / "out.jsonl")["records"] == len(TEXTS)


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_token_files_without_an_index_are_a_finding(place: Path, damage: str) -> None:
    index = place / "tokens" / "index"
    if damage == "gone":
        index.rename(place / "elsewhere")
    else:
        (index / "meta.json").chmod(0o644)
        (index / "meta.json").write_text("{")
    done = invoke("check", place / "tokens")
    assert done.exit_code == 1
    assert "missing index" in done.stdout
    assert "nothing wrong" not in done.stdout
    assert document("check", place / "tokens", code=1)["kinds"] == {"missing index": 1}
    for verb in ("info", "show"):
        done = invoke(verb, place / "tokens")
        assert done.exit_code == 3
        assert "penstock tokenize" in done.stderr


def test_a_killed_builder_beside_tokens_is_a_finding(place: Path) -> None:
    assert "nothing wrong" in succeed("check", place / "tokens")
    left = place / "tokens" / ".index.0123456789abcdef.penstock-index-tmp"
    left.mkdir()
    (left / "000000.unit").write_bytes(bytes(100))
    done = invoke("check", place / "tokens")
    assert done.exit_code == 1
    assert f"{left}: leftover: 100 B of a writer that is gone" in done.stdout
    assert document("check", place / "tokens", code=1)["findings"] == 1


def test_a_token_file_that_no_index_names_is_a_finding(place: Path) -> None:
    (file, *_) = (place / "tokens" / "tokenized-samples").iterdir()
    other = file.with_name(f"other-{file.name}")
    other.write_bytes(file.read_bytes())
    done = invoke("check", place / "tokens")
    assert done.exit_code == 1
    assert f"{other}: unknown file: the index does not name this token file" in done.stdout
    other.unlink()
    assert "nothing wrong" in succeed("check", place / "tokens")


def test_a_text_file_in_which_no_sample_ends_is_no_finding(place: Path) -> None:
    written(place / "corpus" / "z.jsonl", '{"text": "a"}')
    written(place / "corpus" / "zz.jsonl")
    tokenize(place, "short", "--sample-size", 64)
    assert 0 in [file.stat().st_size for file in (place / "short" / "tokenized-samples").iterdir()]
    assert "nothing wrong" in succeed("check", place / "short")


def test_tokens_that_came_without_their_borders_do_not_open(place: Path) -> None:
    for file in (place / "tokens" / "index").glob("document_*.bin"):
        file.unlink()
    done = invoke("check", place / "tokens")
    assert done.exit_code == 3
    assert "document_offsets.bin is missing" in done.stderr


def test_a_token_file_that_grew_is_told_by_its_bytes(place: Path) -> None:
    (file, *_) = (place / "tokens" / "tokenized-samples").iterdir()
    size = file.stat().st_size
    with file.open("ab") as out:
        out.write(bytes(100))
    done = invoke("info", place / "tokens")
    assert done.exit_code == 3
    assert f"{size:,} bytes then, {size + 100:,} now" in done.stderr


@pytest.mark.parametrize("ending", ["mds", "mds.zstd", "mds.gz"])
def test_shards_without_their_index_are_a_finding(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"shard.00000.{ending}").write_bytes(bytes(100))
    done = invoke("check", tmp_path)
    assert done.exit_code == 1
    assert f"{tmp_path}: missing index: shards of MDS lie here, and no index.json" in done.stdout
    (tmp_path / "index.json").write_text("{")
    done = invoke("check", tmp_path)
    assert done.exit_code == 1
    assert "the index.json that names them is damaged" in done.stdout
    (tmp_path / "index.json").unlink()
    written(tmp_path / "a.jsonl", '{"id": 1}')  # Which is what is read then.
    assert "nothing wrong" in succeed("check", tmp_path)


def test_lines_beside_token_files_are_checked_all_the_same(place: Path) -> None:
    (place / "tokens" / "index").rename(place / "elsewhere")
    written(place / "tokens" / "a.jsonl", '{"id": 1}', "{oops")
    told = document("check", place / "tokens", code=1)
    assert (told["records"], told["kinds"]) == (1, {"missing index": 1, "malformed line": 1})


def test_json_lines_may_have_any_name(tmp_path: Path) -> None:
    lines = written(tmp_path / "lines.bin", '{"id": 1}', '{"id": 2}')
    assert document("info", lines)["records"] == 2


def test_mds_samples_are_shown_and_their_tokens_decoded(place: Path) -> None:
    tokenize(place, "documents")
    documents = list(penstock.open(place / "documents"))
    rows = [{"tokens": row.astype(np.uint16), "id": n} for n, row in enumerate(documents)]
    write_mds(place / "mds", {"tokens": "ndarray:uint16", "id": "int"}, rows, samples=50)
    assert document("show", place / "mds", "7") == [{"id": 7, "tokens": documents[7].tolist()}]
    given = ["show", place / "mds", "7", "--decode", place / "tokenizer.json"]
    assert document(*given)[0]["documents"] == [TEXTS[7]]
    assert document(*given, "--fields", "tokens")[0]["documents"] == [TEXTS[7]]
    done = invoke(*given, "--fields", "id")
    assert done.exit_code == 2
    assert "tokens" in done.stderr
    assert document("info", place / "mds")["format"] == "MDS"
    assert "nothing wrong" in succeed("check", place / "mds")
    assert document("plan", place / "mds", "--batch-size", "8")["files"] == 3
    assert "id" in succeed("profile", place / "mds")
    assert document("materialize", place / "mds", "id:int64")["records"] == len(TEXTS)
    assert document("info", place / "mds")["materialized"]["columns"] == 1
    assert document("info", place / "mds")["profile"]["records"] == len(TEXTS)
    assert 0 < document("check", place / "mds", "--sample", "20%")["records"] < len(TEXTS)
    assert invoke("index", place / "mds").exit_code == 2


@pytest.mark.parametrize("verb", ["show", "info", "check", "plan", "bench"])
def test_verbs_that_look_take_tokens(place: Path, verb: str) -> None:
    more = {"plan": ["--batch-size", 4], "bench": ["--batch-size", 4, "--seconds", 0.1]}
    more["bench"] += ["--workers", "0"]
    told = document(verb, place / "tokens", *more.get(verb, []))
    assert told
    if verb != "show":
        assert told["records"] == len(penstock.open(place / "tokens"))


def test_a_plan_shows_the_tokens_of_a_step(place: Path) -> None:
    given = ["plan", place / "tokens", "--batch-size", 2, "--step", 0, "--show"]
    source = penstock.open(place / "tokens")
    (step,) = document(*given)["steps"]
    assert [row["value"] for row in step["records"]] == [
        source[row["record"]].tolist() for row in step["records"]
    ]
    assert f"# {step['records'][0]['record']} – " in succeed(*given)


@pytest.mark.parametrize("shift", [True, False])
def test_a_plan_goes_on_from_the_state_of_windows(place: Path, *, shift: bool) -> None:
    source = penstock.open(place / "tokens")
    tokens = penstock.Tokens(20, 10, shift)
    loader = penstock.DataLoader(source, tokens, batch_size=4, shuffle=True, num_workers=0)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    (place / "state.json").write_text(json.dumps(loader.state_dict()))
    given = ["plan", place / "tokens", "--batch-size", 4, "--state", place / "state.json"]
    done = invoke(*given)
    assert done.exit_code == 1
    assert "--length" in done.stderr
    given += ["--length", 20, "--stride", 10]
    assert document(*given)["records"] == len(source.windows(20, 10))
    (step,) = document(*given, "--step", 3, "--show")["steps"]
    rows = next(batches)
    assert [row["record"] for row in step["records"]] == rows.ids.tolist()
    shown = [row["value"][:20] for row in step["records"]]
    assert shown == rows["input_ids"].tolist()


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [("tokens", ["--stride", 4], "--length"), ("corpus/0.jsonl", ["--length", 4], "not tokens")],
)
def test_windows_are_of_tokens_and_have_a_length(
    place: Path, name: str, given: list[object], told: str
) -> None:
    succeed("index", place / "corpus/0.jsonl")
    done = invoke("plan", place / name, "--batch-size", 2, *given)
    assert done.exit_code == 2
    assert told in done.stderr


def test_bench_does_not_compare_what_is_the_same_for_tokens(place: Path) -> None:
    given = ["bench", place / "tokens", "--batch-size", 4, "--seconds", 0.1]
    for more in ([], ["--workers", "0,auto"]):
        told = [run["workers"] for run in document(*given, *more)["runs"]]
        assert "auto" in told
        assert 0 not in told


def test_info_tells_how_tokens_were_packed(place: Path) -> None:
    told = document("info", place / "tokens")
    assert (told["dtype"], told["sample_size"], told["packing"]) == ("uint16", 48, "concat")
    assert (told["documents"], told["eos"]) == (len(TEXTS), 0)
    assert told["tokens"] == told["records"] * 48
    text = succeed("info", place / "tokens")
    assert "samples" in text
    assert "concat, EOS 0" in text


@pytest.mark.parametrize("verb", ["index", "profile", "materialize"])
def test_verbs_that_are_about_fields_refuse_tokens(place: Path, verb: str) -> None:
    done = invoke(verb, place / "tokens")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "holds tokens" in done.stderr
    assert penstock.open(place / "tokens")[0].tolist()


@pytest.mark.parametrize("option", [["--where", "id > 3"], ["--fields", "id"]])
def test_tokens_have_no_fields(place: Path, option: list[str]) -> None:
    done = invoke("show", place / "tokens", *option)
    assert done.exit_code == 2
    assert "fields" in done.stderr


def test_what_cannot_be_decoded_is_told(place: Path) -> None:
    lines = written(place / "a.jsonl", '{"text": "a"}')
    done = invoke("show", lines, "--decode", place / "tokenizer.json")
    assert done.exit_code == 2
    assert "not tokens" in done.stderr
    done = invoke("show", place / "tokens", "9999")
    assert done.exit_code == 1
    assert "no such sample" in done.stderr
    (place / "broken.json").write_text("{}")
    done = invoke("show", place / "tokens", "--decode", place / "broken.json")
    assert done.exit_code == 3
    assert "broken.json" in done.stderr


def test_a_token_of_another_tokenizer_is_told(place: Path) -> None:
    file = place / "tokens" / "tokenized-samples" / "0-tokenized-samples.bin"
    tokens = np.fromfile(file, np.uint16)
    tokens[5] = 60_000
    file.chmod(0o644)
    tokens.tofile(file)
    as_of_another_tool(place / "tokens")
    done = invoke("show", place / "tokens", "0", "--decode", place / "tokenizer.json")
    assert done.exit_code == 2
    assert "token 60000 is none of the" in done.stderr


def test_a_damaged_border_is_a_finding(place: Path) -> None:
    ends = place / "tokens" / "index" / "document_ends.bin"
    values = np.fromfile(ends, np.uint32)
    values[0] += 1
    values.tofile(ends)
    done = invoke("check", place / "tokens")
    assert done.exit_code == 1
    assert "sample 0" in done.stdout
    done = invoke("check", place / "tokens", "--max", 0)
    assert done.exit_code == 1
    assert "sample 0:" not in done.stdout
    assert "1 not shown" in done.stdout
