"""Files and folders that change while an index is built, replaced or read."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.datasets import JsonlDataset
from penstock.errors import IndexExistsError, OptionError, StaleIndexError
from penstock.index import IndexStore, create_default_jsonl_indexer
from penstock.index._folder import NewFolder, clear_dead_folders, only_builder
from penstock.index._indexer import FileTextLinesIndexer
from penstock.index._listing import IndexPlace
from penstock.jsonl import JsonlFile
from penstock.storage import StorageOptions
from penstock.storage._folders import hidden_name
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, *ids: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'{{"id": {n}}}\n' for n in ids))


def append(path: Path, *ids: int) -> None:
    with path.open("a") as file:
        file.write("".join(f'{{"id": {n}}}\n' for n in ids))


def ids(source: object) -> list[int]:
    return [record["id"] for record in source]  # type: ignore[attr-defined]


def test_what_is_appended_while_indexing_is_for_the_next_update(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 0, 1, 2)
    indexer = create_default_jsonl_indexer(tmp_path)  # Lists the files.
    append(tmp_path / "a.jsonl", 3, 4)
    indexer()
    create_default_jsonl_indexer(tmp_path, update=True)()
    assert ids(penstock.open(tmp_path)) == [0, 1, 2, 3, 4]


def test_a_new_folder_is_not_taken_for_a_dead_builders(tmp_path: Path) -> None:
    """By who does not know of its builder, for the caches of both differ."""
    final, over = tmp_path / "index", threading.Event()
    place = IndexPlace(str(final), str(tmp_path), StorageOptions(), beside=True)

    def clear() -> None:
        while not over.is_set():
            clear_dead_folders(final)

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(clear) for _ in range(2)]
        try:
            for _ in range(rounds(100, 2000)):
                with NewFolder(place) as folder:
                    assert (folder.path / "CACHEDIR.TAG").exists()
        finally:
            over.set()
        assert [other.result() for other in others] == [None, None]


def test_a_larger_file_in_place_of_an_indexed_one_is_seen(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 0, 1, 2)
    source = penstock.open(tmp_path)
    pickled = pickle.dumps(source)
    write(tmp_path / "new", 7, 8, 9, 10)
    (tmp_path / "new").rename(tmp_path / "a.jsonl")
    for reader in (source, pickle.loads(pickled)):
        with pytest.raises(StaleIndexError, match=r"a\.jsonl changed"):
            reader[0]


def test_a_dataset_survives_an_update_in_other_processes(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 0, 1, 2)
    source = penstock.open(tmp_path)
    pickled = pickle.dumps(source)
    append(tmp_path / "a.jsonl", 3)
    create_default_jsonl_indexer(tmp_path, update=True)()
    again = pickle.loads(pickled)
    assert ids(again) == [0, 1, 2]
    assert again.fingerprint == source.fingerprint != penstock.open(tmp_path).fingerprint
    create_default_jsonl_indexer(tmp_path, overwrite=True)()
    with pytest.raises(StaleIndexError, match="built anew"):
        pickle.loads(pickled)


def test_an_index_put_aside_by_a_killed_builder_comes_back(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", 0, 1)
    penstock.open(tmp_path)
    write(tmp_path / "a.jsonl", 10)
    create_default_jsonl_indexer(tmp_path, update=True)()
    (tmp_path / "index").rename(tmp_path / hidden_name("index", "old"))
    assert ids(penstock.open(tmp_path)) == [0, 1, 10]  # Not renumbered.
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl", "index"]


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"update": True}])
def test_a_folder_that_is_no_index_is_never_touched(
    options: dict[str, bool], tmp_path: Path
) -> None:
    write(tmp_path / "a.jsonl", 0)
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "precious.txt").write_text("keep")
    with pytest.raises(IndexExistsError, match="is no index"):
        create_default_jsonl_indexer(tmp_path, **options)()  # type: ignore[arg-type]
    with pytest.raises(IndexExistsError, match="is no index"):
        penstock.open(tmp_path)
    assert (tmp_path / "index" / "precious.txt").read_text() == "keep"


def test_a_living_builder_keeps_its_folder_and_a_dead_one_does_not(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 0)
    place = IndexStore(tmp_path).place
    dead = tmp_path / hidden_name("index", "tmp")
    dead.mkdir()
    with NewFolder(place) as living:
        assert not dead.exists()
        with NewFolder(place):
            assert living.path.exists()
        assert living.path.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


def test_builders_with_different_caches_do_not_harm_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data" / "a.jsonl", *range(1000))
    failures: list[BaseException] = []

    def build() -> None:
        try:
            with suppress(IndexExistsError):
                penstock.open(tmp_path / "data")
        except BaseException as failure:  # noqa: BLE001 (told below)
            failures.append(failure)

    for number in range(10):
        monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / f"cache {number}"))
        shutil.rmtree(tmp_path / "data" / "index", ignore_errors=True)
        threads = [threading.Thread(target=build) for _ in range(2)]
        for thread in threads:
            thread.start()
            monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / f"other {number}"))
        for thread in threads:
            thread.join()
    assert failures == []
    assert len(penstock.open(tmp_path / "data")) == 1000


def test_a_lock_ends_with_its_block_though_a_forked_process_lives_on(tmp_path: Path) -> None:
    gate = multiprocessing.get_context("fork").Event()
    with only_builder(str(tmp_path), 5):
        child = multiprocessing.get_context("fork").Process(target=gate.wait, args=(60,))
        child.start()
    with only_builder(str(tmp_path), 1):
        pass
    gate.set()
    child.join(10)


def test_a_fork_while_another_thread_decompresses_can_read(tmp_path: Path) -> None:
    with JsonlFile(tmp_path / "a.jsonl.zst").writer_sync(frame_bytes=100) as writer:
        writer.write_many([{"id": n} for n in range(2000)])
    source = penstock.open(tmp_path)
    stop = threading.Event()

    def keep_reading() -> None:
        while not stop.is_set():
            source[[5, 500, 1500]]

    threads = [threading.Thread(target=keep_reading) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child = multiprocessing.get_context("fork").Process(
                target=source.__getitem__, args=(7,)
            )
            child.start()
            child.join(20)
            assert child.exitcode == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_descriptors_are_counted_over_all_sources(tmp_path: Path) -> None:
    sources = []
    for folder in ("a", "b", "c"):
        for number in range(130):
            write(tmp_path / folder / f"{number}.jsonl", number)
        sources.append(penstock.open(tmp_path / folder))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert ids(sources[0] + sources[1] + sources[2]) == [*range(130)] * 3
    assert len(os.listdir("/proc/self/fd")) - before <= 140  # noqa: PTH208


def test_a_damaged_index_can_be_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 0)
    penstock.open(tmp_path)
    for name in ("meta.json", "file_location.txt"):
        (tmp_path / "index" / name).unlink()
        create_default_jsonl_indexer(tmp_path, overwrite=True)()
        assert ids(penstock.open(tmp_path)) == [0]
    (tmp_path / "index" / "meta.json").write_text('{"format": "penstock-index", "version": "x"}')
    with pytest.raises(ValueError, match="version"):
        penstock.open(tmp_path)
    create_default_jsonl_indexer(tmp_path, overwrite=True)()
    assert ids(penstock.open(tmp_path)) == [0]


def test_the_base_comes_from_whoever_opens_an_index(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.jsonl", 1)
    write(tmp_path / "elsewhere" / "a.jsonl", 2)
    store = IndexStore(tmp_path / "data", "idx")
    FileTextLinesIndexer([str(tmp_path / "data" / "a.jsonl")], store)()
    meta = tmp_path / "data" / "idx" / "meta.json"
    text = meta.read_text().replace('"kind"', f'"base": "{tmp_path}/elsewhere",\n "kind"', 1)
    meta.write_text(text)
    assert ids(JsonlDataset.create_from_index_on_filesystem(tmp_path / "data", "idx")) == [1]
    (tmp_path / "data").rename(tmp_path / "moved")
    assert ids(JsonlDataset.create_from_index_on_filesystem(tmp_path / "moved", "idx")) == [1]


def test_files_outside_the_base_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "abc.jsonl", 1)
    (tmp_path / "a").mkdir()
    with pytest.raises(OptionError, match="does not lie below"):
        FileTextLinesIndexer([str(tmp_path / "abc.jsonl")], IndexStore(tmp_path / "a"))()


def test_a_generator_that_fails_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 1)

    class Failing:
        def prepare(self, text_file_path: str) -> None:
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        FileTextLinesIndexer(
            [str(tmp_path / "a.jsonl")],
            IndexStore(tmp_path),
            Failing(),  # type: ignore[arg-type]
        )()
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


def test_an_index_of_tokens_without_meta_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 1)
    penstock.open(tmp_path)
    (tmp_path / "index" / "meta.json").unlink()
    (tmp_path / "index" / "file_location.txt").write_text("tokenized-samples/a.bin\n")
    with pytest.raises(IndexExistsError, match="output_base_path="):
        create_default_jsonl_indexer(tmp_path, overwrite=True)()


def test_a_cache_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.jsonl", 1)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(OSError, match="PENSTOCK_CACHE"):
        penstock.open(tmp_path / "a.jsonl")
    assert ids(penstock.open(tmp_path)) == [1]  # Its index lies beside it.
