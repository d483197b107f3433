from __future__ import annotations

import os
import socket
import threading
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from penstock.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
    TruncatedFileError,
)
from penstock.storage import LocalStore
from tests.rounds import rounds
from tests.storage.store_contract import Place, StoreContract
from tests.storage.store_machine import StoreMachine


class TestLocalStore(StoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(LocalStore(), str(tmp_path / "place"))


def test_a_local_store_does_what_a_perfect_one_does(tmp_path: Path) -> None:
    def machine() -> StoreMachine:
        return StoreMachine(Place(LocalStore(), str(tmp_path / uuid.uuid4().hex)))

    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]
        settings=settings(max_examples=rounds(20, 500), stateful_step_count=30),
    )


def test_directories_are_made_for_a_draft(tmp_path: Path) -> None:
    draft = LocalStore().draft(str(tmp_path / "a" / "b"), "x")
    draft.publish(str(tmp_path / "a" / "b" / "x"), exclusive=True)
    assert (tmp_path / "a" / "b" / "x").read_bytes() == b""


def test_an_empty_directory_lists_nothing(tmp_path: Path) -> None:
    assert list(LocalStore().list(str(tmp_path))) == []
    (tmp_path / "sub").mkdir()
    assert list(LocalStore().list(str(tmp_path), recursive=True)) == []


def _linked(base: Path, files: list[str], links: dict[str, str]) -> None:
    for name in files:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(b"12345")
    for link, target in links.items():
        (base / link).parent.mkdir(parents=True, exist_ok=True)
        (base / link).symlink_to(target)


def _below(base: Path, folder: str) -> list[str]:
    found = LocalStore().list(str(base / folder), recursive=True)
    return sorted(entry.name.removeprefix(f"{base}/") for entry in found if entry.size == 5)


def test_links_to_files_and_to_directories_are_followed(tmp_path: Path) -> None:
    files = ["outside/file", "outside/deep/file", "in/own"]
    _linked(tmp_path, files, {"in/link": "../outside/file", "in/folder": "../outside"})
    assert _below(tmp_path, "in") == ["in/folder/deep/file", "in/folder/file", "in/link", "in/own"]
    # Only the directory itself is asked for: what lies below is not entered.
    flat = [entry.name for entry in LocalStore().list(str(tmp_path / "in"))]
    assert sorted(flat) == [str(tmp_path / "in" / "link"), str(tmp_path / "in" / "own")]


def test_links_in_a_circle_are_named_once_and_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    links = {"in/self": ".", "in/a/up": "..", "in/out": "../out", "out/back": "../in"}
    _linked(tmp_path, ["in/own", "in/a/own", "out/own"], links)
    for _ in range(2):
        assert _below(tmp_path, "in") == ["in/a/own", "in/out/own", "in/own"]
    told = [record.getMessage() for record in caplog.records]
    assert sorted(text.split()[0] for text in told) == [
        f"{tmp_path}/{link}" for link in ("in/a/up", "in/out/back", "in/self")
    ]
    assert all(f"leads back to {tmp_path}/in; it is not followed" in text for text in told)


def test_a_directory_is_entered_once_by_its_own_name_before_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    links = {"in/b": "../out", "in/a": "../out", "in/0": "z", "in/a2": "../hop", "hop/x": "../out"}
    _linked(tmp_path, ["in/z/own", "out/own"], links)
    assert _below(tmp_path, "in") == ["in/a/own", "in/z/own"]
    assert not caplog.records


def test_many_links_to_each_of_many_folders_do_not_multiply(tmp_path: Path) -> None:
    links = {f"{n:02}/{link}": f"../{n + 1:02}" for n in range(30) for link in ("x", "y")}
    _linked(tmp_path, ["30/own"], links)
    assert _below(tmp_path, "00") == [f"00/{'x/' * 30}own"]


@pytest.mark.parametrize("target", ["nowhere", "link", "/etc/passwd/x", "x" * 300])
def test_a_link_that_leads_nowhere_is_listed_and_reading_it_says_where_it_leads(
    tmp_path: Path, target: str
) -> None:
    link = tmp_path / "link"
    link.symlink_to(target)
    (found,) = LocalStore().list(str(tmp_path))
    assert (found.name, found.size) == (str(link), 0)
    for read in (LocalStore().open, LocalStore().entry):
        with pytest.raises(ObjectNotFoundError, match=f"{link}: it is a link to {target}, and"):
            read(str(link))


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="directory"):
        LocalStore().entry(str(tmp_path))
    with pytest.raises(StorageError, match="directory"):
        LocalStore().open(str(tmp_path))


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ObjectNotFoundError, match="not a directory"):
        list(LocalStore().list(str(tmp_path / "file")))
    with pytest.raises(OSError, match="file") as raised:
        LocalStore().draft(str(tmp_path / "file" / "sub"), "x")
    assert isinstance(raised.value, StorageError)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_what_is_not_a_regular_file_is_refused_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # A socket's path may have 107 bytes only.
    if kind == "pipe":
        os.mkfifo("special")
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("special")
    with pytest.raises(StorageError, match="special"):
        LocalStore().open(str(tmp_path / "special"))


def test_a_file_that_shrank_while_open_is_an_error_and_not_a_short_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 1000)
    file = LocalStore().open(str(path))
    os.truncate(path, 100)
    assert file.read_at(0, 100) == b"x" * 100
    with pytest.raises(ObjectChangedError, match="shrank"):
        file.read_at(50, 100)
    file.close()


def test_a_read_behind_the_end_of_a_file_that_nobody_changed_is_not_called_a_change(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    file = LocalStore().open(str(path))
    with pytest.raises(TruncatedFileError, match="has 100 bytes, and none at byte 100"):
        file.read_at(50, 100)
    file.close()


def test_a_replaced_file_is_read_to_its_old_end(tmp_path: Path) -> None:
    place = Place(LocalStore(), str(tmp_path))
    name = place.publish("a", b"old")
    file = LocalStore().open(name)
    place.publish("a", b"newer")
    assert (file.size, file.read_at(0, 3)) == (3, b"old")
    file.close()


def test_open_files_and_drafts_hold_their_descriptors_no_longer_than_needed(
    tmp_path: Path,
) -> None:
    def descriptors() -> list[str]:
        """Those of this process that lead here: what others left may go at any moment."""
        found = []
        for one in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                found.append(str(one.readlink()))
        return [path for path in found if path.startswith(str(tmp_path))]

    place = Place(LocalStore(), str(tmp_path))
    for number in range(50):
        name = place.publish(f"{number}", b"x")
        dropped = place.store.open(name)
        closed = place.store.open(name)
        closed.close()
        closed.close()
        del dropped
        with pytest.raises(StorageError):
            place.store.open(str(tmp_path))
    assert not descriptors()


def test_a_recursive_listing_survives_directories_that_vanish(tmp_path: Path) -> None:
    place = Place(LocalStore(), str(tmp_path))
    kept = place.publish("kept/a", b"x")
    for number in range(20):
        (tmp_path / f"gone-{number}").mkdir()
    found = []
    listing = place.store.list(str(tmp_path), recursive=True)

    def remove() -> None:
        for number in range(20):
            (tmp_path / f"gone-{number}").rmdir()

    # The root has been read as soon as the first file below it comes out.
    (tmp_path / "first").touch()
    found.append(next(listing).name)
    remover = threading.Thread(target=remove)
    remover.start()
    remover.join()
    found += [entry.name for entry in listing]
    assert sorted(found) == sorted([str(tmp_path / "first"), kept])
