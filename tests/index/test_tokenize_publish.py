"""Tokens that are replaced, and what must not be touched on the way."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import (
    CorruptIndexError,
    IndexExistsError,
    OptionError,
    StaleIndexError,
    StorageError,
)
from penstock.index import (
    IndexPlace,
    IndexStore,
    create_default_jsonl_indexer,
    exists,
)
from penstock.index.tokens._journal import take_back_dead
from penstock.storage import StorageOptions
from tests.cli.commands import invoke
from tests.index.test_tokenize import OwnStore
from tests.index.tokenize_program import Program
from tests.index.tokenize_samples import (
    by_hand,
    indexer,
    left_of,
    letters,
    tokenise,
    tokens_in,
    write_texts,
)

if TYPE_CHECKING:
    from pathlib import Path

FILES = {"a.jsonl": ["to be", "or not"] * 5, "b.jsonl": ["that is"] * 3}
KILLED_IN_THE_GAP = "rename:2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_texts(tmp_path, FILES)
    return tmp_path


def replaced_halfway(folder: Path) -> Path:
    """Kill a builder that has put tokens aside; return the index that it had."""
    tokenise(folder, sample_size=5)
    assert Program(folder, KILLED_IN_THE_GAP, sample_size=6, overwrite=True).ended() != 0
    assert not (folder / "index").exists()
    (aside,) = folder.glob(".index.*/old-index")
    return aside


def test_an_index_of_ones_own_leaves_the_folder_of_ours_alone(folder: Path) -> None:
    create_default_jsonl_indexer(folder)()
    (folder / "index" / "mine.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in (folder / "index").iterdir()}
    for size in (5, 6):
        store = OwnStore()
        tokenise(folder, index_store=store, sample_size=size, overwrite=True)
        bins = {path.name: path.read_bytes() for path in (folder / "tokenized-samples").iterdir()}
        assert bins == by_hand(FILES, size).bins
    assert {path.name: path.read_bytes() for path in (folder / "index").iterdir()} == before
    assert left_of(folder) == []


def test_only_folders_that_were_made_go_away_again(folder: Path) -> None:
    (folder / "mine" / "deeper").mkdir(parents=True)
    target = folder / "mine" / "deeper" / "made" / "tokens"

    class Failing(OwnStore):
        def init_store(self) -> None:
            assert target.is_dir()
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        tokenise(folder, index_store=Failing(), base_output_path=target)
    assert [*(folder / "mine" / "deeper").iterdir()] == []


def test_who_opens_what_a_killed_builder_had_put_aside_learns_the_command(folder: Path) -> None:
    aside = replaced_halfway(folder)
    before = sorted(folder.rglob("*"))
    told = rf"put it aside, as {aside}\. Bring it back: penstock clean {folder}"
    for look in (IndexStore(folder).load, lambda: penstock.open(folder)):
        with pytest.raises(CorruptIndexError, match=told):
            look()
    assert not exists(IndexPlace(f"{folder}/index", str(folder), StorageOptions(), beside=True))
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("builder", ["index", "tokenize", "clean"])
def test_builders_and_clean_bring_back_what_a_killed_one_had_put_aside(
    builder: str, folder: Path
) -> None:
    aside = replaced_halfway(folder)
    if builder == "clean":
        assert take_back_dead(aside.parent, StorageOptions())
        shutil.rmtree(aside.parent)
    else:
        make = create_default_jsonl_indexer(folder)
        with pytest.raises((IndexExistsError, FileExistsError), match="index"):
            make() if builder == "index" else tokenise(folder, sample_size=7)
    assert tokens_in(folder) == by_hand(FILES, 5)
    tokenise(folder, sample_size=6, overwrite=True)
    assert tokens_in(folder) == by_hand(FILES, 6)
    assert left_of(folder) == []


@pytest.mark.parametrize("killed_by", ["link", "real"])
def test_another_spelling_of_a_folder_brings_back_what_a_killed_builder_had_put_aside(
    killed_by: str, tmp_path: Path
) -> None:
    spelt = {"real": tmp_path / "real", "link": tmp_path / "link"}
    write_texts(spelt["real"], FILES)
    spelt["link"].symlink_to(spelt["real"])
    replaced_halfway(spelt.pop(killed_by))
    (other,) = spelt.values()
    with pytest.raises(CorruptIndexError, match=f"Bring it back: penstock clean {other}"):
        penstock.open(other)
    assert invoke("clean", other).exit_code == 0
    assert tokens_in(other) == by_hand(FILES, 5)
    assert not left_of(other)


def test_a_folder_that_was_moved_keeps_what_a_killed_builder_had_put_aside(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write_texts(old, FILES)
    replaced_halfway(old)
    old.rename(new)
    (aside,) = new.glob(".index.*/old-index")
    done = invoke("clean", new)
    assert done.exit_code == 0
    assert f"old-index lay in {new}/index" in done.stderr
    assert "rm -r" not in done.stderr
    aside.rename(new / "index")
    for entry in map(json.loads, (aside.parent / "journal.ndjson").read_text().splitlines()):
        if entry["type"] == "aside" and (aside.parent / entry["name"]).exists():
            (aside.parent / entry["name"]).rename(entry["path"].replace(str(old), str(new)))
    assert tokens_in(new) == by_hand(FILES, 5)


def test_whoever_opens_while_tokens_are_replaced_waits(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenise(folder, sample_size=5)
    real, gone, opened = os.link, threading.Event(), []

    def slowly(*arguments: Any) -> None:
        if not str(arguments[1]).endswith(".unit"):
            gone.set()
            time.sleep(0.1)
        real(*arguments)

    def read() -> None:
        gone.wait(10)
        opened.append(len(IndexStore(folder).load()))

    monkeypatch.setattr(os, "link", slowly)
    reader = threading.Thread(target=read)
    reader.start()
    tokenise(folder, sample_size=6, overwrite=True)
    reader.join()
    assert opened == [len(by_hand(FILES, 6).rows)]


def test_what_cannot_be_put_back_is_kept_and_told(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    aside = replaced_halfway(folder)
    kept = {path.name: path.read_bytes() for path in aside.iterdir()}
    (folder / "index").mkdir()
    (folder / "index" / "mine.txt").write_text("of somebody else")
    with pytest.raises(StorageError, match=r"index was put aside.*kept as .*old-index"):
        indexer(letters, folder, sample_size=6, overwrite=True, unit_bytes=5000)()
    with caplog.at_level(logging.WARNING):
        assert not take_back_dead(aside.parent, StorageOptions())
    assert "old-index" in caplog.text
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == kept
    shutil.rmtree(folder / "index")
    assert take_back_dead(aside.parent, StorageOptions())
    assert tokens_in(folder) == by_hand(FILES, 5)


def test_files_are_read_as_they_are_when_it_begins(folder: Path) -> None:
    make = indexer(letters, folder, sample_size=5)
    files = FILES | {"a.jsonl": ["another"], "c.jsonl": ["new"]}
    write_texts(folder, files)
    make()
    assert tokens_in(folder) == by_hand(files, 5)


@pytest.mark.parametrize("change", ["append", "rewrite", "remove"])
def test_a_file_that_changes_meanwhile_is_named_and_nothing_published(
    change: str, folder: Path
) -> None:
    changed = folder / "a.jsonl"

    class View:
        def add(self, count: int) -> None:
            del count
            if change == "append":
                changed.write_bytes(changed.read_bytes() + b'{"text": "more"}\n')
            elif change == "rewrite":
                os.utime(changed, (1, 1))
            else:
                changed.unlink(missing_ok=True)

    files = [changed, folder / "b.jsonl"]
    with pytest.raises(StaleIndexError, match=r"a\.jsonl changed while") as failure:
        indexer(letters, None, files, folder / "out", sample_size=5, progress=View())()
    assert failure.value.path == str(changed)
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    "name", ["a\nb.jsonl", os.fsdecode(b"a\xffb.jsonl")], ids=["newline", "utf8"]
)
def test_a_file_that_an_index_cannot_name_is_refused_first(name: str, tmp_path: Path) -> None:
    write_texts(tmp_path, {name: ["text"]})
    with pytest.raises(OptionError, match="an index cannot name"):
        indexer(letters, tmp_path)
    assert len([*tmp_path.iterdir()]) == 1
