"""data-forager 0.2.0 and Penstock open each other's indexes, and the seed's code runs here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.datasets import JsonlDataset, SubsampledDataset
from penstock.index import IndexStore, create_default_jsonl_indexer

FORAGER = Path(__file__).with_name("forager_program.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, count in (("a2", 30), ("A10", 40), ("sub/b", 50)):
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f'{{"text": "{name} {n}", "n": {n}}}\n' for n in range(count)))
    return tmp_path


@pytest.fixture
def forager_index(folder: Path) -> Path:
    forager("index", folder)
    return folder


def forager(what: str, folder: Path) -> str:
    program = [sys.executable, FORAGER, what, folder]
    return subprocess.run(program, check=True, capture_output=True, text=True, timeout=60).stdout


def test_an_index_made_by_data_forager_opens_here(forager_index: Path) -> None:
    assert not (forager_index / "index" / "meta.json").exists()
    here = JsonlDataset.create_from_index_on_filesystem(forager_index)
    assert list(here) == json.loads(forager("read", forager_index))
    assert len(here.blocks) >= 2


def test_our_index_opens_in_data_forager(folder: Path) -> None:
    create_default_jsonl_indexer(folder)()
    assert json.loads(forager("read", folder)) == list(
        JsonlDataset.create_from_index_on_filesystem(folder)
    )


def test_both_write_the_same_two_files(forager_index: Path) -> None:
    names = ("file_location.txt", "sample_locations.bin")
    theirs = [(forager_index / "index" / name).read_bytes() for name in names]
    IndexStore(forager_index).clear()
    create_default_jsonl_indexer(forager_index)()
    assert [(forager_index / "index" / name).read_bytes() for name in names] == theirs


def test_a_foreign_index_is_not_updated_but_built_anew(forager_index: Path) -> None:
    with pytest.raises(ValueError, match="another tool"):
        create_default_jsonl_indexer(forager_index, update=True)()
    create_default_jsonl_indexer(forager_index, overwrite=True)()
    assert len(JsonlDataset.create_from_index_on_filesystem(forager_index)) == 120


def test_the_seeds_first_use_case_runs_with_its_imports_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "data").mkdir()
    for path in folder.glob("*.jsonl"):
        path.rename(folder / "data" / path.name)
    monkeypatch.chdir(folder)

    # One-time indexing (run once, reuse forever)
    indexer = create_default_jsonl_indexer("./data")
    indexer()
    # Creates: ./data/index/file_location.txt, ./data/index/sample_locations.bin
    assert Path("./data/index/file_location.txt").exists()
    assert Path("./data/index/sample_locations.bin").exists()

    # Training: random access with standard DataLoader
    dataset = JsonlDataset.create_from_index_on_filesystem("./data")
    batch = dataset.__getitems__([0, 3, 2])  # As torch's DataLoader asks for it.
    # batch is a list of dicts (parsed JSON objects)
    texts = [sample["text"] for sample in batch]
    assert texts == ["a2 0", "a2 3", "a2 2"]

    # Used internally by indexers; rarely needed directly
    store = IndexStore(base_path="./data", index_data_folder="index")
    assert store.exists()
    assert len(store.load()) == len(dataset) == 70

    sample = dataset[0]  # Returns: {'text': '...', 'source': '...', ...}
    assert sample == {"text": "a2 0", "n": 0}
    assert dataset[0:4:2] == [dataset[0], dataset[2]]

    store.clear()
    indexer = create_default_jsonl_indexer("./data")
    indexer()  # Indexes all .jsonl files recursively
    assert len(JsonlDataset.create_from_index_on_filesystem("./data")) == 70


def test_a_subsample_reads_like_the_seeds(folder: Path) -> None:
    create_default_jsonl_indexer(folder)()
    dataset = JsonlDataset.create_from_index_on_filesystem(folder)
    tenth = SubsampledDataset(dataset, 0.1, seed=3)
    assert len(tenth) == 12
    assert all(record in list(dataset) for record in tenth)
