"""`penstock tokenize`: text in, samples out, told on the way, and gone on with after a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from glob import glob
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import penstock
from penstock.cli._tokenize import PartsLeft, TokenProgress
from penstock.index.tokens._journal import PutAside, note
from tests.cli.commands import document, hidden, invoke, options, succeed, visible, written
from tests.cli.token_samples import TEXTS, bpe, corpus
from tests.faults.halting import halting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.s3_server import S3Server


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return corpus(tmp_path / "corpus")


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return bpe(tmp_path / "tokenizer.json")


def stream(tokenizer: Tokenizer, texts: list[str] = TEXTS) -> list[int]:
    """Return the tokens of all texts, each with its end."""
    return [token for text in texts for token in [*tokenizer.encode(text).ids, 0]]


def tokenized(texts: Path, *arguments: object, code: int = 0) -> dict[str, object]:
    """Tokenise into the folder `tokens` beside the texts; return what is told."""
    place = texts.parent
    given = [texts, place / "tokens", "--tokenizer", place / "tokenizer.json", "--workers", 0]
    made: dict[str, object] = document("tokenize", *given, *arguments, code=code)
    return made


def test_samples_are_the_stream_of_all_documents_cut(texts: Path, tokenizer: Tokenizer) -> None:
    made = tokenized(texts, "--sample-size", 32)
    expected = stream(tokenizer)
    samples = len(expected) // 32
    assert made["samples"] == samples
    assert (made["documents"], made["files"]) == (len(TEXTS), 2)
    assert made["tokens"] == samples * 32
    assert made["dropped"] == len(expected) % 32
    source = penstock.open(texts.parent / "tokens")
    assert np.concatenate(source[:]).tolist() == expected[: samples * 32]
    assert source[0].dtype == np.uint16


def test_what_was_made_is_told_with_what_to_do_next(texts: Path, tokenizer: Tokenizer) -> None:
    place = texts.parent
    given = [texts, place / "tokens", "--tokenizer", place / "tokenizer.json", "--workers", 0]
    told = succeed("tokenize", *given, "--sample-size", 32)
    total = len(stream(tokenizer))
    assert f"120 documents, {total // 32 * 32:,} tokens (uint16) in {total // 32}" in told
    assert "samples of 32 tokens, concat" in told
    assert "dropped" in told
    assert "tokens/s" in told
    assert f"penstock show {place}/tokens 0 --decode {place}/tokenizer.json" in told
    line = told.rpartition("use it: ")[2]
    loader = eval(line, {"penstock": penstock})
    assert next(iter(loader))["input_ids"].shape == (8, 32)


def test_without_a_sample_size_a_sample_is_a_document(texts: Path, tokenizer: Tokenizer) -> None:
    made = tokenized(texts)
    assert (made["samples"], made["sample_size"], made["packing"]) == (len(TEXTS), None, None)
    source = penstock.open(texts.parent / "tokens")
    assert source[7].tolist() == tokenizer.encode(TEXTS[7]).ids


def test_best_fit_keeps_documents_whole_and_fills_up(texts: Path, tokenizer: Tokenizer) -> None:
    made = tokenized(texts, "--sample-size", 64, "--packing", "best_fit", "--pad", 5)
    assert made["tokens"] == len(stream(tokenizer))
    assert made["samples"] * 64 == made["tokens"] + made["padding"]  # type: ignore[operator]
    rows = np.stack(list(penstock.open(texts.parent / "tokens")))
    assert set(rows[:, -1].tolist()) <= {0, 5}


def test_the_rest_is_kept_when_asked_for(texts: Path, tokenizer: Tokenizer) -> None:
    made = tokenized(texts, "--sample-size", 100, "--keep-remainder")
    total = len(stream(tokenizer))
    assert (made["tokens"], made["dropped"]) == (total, 0)
    assert made["samples"] == -(-total // 100)


def test_text_comes_from_any_field_and_files_by_pattern(texts: Path, tokenizer: Tokenizer) -> None:
    pattern = f"{texts}/1.jsonl*"
    place = texts.parent
    given = [pattern, place / "tokens", "--tokenizer", place / "tokenizer.json", "--workers", 0]
    made = document("tokenize", *given, "--text-key", "meta.body", "--sample-size", 16)
    assert made["documents"] == len(TEXTS) // 2
    expected = stream(tokenizer, [text.upper() for text in TEXTS[len(TEXTS) // 2 :]])
    assert penstock.open(place / "tokens")[0].tolist() == expected[:16]


@pytest.mark.parametrize("option", ["--eos", "--pad"])
def test_a_token_that_the_vocabulary_does_not_have_is_refused(
    texts: Path, tokenizer: Tokenizer, option: str
) -> None:
    known = tokenizer.get_vocab_size()
    place = texts.parent
    given = [texts, place / "tokens", "--tokenizer", place / "tokenizer.json", "--sample-size", 32]
    done = invoke("tokenize", *given, "--packing", "best_fit", option, known)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{option} {known}" in done.stderr
    assert f"it has {known}, from 0 to {known - 1}" in " ".join(done.stderr.split())
    assert not (place / "tokens").exists()
    assert tokenized(texts, "--sample-size", 32, "--eos", known - 1)["dtype"] == "uint16"


def wide(path: Path) -> None:
    """Write a tokenizer that has a token which does not fit two bytes."""
    vocabulary = {"[UNK]": 0, "river": 70_000}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


def test_a_type_that_is_too_narrow_names_the_option(texts: Path) -> None:
    wide(texts.parent / "tokenizer.json")
    assert tokenized(texts, "--sample-size", 32, "--eos", 0)["dtype"] == "uint32"
    place = texts.parent
    given = [texts, place / "narrow", "--tokenizer", place / "tokenizer.json", "--workers", 0]
    for eos in (0, 70_000):
        done = invoke("tokenize", *given, "--sample-size", 8, "--dtype", "uint16", "--eos", eos)
        assert done.exit_code == 2
        assert "Give --dtype uint32." in done.stderr
        assert "_dtype" not in done.stderr


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_no_sample_at_all_is_a_finding(texts: Path, tokenizer: Tokenizer, json: list[str]) -> None:
    place = texts.parent
    given = [texts, place / "tokens", "--tokenizer", place / "tokenizer.json", "--workers", 0]
    done = invoke("tokenize", *given, "--sample-size", 9_000_000, *json)
    assert done.exit_code == 1
    assert f"all {len(stream(tokenizer)):,} tokens were dropped" in done.stderr
    for remedy in ("--sample-size", "--keep-remainder", "best_fit"):
        assert remedy in done.stderr
    assert "use it" not in done.stdout


def test_a_corpus_of_nothing_makes_no_sample(tmp_path: Path) -> None:
    bpe(tmp_path / "tokenizer.json")
    written(tmp_path / "corpus" / "a.jsonl")
    given = [tmp_path / "corpus", tmp_path / "tokens", "--tokenizer", tmp_path / "tokenizer.json"]
    done = invoke("tokenize", *given, "--sample-size", 8)
    assert done.exit_code == 1
    assert "holds no documents" in done.stderr


@pytest.mark.parametrize("below", ["", "/x/y"])
def test_a_file_is_no_place_for_tokens(texts: Path, tokenizer: Tokenizer, below: str) -> None:
    del tokenizer
    place = texts.parent
    written(place / "file", "something")
    given = [texts, f"{place}/file{below}", "--tokenizer", place / "tokenizer.json"]
    done = invoke("tokenize", *given, "--sample-size", 8)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "DST" in done.stderr
    assert "is a file" in done.stderr


def test_a_folder_that_cannot_be_made_is_told_as_dst(texts: Path, tokenizer: Tokenizer) -> None:
    del tokenizer
    given = [texts, "/proc/no/such", "--tokenizer", texts.parent / "tokenizer.json"]
    done = invoke("tokenize", *given, "--sample-size", 8)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "another DST" in done.stderr
    assert "index=" not in done.stderr
    assert "PENSTOCK_CACHE" not in done.stderr


def test_an_unknown_end_asks_for_its_option(texts: Path) -> None:
    place = texts.parent
    bpe(place / "tokenizer.json", end=None)
    given = [texts, place / "tokens", "--tokenizer", place / "tokenizer.json"]
    done = invoke("tokenize", *given, "--sample-size", 32)
    assert done.exit_code == 2
    assert "--eos ID" in done.stderr
    assert not (place / "tokens").exists()
    assert invoke("tokenize", *given, "--sample-size", 32, "--eos", 3).exit_code == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--packing", "best_fit"], "--sample-size"),
        (["--keep-remainder"], "--sample-size"),
        (["--sample-size", 8, "--pad", 3], "--keep-remainder"),
        (["--sample-size", 8, "--packing", "best_fit", "--keep-remainder"], "leave it out"),
    ],
)
def test_options_that_do_not_go_together_are_told(
    texts: Path, tokenizer: Tokenizer, given: list[object], told: str
) -> None:
    del tokenizer
    place = texts.parent
    arguments = [texts, place / "tokens", "--tokenizer", place / "tokenizer.json", *given]
    done = invoke("tokenize", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr


def test_a_line_without_text_is_named_or_left_out(texts: Path, tokenizer: Tokenizer) -> None:
    del tokenizer
    place = texts.parent
    written(texts / "2.jsonl", '{"text": "fine"}', '{"body": 1}', "{oops")
    given = [texts, place / "tokens", "--tokenizer", place / "tokenizer.json", "--workers", 0]
    done = invoke("tokenize", *given, "--sample-size", 32)
    assert done.exit_code == 1
    assert "2.jsonl" in done.stderr
    assert "--on-error skip" in done.stderr
    assert "--text-key FIELD or --template TEXT (a chat: --messages FIELD)" in done.stderr
    assert not (place / "tokens" / "index").exists()
    done = invoke("tokenize", *given, "--sample-size", 32, "--on-error", "skip")
    assert done.exit_code == 0
    assert "2 lines without a text left out" in done.stdout
    assert "2.jsonl" in done.stderr
    assert (place / "tokens" / "index" / "bad_lines.ndjson").read_text().count("\n") == 2


def test_tokens_that_are_there_are_not_replaced_unasked(texts: Path, tokenizer: Tokenizer) -> None:
    del tokenizer
    tokenized(texts, "--sample-size", 32)
    before = penstock.open(texts.parent / "tokens")[0].tolist()
    place = texts.parent
    given = [texts, place / "tokens", "--tokenizer", place / "tokenizer.json", "--workers", 0]
    done = invoke("tokenize", *given, "--sample-size", 16)
    assert done.exit_code == 2
    assert done.stderr.count("--overwrite") == 1
    assert penstock.open(place / "tokens")[0].tolist() == before
    assert tokenized(texts, "--sample-size", 16, "--overwrite")["sample_size"] == 16


@pytest.mark.parametrize("what", ["nothing", "tokenizer", "folder without lines"])
def test_what_is_missing_is_named(texts: Path, tokenizer: Tokenizer, what: str) -> None:
    del tokenizer
    place = texts.parent
    (place / "empty").mkdir()
    src = {"nothing": place / "no", "folder without lines": place / "empty"}.get(what, texts)
    file = place / ("no.json" if what == "tokenizer" else "tokenizer.json")
    done = invoke("tokenize", src, place / "tokens", "--tokenizer", file, "--sample-size", 8)
    assert (done.exit_code, done.stdout) == (3, "")
    assert str(file if what == "tokenizer" else src) in done.stderr


def test_a_bucket_is_tokenised_like_a_folder(
    texts: Path, tokenizer: Tokenizer, s3_server: S3Server, bucket: str
) -> None:
    client = s3_server.client()
    for file in sorted(texts.iterdir()):
        client.put_object(Bucket=bucket, Key=f"corpus/{file.name}", Body=file.read_bytes())
    client.close()
    place = texts.parent
    storage = options(s3_server.storage_options)
    more = ["--tokenizer", place / "tokenizer.json", "--sample-size", 32, "--workers", 0, *storage]
    for dst in (str(place / "tokens"), f"s3://{bucket}/tokens"):
        made = document("tokenize", f"s3://{bucket}/corpus", dst, *more)
        assert made["documents"] == len(TEXTS)
        assert document("show", dst, "0", *storage) == [stream(tokenizer)[:32]]
        assert document("info", dst, *storage)["documents"] == len(TEXTS)
    done = invoke("tokenize", texts, f"s3://{bucket}/tokens", *more, "--overwrite")
    assert (done.exit_code, "another DST" in " ".join(done.stderr.split())) == (2, True)
    assert not re.search(r"overwrite=|_path=|--dtype", done.stderr)


SMALL_PARTS = """
import penstock.index.tokens._tokenize as made
from penstock.cli import main
made._UNIT_BYTES = 1 << 16
main()
"""


@contextmanager
def halted(line: list[str], folder: Path, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a command that has finished two parts and waits."""
    env = {**os.environ, **halting("*.unit", after=2)}
    with subprocess.Popen(line, env=env, process_group=0, **options) as process:
        # Pathlib minds that folders go while it looks.
        while len(glob("tokens/.*/*.unit", root_dir=folder)) < 2:  # noqa: PTH207
            assert process.poll() is None
            time.sleep(0.01)
        yield process


