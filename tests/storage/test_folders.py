"""A folder is there whole or not at all, here and in a store; what killed builders left goes."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.errors import ObjectExistsError
from penstock.storage import (
    Entry,
    HiddenFolder,
    LocalStore,
    fetch_files,
    hidden_folders_in,
    publish_folder,
    remove_dead,
    remove_folder,
    upload_folder,
)
from penstock.storage._folders import hidden_name


def made(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))  # noqa: PTH208


class Recording(LocalStore):
    """Notes in which order files appear in a store, and vanish from it."""

    done: list[str] = []  # noqa: RUF012 (a store is a frozen value)

    def delete(self, name: str) -> None:
        super().delete(name)
        self.done.append(f"delete {Path(name).name}")

    def draft(self, directory: str, label: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.done.append(f"upload {label}")
        return super().draft(directory, label)


@pytest.mark.parametrize("kind", ["index", "column"])
def test_a_folder_replaces_another_and_leaves_nothing_hidden(kind: str, tmp_path: Path) -> None:
    final = made(tmp_path / "it", a="old", b="old")
    seen = []
    with ThreadPoolExecutor(2) as pool, HiddenFolder(final, kind) as hidden:  # type: ignore[arg-type]
        made(hidden.path, a="new")
        assert texts(final) == {"a": "old", "b": "old"}
        publish_folder(
            hidden.path,
            final,
            kind,  # type: ignore[arg-type]
            replace=True,
            rescue=lambda old: seen.append(texts(old)),
            pool=pool,
        )
    assert (texts(final), seen, names(tmp_path)) == (
        {"a": "new"},
        [{"a": "old", "b": "old"}],
        ["it"],
    )
    remove_folder(final, kind)  # type: ignore[arg-type]
    remove_folder(final, kind)  # type: ignore[arg-type]
    assert names(tmp_path) == []


def test_without_replace_the_folder_that_is_there_stays(tmp_path: Path) -> None:
    final = made(tmp_path / "it", a="old")
    with HiddenFolder(final) as hidden, pytest.raises(ObjectExistsError, match="appeared"):
        publish_folder(made(hidden.path, a="new"), final, replace=False)
    assert (texts(final), names(tmp_path)) == ({"a": "old"}, ["it"])


def test_a_folder_that_cannot_be_replaced_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final, rename = made(tmp_path / "it", a="old"), Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path == hidden.path:
            raise OSError(5, "no such luck")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with HiddenFolder(final) as hidden, pytest.raises(OSError, match="no such luck"):
        publish_folder(made(hidden.path, a="new"), final, replace=True)
    assert (texts(final), names(tmp_path)) == ({"a": "old"}, ["it"])


def test_a_kept_folder_is_found_by_its_key_and_a_held_one_is_not_shared(tmp_path: Path) -> None:
    first = HiddenFolder(tmp_path / "it", key="0" * 16).__enter__()
    made(first.path, part="done")
    with HiddenFolder(tmp_path / "it", key="0" * 16) as other:
        assert other.key is None
        assert texts(other.path) == {}
    first.close(keep=True)
    with HiddenFolder(tmp_path / "it", key="0" * 16) as again:
        assert texts(again.path) == {"part": "done"}


def test_in_a_store_the_marker_goes_first_and_comes_last(tmp_path: Path) -> None:
    store, name = Recording(), str(tmp_path / "store")
    new = made(tmp_path / "new", a="1", m="1", z="1")
    upload_folder(store, new, name, ["m", "z", "a"], "m", replace=False)
    with pytest.raises(ObjectExistsError):
        upload_folder(store, new, name, ["m", "a"], "m", replace=False)
    store.done.clear()
    made(new, a="2", m="2")
    upload_folder(store, new, name, ["m", "a"], "m", obsolete=["z", "never there"])
    assert store.done == ["delete m", "delete z", "upload a", "upload m"]
    assert texts(Path(name)) == {"a": "2", "m": "2"}


def test_files_are_fetched_under_plain_names_only(tmp_path: Path) -> None:
    store, far, near = LocalStore(), made(tmp_path / "far", a="x"), made(tmp_path / "near" / "in")
    entry = store.entry(str(far / "a"))
    fetch_files(store, {"a": entry}, near)
    assert texts(near) == {"a": "x"}
    with pytest.raises(ValueError, match="plain"):
        fetch_files(store, {"../a": entry}, near)
    assert names(near.parent) == ["in"]


def test_leftovers_go_when_their_builder_is_gone_and_what_it_began_is_undone(
    tmp_path: Path,
) -> None:
    dead = made(tmp_path / hidden_name("it", "tmp"), a="xyz")
    with HiddenFolder(tmp_path / "it") as living:
        left = {Path(one.entry.name): one for one in hidden_folders_in(str(tmp_path))}
        assert left[dead].writer == "gone"
        assert left[dead].entry == Entry(str(dead), 3, left[dead].entry.modified)
        assert left[living.path].writer == "at work"
        undone: list[Path] = []
        assert not remove_dead(str(living.path), lambda path: undone.append(path) is None)
        assert not remove_dead(str(dead), lambda _: False)
        assert remove_dead(str(dead), lambda path: undone.append(path) is None)
        assert undone == [dead]
        assert names(tmp_path) == [living.path.name]


def test_a_link_of_a_hidden_name_is_no_leftover(tmp_path: Path) -> None:
    precious = made(tmp_path / "precious", a="x")
    link = tmp_path / hidden_name("it", "tmp")
    link.symlink_to(precious)
    assert hidden_folders_in(str(tmp_path)) == []
    assert not remove_dead(str(link))
    assert texts(precious) == {"a": "x"}


def test_a_published_folder_leaves_its_key_to_the_next_builder(tmp_path: Path) -> None:
    final, key = tmp_path / "index", "0" * 16
    first = HiddenFolder(final, key=key)
    with first:
        publish_folder(first.path, final, replace=False)
        with HiddenFolder(final, key=key) as second:
            first.close()
            assert second.path.is_dir()


INTERRUPTED = """
import pathlib, sys
from penstock.storage import HiddenFolder

def interrupt(event, args):
    if event == "open" and "penstock-index-tmp" in str(args[0]):
        raise KeyboardInterrupt

sys.addaudithook(interrupt)
try:
    HiddenFolder(pathlib.Path(sys.argv[1], "index")).__enter__()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_while_a_folder_is_made_leaves_none(tmp_path: Path) -> None:
    program = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "interrupted\n"
    assert names(tmp_path) == []
