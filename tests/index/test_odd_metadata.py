"""Something else than a small regular file where a file of ours is expected: an error at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pytest

import penstock
from penstock.errors import PenstockError
from penstock.index import create_default_jsonl_indexer, read_bad_lines, read_profile
from penstock.index._load import _OpenFolder
from penstock.index._scan import LineScanner
from penstock.index.checked._build import ScanUnit
from penstock.index.checked._checks import Checks
from penstock.index.tokens._units import TokenUnit
from penstock.work import UnitResults
from tests.forged import ODD, put_odd
from tests.index.tokenize_program import Program
from tests.index.tokenize_samples import by_hand, tokenise, tokens_in, write_texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXTS = {"a.jsonl": ["to be", "or not"] * 5, "b.jsonl": ["that is"] * 3}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_texts(tmp_path, TEXTS)
    return tmp_path


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", ["meta.json", "file_location.txt", "sample_locations.bin"])
def test_an_index_with_something_odd_in_it_does_not_open(
    name: str, kind: str, folder: Path
) -> None:
    create_default_jsonl_indexer(folder)()
    put_odd(folder / "index" / name, kind)
    with pytest.raises(PenstockError, match=name if kind != "loop" else None):
        penstock.open(folder)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", ["meta.json", "document_offsets.bin", "document_ends.bin"])
def test_tokens_with_something_odd_in_their_index_do_not_open(
    name: str, kind: str, folder: Path
) -> None:
    tokenise(folder, sample_size=5)
    put_odd(folder / "index" / name, kind)
    with pytest.raises(PenstockError):
        penstock.open(folder)


def test_a_meta_that_is_a_link_to_nothing_is_missing(folder: Path) -> None:
    create_default_jsonl_indexer(folder)()
    meta = folder / "index" / "meta.json"
    meta.unlink()
    meta.symlink_to("gone")
    with pytest.raises(PenstockError):
        penstock.open(folder)


@pytest.mark.parametrize("verb", ["open", "index", "overwrite", "tokenize"])
def test_an_index_that_is_a_link_to_nothing_is_named(verb: str, folder: Path) -> None:
    link = folder / "index"
    link.symlink_to("../big/gone")
    does: dict[str, Callable[[], object]] = {
        "open": lambda: penstock.open(folder),
        "index": create_default_jsonl_indexer(folder),
        "overwrite": create_default_jsonl_indexer(folder, overwrite=True),
        "tokenize": lambda: tokenise(folder, sample_size=5, overwrite=True),
    }
    with pytest.raises(PenstockError, match=f"{link} is a link to ../big/gone, and nothing is"):
        does[verb]()
    assert link.is_symlink()


def test_what_fails_while_a_file_of_an_index_is_open_is_not_told_of_that_file(
    folder: Path,
) -> None:
    create_default_jsonl_indexer(folder)()
    with (
        pytest.raises(FileNotFoundError, match=r"^of the caller$"),
        _OpenFolder(str(folder / "index")) as index,
        index.open("sample_locations.bin"),
    ):
        raise FileNotFoundError("of the caller")


READERS: dict[str, Callable[[Path], Any]] = {
    "bad_lines.ndjson": lambda index: [*read_bad_lines(index)],
    "profile.json": read_profile,
    "profile.state": lambda index: create_default_jsonl_indexer(
        index.parent, update=True, num_workers=0
    )(),
}


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "sparse"])
@pytest.mark.parametrize("name", READERS)
def test_what_validation_and_profile_wrote_is_read_as_files(
    name: str, kind: str, folder: Path
) -> None:
    create_default_jsonl_indexer(folder, validate=True, profile=True, num_workers=0)()
    (folder / "c.jsonl").write_text('{"text": "new"}\n')
    put_odd(folder / "index" / name, kind)
    with pytest.raises(PenstockError, match=name):
        READERS[name](folder / "index")


def test_a_bad_line_of_many_megabytes_is_damage(folder: Path) -> None:
    create_default_jsonl_indexer(folder, validate=True, num_workers=0)()
    path = folder / "index" / "bad_lines.ndjson"
    path.write_text('{"file": "' + "a" * (2 << 20))
    with pytest.raises(PenstockError, match="is damaged"):
        [*read_bad_lines(folder / "index")]


def test_a_profile_that_is_nested_without_end_is_damage(folder: Path) -> None:
    create_default_jsonl_indexer(folder, profile=True, num_workers=0)()
    (folder / "index" / "profile.json").write_text("[" * 100_000)
    with pytest.raises(PenstockError, match="is damaged"):
        read_profile(folder / "index")


@pytest.mark.parametrize("kind", [*ODD, "empty", "cut", "length", "rows"])
def test_a_unit_that_is_none_is_told_of(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "000000.unit"
    part = {"documents": 1 << 60, "tokens": 1, "aside": [], "newlines": 0}
    rest = msgspec.msgpack.encode([part])
    whole = b"tokens" + rest + len(rest).to_bytes(8, "little")
    damaged = {"empty": b"", "cut": whole[:3], "length": b"\xff" * 16, "rows": whole}
    if kind in ODD:
        put_odd(path, kind)
    else:
        path.write_bytes(damaged[kind])
    results = UnitResults(str(tmp_path))
    tokens = TokenUnit(results, 0, (), cast("Any", None))
    with pytest.raises(OSError, match=r"000000\.unit|symbolic links"):
        tokens.result_of(np.dtype(np.uint16))
    with pytest.raises(OSError, match=r"000000\.unit|symbolic links"):
        ScanUnit(results, 0, (), LineScanner(), Checks()).result_of()
    if kind != "rows":
        with pytest.raises(OSError, match=r"000000\.unit|symbolic links"):
            tokens.found()


def test_links_in_a_folder_that_a_builder_finds_again_are_not_written_through(
    folder: Path,
) -> None:
    assert Program(folder, "link:1", sample_size=5).ended() != 0
    (unit,) = folder.glob(".index.*.penstock-index-tmp/*.unit")
    left = unit.parent
    mine = folder / "mine"
    mine.write_text("precious")
    for name in ("stream.bin", "bad_lines.ndjson", "journal.ndjson", "999999.unit"):
        (left / name).unlink(missing_ok=True)
        (left / name).symlink_to(mine)
    tokenise(folder, sample_size=5, unit_bytes=5000, overwrite=True)
    assert mine.read_text() == "precious"
    assert tokens_in(folder) == by_hand(TEXTS, 5)
