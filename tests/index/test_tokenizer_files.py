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


def named(name: str, home: Path, server: socket.socket, out: Path) -> CompletedProcess[str]:
    """Tokenise in a process whose Hugging Face cache is `home`, and whose hub is a socket."""
    text = out.with_suffix(".jsonl")
    text.write_text('{"text": "the mill"}\n')
    port = server.getsockname()[1]
    env = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": f"http://127.0.0.1:{port}"}
    env.pop("HF_HUB_OFFLINE", None)
    given = ["tokenize", text, out, "--tokenizer", name, "--json"]
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
