"""Tokenizers from files and by name; files that are none are told before anything is tokenised."""

from __future__ import annotations

import os
import socket
import sys
from subprocess import run
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.errors import CorruptFileError
from penstock.index import load_tokenizer
from tests.cli.token_samples import bpe

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("tokenizer.json", b"\x00\xff\xfe\x80", "no text in UTF-8"),
        ("tokenizer.json", b"", "tokenizers can read"),
        ("bpe.model", b"", "it is empty"),
        ("bpe.model", b"\x00\xff\xfe\x80", "sentencepiece can read"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_named(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CorruptFileError, match=rf"{name} is no tokenizer.*{words}") as raised:
        load_tokenizer(tmp_path / name)
    assert raised.value.path == str(tmp_path / name)


TOY_ENCODING = """
def toy():
    ranks = {bytes([n]): n for n in range(256)} | {b"th": 256}
    special = {"<|endoftext|>": 257}
    return dict(name="toy", pat_str=r"\\S+|\\s+", mergeable_ranks=ranks, special_tokens=special)

ENCODING_CONSTRUCTORS = {"toy": toy}
"""


def named(
    name: str, home: Path, server: socket.socket, out: Path, *options: object
) -> CompletedProcess[str]:
    """Tokenise in a process whose caches and modules are in `home`, and whose hubs are a socket."""
    text = out.with_suffix(".jsonl")
    text.write_text('{"text": "the mill"}\n')
    port = server.getsockname()[1]
    env = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": f"http://127.0.0.1:{port}"}
    env |= {"TIKTOKEN_CACHE_DIR": str(home), "PYTHONPATH": str(home)}
    env |= {"HTTPS_PROXY": f"http://127.0.0.1:{port}"}
    env.pop("HF_HUB_OFFLINE", None)
    given = ["tokenize", text, out, "--tokenizer", name, "--json", *options]
    return run(
        [sys.executable, "-m", "penstock", *map(str, given)],
        env=env, cwd=out.parent, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip


def test_a_name_is_a_tokenizer_of_the_local_cache_and_nothing_is_asked_for(tmp_path: Path) -> None:
    home = tmp_path / "home"
    model = home / "hub" / "models--org--tiny"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("c0ffee")
    (model / "blobs").mkdir()
    (model / "snapshots" / "c0ffee").mkdir(parents=True)
    tokenizer = bpe(model / "blobs" / "1")
    (model / "snapshots" / "c0ffee" / "tokenizer.json").symlink_to("../../blobs/1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.01)
        done = named("org/tiny", home, server, tmp_path / "out")
        assert done.returncode == 0, done.stderr
        assert penstock.open(tmp_path / "out")[0].tolist() == tokenizer.encode("the mill").ids
        done = named("org/other", home, server, tmp_path / "no")
        assert done.returncode == 3
        assert "no model of this name in the local Hugging Face cache" in done.stderr
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_name_is_an_encoding_in_the_cache_of_tiktoken_and_nothing_is_asked_for(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    (home / "tiktoken_ext").mkdir(parents=True)
    (home / "tiktoken_ext" / "toy.py").write_text(TOY_ENCODING)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.01)
        done = named("toy", home, server, tmp_path / "out", "--workers", 1, "--sample-size", 8)
        assert done.returncode == 0, done.stderr
        assert penstock.open(tmp_path / "out")[0].tolist() == [256, *b"e mill", 257]
        done = named("cl100k_base", home, server, tmp_path / "no")
        assert done.returncode == 3
        assert 'tiktoken.get_encoding("cl100k_base")' in done.stderr
        with pytest.raises(TimeoutError):
            server.accept()
