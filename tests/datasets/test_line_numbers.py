"""An error about a line of a file names the file and the number of the line."""

from __future__ import annotations

import bz2
import gzip
import logging
from typing import TYPE_CHECKING

import pytest
import zstandard

import penstock
from penstock.datasets.text import _line_numbers
from penstock.errors import MalformedLineError, SchemaMismatchError
from penstock.jsonl import JsonlFile
from penstock.storage import StorageOptions
from tests.cli.commands import invoke
from tests.lightning.streaming_files import module

if TYPE_CHECKING:
    from pathlib import Path

GOOD = b"".join(b'{"n": %d}\n' % n for n in range(40))
TEXT = b"\n" + GOOD + b'\n{"n": }\n' + GOOD + b'{"n": "x"}\n' + GOOD
"""Line 43 is no JSON and record 40; line 84, record 81, does not fit an integer."""
PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_line_numbers, "_BLOCK", 100)


@pytest.fixture(params=PACKED)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / f"a.jsonl{request.param}"
    file.write_bytes(PACKED[request.param](TEXT))
    return file


def test_every_way_to_a_bad_line_names_its_file_and_number(path: Path) -> None:
    source = penstock.open(path)
    calls = {
        "stream": lambda: list(JsonlFile(path).iter_records_sync()),
        "Arrow": lambda: list(JsonlFile(path).iter_arrow_batches_sync()),
        "record": lambda: source[40],
        "records": lambda: source[[3, 40]],
        "view": lambda: source.take([40])[0],
        "columns": lambda: source.read([3, 40], {"n": "text"}),
        "materialize": lambda: source.materialize({"n": "text"}),
        "where": lambda: source.where("n > 3"),
        "loader": lambda: list(penstock.DataLoader(source, {"n": "text"}, batch_size=8)),
        "dicts": lambda: list(penstock.DataLoader(source, batch_size=8)),
    }
    for name, call in calls.items():
        with pytest.raises(MalformedLineError, match=rf"{path.name}, line 43[,:]") as raised:
            call()
        assert raised.value.line_number == 43, name
        assert "line 1 column" not in str(raised.value), name
    assert f"{path.name}, line 43" in invoke("show", path, 40).output.replace("\n", " ")


def test_every_way_to_a_misfit_names_its_file_and_line(path: Path) -> None:
    source = penstock.open(path)
    for fields in ({"n": "int64"}, {"n": "int64?"}):
        with pytest.raises(SchemaMismatchError, match=rf"{path.name}, line 84,") as raised:
            source.read([81], fields)
        assert raised.value.line_number == 84  # type: ignore[attr-defined]


def test_records_that_are_masked_or_left_out_are_logged_with_their_lines(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = penstock.open(path)
    options = {"batch_size": 8, "on_error": "mask", "materialize": False}
    list(penstock.DataLoader(source, {"n": "int64"}, **options))
    assert all(f"{path.name}, line {line}" in caplog.text for line in (43, 84))
    assert "line 1 column" not in caplog.text


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_data_modules_name_the_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, on_error: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.ndjson").write_bytes(TEXT)
    (tmp_path / "data" / "b.ndjson").write_bytes(GOOD + b"[1]\n" + GOOD)
    caplog.set_level(logging.INFO)
    streamed = module(
        tmp_path / "data", train=".*", engine={"on_error": on_error, "bad_values": "mask"}
    )
    if on_error == "raise":
        with pytest.raises(MalformedLineError, match=r"a\.ndjson, line 43,|b\.ndjson, line 41,"):
            list(streamed.train_dataloader())
    else:
        list(streamed.train_dataloader())
        assert "a.ndjson, line 43," in caplog.text
        assert "b.ndjson, line 41," in caplog.text


def test_lines_of_large_files_are_counted_once_and_those_of_compressed_ones_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    plain.write_bytes(b"{}\n" * 1000)
    packed.write_bytes(gzip.compress(b"{}\n" * 1000))
    options = StorageOptions()
    for offset in (2997, 0, 99, 300, 2700, 303):
        for path in (plain, packed):
            assert _line_numbers.line_number(str(path), offset, options) == offset // 3 + 1
    monkeypatch.setattr(_line_numbers, "_MOST_UNPACKED", 0)
    assert _line_numbers.line_number(str(packed), 600, options) is None
    assert _line_numbers.line_number(str(packed), 303, options) == 102
