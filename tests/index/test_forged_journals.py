"""A journal that no builder wrote: looking changes nothing, and undoing stays below the base."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.errors import CorruptIndexError
from penstock.index import create_default_jsonl_indexer
from penstock.index.tokens._journal import JOURNAL, PutAside, note, put_in, take_back_dead
from penstock.storage import StorageOptions
from tests.cli.commands import document, invoke
from tests.forged import outside, put_odd, tree
from tests.index.tokenize_samples import by_hand, tokenise, tokens_in, write_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

TEXTS = {"a.jsonl": ["to be", "or not"]}


class Place(NamedTuple):
    """A dataset of a stranger, and what lies beside it."""

    root: Path
    base: Path
    left: Path
    """The hidden folder of a builder that never was."""
    mine: Path
    """A file that is none of the dataset."""

    def journal(self, *entries: dict[str, Any]) -> None:
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        (self.left / JOURNAL).write_text(lines)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    base, mine = tmp_path / "data", tmp_path / "mine" / "model.bin"
    left = base / ".index.0123456789abcdef.penstock-index-tmp"
    write_texts(base, TEXTS)
    create_default_jsonl_indexer(base)()
    left.mkdir()
    for name in ("payload", "old-0"):
        (left / name).write_text("forged")
    (left / "old-7").mkdir()
    mine.parent.mkdir()
    mine.write_text("precious")
    (tmp_path / "mine" / "empty").mkdir()
    (base / "link").symlink_to(tmp_path / "mine")
    (base / "deep").symlink_to(tmp_path / "mine" / "empty")
    return Place(tmp_path, base, left, mine)


def aside(path: object, name: str = "old-0") -> dict[str, Any]:
    return {"type": "aside", "path": str(path), "name": name}


def put(path: Path, spelt: object = None) -> dict[str, Any]:
    """Return the note of a file with its own inode: all that is needed to remove it."""
    noted = put_in(path, str(spelt or path))
    values = {"size": noted.size, "inode": noted.inode, "modified": noted.modified}
    return {"type": "in", "path": noted.path, **values}


def uploaded(path: object, index: object = None) -> dict[str, Any]:
    return {"type": "object", "path": str(path), "size": 8, "version": None, "index": index}


FORGED: dict[str, Callable[[Place], dict[str, Any]]] = {
    "aside, absolute": lambda p: aside(p.root / "mine" / "new.bin"),
    "aside, above": lambda p: aside(f"{p.base}/../mine/new.bin"),
    "aside, relative": lambda _: aside("new.bin"),
    "aside, through a link": lambda p: aside(p.base / "link" / "new.bin"),
    "aside, above a link's target": lambda p: aside(f"{p.base}/deep/../new.bin"),
    "aside, a folder": lambda p: aside(p.base / "x.bin", "old-7"),
    "aside, named above": lambda p: aside(p.base / "x.bin", "../../mine/model.bin"),
    "aside, named absolutely": lambda p: aside(p.base / "x.bin", str(p.mine)),
    "aside, of another name": lambda p: aside(p.base / "x.bin", "payload"),
    "aside, no token file": lambda p: aside(p.base / "new.sh"),
    "aside, another index": lambda p: aside(p.root / "mine" / "index", "old-index"),
    "folder, absolute": lambda p: {"type": "folder", "path": str(p.root / "mine" / "empty")},
    "folder, through a link": lambda p: {"type": "folder", "path": f"{p.base}/link/empty"},
    "aside, a NUL": lambda p: aside(f"{p.root}/\0/new.bin"),
    "aside, not UTF-8": lambda p: aside(f"{p.root}/\ud800/new.bin"),
    "folder, a NUL": lambda _: {"type": "folder", "path": "/\0"},
    "index, a NUL": lambda _: {"type": "index", "folder": "/\0/index", "meta": "x"},
    "in, absolute": lambda p: put(p.mine),
    "in, above": lambda p: put(p.mine, f"{p.base}/../mine/model.bin"),
    "in, through a link": lambda p: put(p.base / "link" / "model.bin"),
    "in, above a link's target": lambda p: put(p.mine, f"{p.base}/deep/../model.bin"),
    "in, no token file": lambda p: put(p.base / "a.jsonl"),
    "object, a file": lambda p: uploaded(p.mine),
    "object, a file below": lambda p: uploaded(p.base / "link" / "model.bin"),
    "object, remote": lambda _: uploaded("s3://bucket/model.bin"),
    "object, remote index": lambda _: uploaded("s3://b/m.bin", "s3://b/index"),
    "index, another": lambda p: {"type": "index", "folder": str(p.root), "meta": "x"},
    "another type": lambda _: {"type": "run", "path": "/bin/true"},
    "not an object": lambda _: {},
}


@pytest.mark.parametrize("forged", FORGED)
def test_looking_at_a_forged_journal_changes_nothing(forged: str, place: Place) -> None:
    place.journal(FORGED[forged](place))
    before = tree(place.root)
    assert len(penstock.open(place.base)) == 2
    for verb, code in {"info": 0, "show": 0, "check": 1, "clean": 0}.items():
        more = {"show": ["0"], "clean": ["--dry-run"]}.get(verb, [])
        done = invoke(verb, place.base, *more)
        assert done.exit_code == code, done.output
        assert (str(place.left / JOURNAL) in done.output) == (verb == "check")
    assert tree(place.root) == before


@pytest.mark.parametrize("forged", FORGED)
def test_looking_changes_nothing_where_an_index_seems_to_be_put_aside(
    forged: str, place: Place
) -> None:
    (place.base / "index").rename(place.left / "old-index")
    place.journal(aside(place.base / "index", "old-index"), FORGED[forged](place))
    before = tree(place.root)
    moved = f"old-index lay in {place.base}/index"
    with pytest.raises(CorruptIndexError, match=moved) as refused:
        penstock.open(place.base)
    assert "rm -r" not in str(refused.value)
    for verb, code in {"info": 0, "show": 0, "check": 1}.items():
        done = invoke(verb, place.base, *(["0"] if verb == "show" else []))
        assert done.exit_code == code, done.output
        assert str(place.left) in done.output
    assert tree(place.root) == before


@pytest.mark.parametrize("forged", FORGED)
def test_builders_and_clean_leave_a_forged_journal_alone_and_name_it(
    forged: str, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    # What comes before it would be undone after it: all of it is checked first.
    place.journal(aside(place.base / "good.bin", "old-0"), FORGED[forged](place))
    before, left = outside(place.root, place.base), tree(place.left)
    for how in ([], ["--dry-run"]):
        told = document("clean", place.base, *how)
        assert (told["removed"], [one["path"] for one in told["kept"]]) == ([], [str(place.left)])
    done = invoke("clean", place.base)
    assert done.exit_code == 0
    assert f"{place.left} holds old-0, old-7" in done.stderr
    assert "rm -r" not in done.stderr
    create_default_jsonl_indexer(place.base, overwrite=True)()
    assert "was not written by a builder of these tokens" in caplog.text
    assert outside(place.root, place.base) == before
    assert tree(place.left) == left
    assert not (place.base / "good.bin").exists()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "sparse"])
def test_a_journal_that_is_no_regular_file_is_refused_at_once(kind: str, place: Place) -> None:
    put_odd(place.left / JOURNAL, kind)
    before = tree(place.root)
    assert len(penstock.open(place.base)) == 2
    assert str(place.left) in invoke("check", place.base).output
    assert invoke("clean", place.base).exit_code == 0
    assert tree(place.root) == before


def test_only_a_folder_that_holds_nothing_put_aside_is_to_be_removed(place: Place) -> None:
    (place.left / "old-0").unlink()
    (place.left / "old-7").rmdir()
    place.journal(aside(place.root / "mine" / "new.bin"))
    assert f"rm -r {place.left}" in invoke("clean", place.base).stderr


@pytest.mark.parametrize("as_index", [False, True])
def test_a_link_that_a_journal_puts_in_place_itself_is_not_followed(
    place: Place, *, as_index: bool
) -> None:
    """Before anything is undone, none of these paths has a link on the way."""
    name, link = ("index", "old-index") if as_index else ("x.bin", "old-0")
    (place.root / "mine" / "empty.bin").mkdir()
    (place.left / "old-1").write_text("forged")
    (place.left / link).unlink(missing_ok=True)
    (place.left / link).symlink_to(place.root / "mine")
    shutil.rmtree(place.base / "index")
    inside = place.base / name
    place.journal(
        put(place.mine, inside / "model.bin"),
        aside(inside / "evil.bin", "old-1"),
        {"type": "folder", "path": str(inside / "empty.bin")},
        aside(inside, link),
    )
    before = outside(place.root, place.base)
    for _ in range(2):
        assert invoke("clean", place.base).exit_code == 0
        assert outside(place.root, place.base) == before
    assert (place.left / "old-1").exists()


def test_a_token_file_that_is_a_link_is_put_back_as_one(place: Place) -> None:
    """A snapshot of a hub is made of links, and a builder puts aside what is there."""
    (place.left / "old-1").symlink_to(place.mine)
    place.journal(aside(place.base / "x.bin", "old-1"))
    assert invoke("clean", place.base).exit_code == 0
    assert (place.base / "x.bin").readlink() == place.mine
    assert not place.left.exists()


def test_a_builder_builds_where_only_a_forged_index_was_put_aside(place: Place) -> None:
    (place.base / "index").rename(place.left / "old-index")
    place.journal(aside(place.root / "mine" / "index", "old-index"))
    create_default_jsonl_indexer(place.base)()
    assert len(penstock.open(place.base)) == 2
    assert (place.left / "old-index").exists()


def test_a_hidden_folder_that_is_a_link_is_not_followed(place: Place) -> None:
    place.journal(aside(place.base / "new.bin"))
    elsewhere = place.left.rename(place.root / "mine" / place.left.name)
    place.left.symlink_to(elsewhere)
    before = tree(place.root)
    assert len(penstock.open(place.base)) == 2
    assert invoke("clean", place.base).exit_code == 0
    assert tree(place.root) == before
    create_default_jsonl_indexer(place.base, overwrite=True)()
    assert elsewhere.exists()
    assert not (place.base / "new.bin").exists()


def test_a_link_put_in_place_of_a_token_file_is_not_followed(place: Place) -> None:
    """By its own inode a file elsewhere is not removed: a link is another one."""
    (place.base / "x.bin").symlink_to(place.mine)
    place.journal(put(place.mine, place.base / "x.bin"))
    assert invoke("clean", place.base).exit_code == 0
    assert place.mine.exists()


def test_tokens_are_not_written_through_a_link(place: Place) -> None:
    (place.base / "tokenized-samples").symlink_to(place.root / "mine")
    before = tree(place.root / "mine")
    with pytest.raises(OSError, match=r"tokenized-samples is a link.*output_base_path="):
        tokenise(place.base, sample_size=5, overwrite=True)
    assert tree(place.root / "mine") == before


@pytest.mark.parametrize(
    "path", ["../mine/model.bin", "link/model.bin", "deep/../model.bin", "/etc/model.bin"]
)
def test_forged_names_of_empty_token_files_remove_nothing_elsewhere(
    path: str, tmp_path: Path
) -> None:
    base, mine = tmp_path / "data", tmp_path / "mine" / "model.bin"
    write_texts(base, TEXTS)
    tokenise(base, sample_size=5)
    mine.parent.mkdir()
    mine.write_text("precious")
    (base / "link").symlink_to(mine.parent)
    (mine.parent / "inner").mkdir()
    (base / "deep").symlink_to(mine.parent / "inner")
    meta = json.loads((base / "index" / "meta.json").read_text())
    meta["empty"] = [{**meta["files"][0], "path": path, "records": 0}]
    (base / "index" / "meta.json").write_text(json.dumps(meta))
    tokenise(base, sample_size=6, overwrite=True)
    assert mine.read_text() == "precious"
    assert tokens_in(base) == by_hand(TEXTS, 6)


parts = st.sampled_from(
    ["..", ".", "", "link", "deep", "mine", "data", "model.bin", "x.bin", "old-0"]
)
paths = st.lists(parts, min_size=1, max_size=4).map("/".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=st.lists(st.tuples(st.booleans(), st.booleans(), paths, paths), max_size=4))
def test_no_journal_reaches_outside_of_the_base(
    entries: Sequence[tuple[bool, bool, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("forged")
    base, mine = root / "data", root / "mine"
    left = base / ".index.0123456789abcdef.penstock-index-tmp"
    left.mkdir(parents=True)
    mine.mkdir()
    for path in (left / "old-0", mine / "model.bin", base / "x.bin"):
        path.write_text("bytes")
    (base / "link").symlink_to(mine)
    (mine / "inner").mkdir()
    (base / "deep").symlink_to(mine / "inner")
    for is_in, is_absolute, path, name in entries:
        spelt = f"{root}/{path}" if is_absolute else f"{base}/{path}"
        noted = put_in(mine / "model.bin", spelt) if is_in else PutAside(spelt, name)
        note(left, [noted])
    before = outside(root, base)
    take_back_dead(left, StorageOptions())
    assert outside(root, base) == before


def test_what_was_noted_last_and_not_written_as_a_whole_is_not_done_yet(place: Place) -> None:
    made = place.base / "x.bin"
    made.write_text("of a killed builder")
    note(place.left, [put_in(made, str(made))])
    with (place.left / JOURNAL).open("ab") as file:
        file.write(b'{"type":"in","pa')
    assert invoke("clean", place.base).exit_code == 0
    assert not made.exists()
    assert not place.left.exists()


def test_a_dead_builder_without_a_journal_is_cleared_by_any_builder(place: Place) -> None:
    create_default_jsonl_indexer(place.base, overwrite=True)()
    assert not place.left.exists()