def test_killed_and_run_again_it_goes_on(tmp_path: Path) -> None:
    bpe(tmp_path / "tokenizer.json")
    texts = corpus(tmp_path / "corpus", [" ".join(TEXTS)] * 120, files=3)
    given = ["tokenize", texts, tmp_path / "tokens", "--tokenizer", tmp_path / "tokenizer.json"]
    given += ["--sample-size", 128, "--workers", 0, "--json"]
    line = [sys.executable, "-c", SMALL_PARTS, *map(str, given)]
    with halted(line, tmp_path, stdout=subprocess.PIPE) as process:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert visible(tmp_path / "tokens") == []

    made = json.loads(subprocess.check_output(line, timeout=60))
    assert made["documents"] == 120
    assert made["kept_parts"] == 2
    assert hidden(tmp_path / "tokens") == []
    given[2] = tmp_path / "again"
    again = document(*given[:-1])
    assert (again["samples"], again["kept_parts"]) == (made["samples"], 0)
    once, twice = (penstock.open(tmp_path / name) for name in ("tokens", "again"))
    assert np.array_equal(np.stack(list(once)), np.stack(list(twice)))


def test_interrupted_it_says_what_is_kept(tmp_path: Path) -> None:
    bpe(tmp_path / "tokenizer.json")
    texts = corpus(tmp_path / "corpus", [" ".join(TEXTS)] * 120, files=3)
    given = ["tokenize", texts, tmp_path / "tokens", "--tokenizer", tmp_path / "tokenizer.json"]
    given += ["--sample-size", 128, "--workers", 0]
    line = [sys.executable, "-c", SMALL_PARTS, *map(str, given)]
    with halted(line, tmp_path, stderr=subprocess.PIPE, text=True) as process:
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in told
    assert "2 finished parts" in told
    assert "the same command" in told


def test_an_end_that_the_dtype_does_not_hold_is_the_tokenizers_own(texts: Path) -> None:
    known = Tokenizer(models.WordLevel({"a": 0, "?": 1, "<|endoftext|>": 70_001}, unk_token="?"))
    known.add_special_tokens(["<|endoftext|>"])
    known.save(str(texts.parent / "wide.json"))
    given = [texts, texts.parent / "tokens", "--tokenizer", texts.parent / "wide.json"]
    done = invoke("tokenize", *given, "--sample-size", 8, "--dtype", "uint16")
    assert done.exit_code == 2
    assert "70001 does not fit uint16. Give --dtype uint32." in " ".join(done.stderr.split())


@pytest.mark.parametrize("lines", ['{"other": 1}\n', "{\n"])
def test_a_failure_leaves_no_folder(lines: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert tokenizer is not None
    (tmp_path / "bad.jsonl").write_text(lines)
    given = [tmp_path / "bad.jsonl", tmp_path / "new/a", "--tokenizer", tmp_path / "tokenizer.json"]
    assert invoke("tokenize", *given, "--sample-size", 8).exit_code == 1
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    given[1] = tmp_path / "old"
    assert invoke("tokenize", *given, "--sample-size", 8).exit_code == 1
    assert [*(tmp_path / "old").iterdir()] == []


def test_what_an_earlier_run_made_is_not_counted_in_the_rate(tmp_path: Path) -> None:
    kept = tmp_path / f".index.{'0' * 16}.penstock-index-tmp"
    kept.mkdir()
    (kept / "0.unit").touch()
    with TokenProgress(1000, PartsLeft(str(tmp_path))) as progress:
        progress.add(500)
        progress.count(30, 5000)  # Of the part that lay there.
        (kept / "1.unit").touch()
        progress.add(500)
        progress.count(3, 500)
    assert progress.now == (3, 500)


def test_clean_brings_back_what_a_killed_builder_had_put_aside(
    texts: Path, tokenizer: Tokenizer
) -> None:
    del tokenizer
    tokenized(texts, "--sample-size", 32)
    tokens = texts.parent / "tokens"
    before = penstock.open(tokens)[0].tolist()
    left = tokens / f".index.{'0' * 16}.penstock-index-tmp"
    left.mkdir()
    note(left, [PutAside(str(tokens / "index"), "old-index")])
    (tokens / "index").rename(left / "old-index")
    done = invoke("info", tokens)
    assert done.exit_code == 3
    assert f"penstock clean {tokens}" in done.stderr
    assert len(document("clean", tokens)["removed"]) == 1
    assert not left.exists()
    assert penstock.open(tokens)[0].tolist() == before


def test_progress_tells_documents_and_tokens_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    with TokenProgress(1000, every=0) as progress:
        progress.count(3, 500)
        progress.add(500)
    assert "documents/s" in (told := capsys.readouterr().err)
    assert "500 B of 1.00 kB read" in told
    assert "tokens/s" in told
