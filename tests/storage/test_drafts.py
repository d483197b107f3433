from __future__ import annotations

import os
import re
import signal
import stat
import time
from pathlib import Path

import pytest

from penstock.errors import ObjectExistsError, StorageError
from penstock.storage import LocalStore
from penstock.storage._drafts import drafts_in, publish_by_claim
from tests.faults.child import Child, run, run_together
from tests.rounds import rounds
from tests.storage import draft_programs
from tests.storage.store_contract import Place

CLAIMANTS = 8


def _hidden(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.startswith("."))


def test_a_draft_is_a_hidden_file_that_says_what_it_will_be(tmp_path: Path) -> None:
    draft = LocalStore().draft(str(tmp_path), "part.jsonl")
    draft.write(b"x")
    (name,) = os.listdir(tmp_path)  # noqa: PTH208
    assert re.fullmatch(r"\.part\.jsonl\.[0-9a-f]{16}\.penstock-tmp", name)
    draft.discard()
    assert _hidden(tmp_path) == []


@pytest.mark.parametrize("label", ["ü" * 120, "a" * 250, "日" * 80, "a\nb", "..", " "])
def test_any_label_makes_a_draft_that_can_be_cleared(tmp_path: Path, label: str) -> None:
    with Child(draft_programs.hold_a_draft, str(tmp_path), "x") as child:
        assert child.hear() == "held"
        child.kill()
    draft = LocalStore().draft(str(tmp_path), label)
    (dead,) = LocalStore().clear_dead_drafts(str(tmp_path))
    assert ".held." in dead.name
    (living,) = _hidden(tmp_path)
    # As its writer's end leaves it: the lock is gone, the file is there.
    os.close(draft.descriptor)
    assert [e.name for e in LocalStore().clear_dead_drafts(str(tmp_path))] == [
        f"{tmp_path}/{living}"
    ]
    draft.descriptor = -1


def test_a_killed_writers_draft_is_removed_and_a_living_ones_never(tmp_path: Path) -> None:
    place = str(tmp_path)
    with (
        Child(draft_programs.hold_a_draft, place, "dead" * 100) as dead,
        Child(draft_programs.hold_a_draft, place, "alive") as alive,
    ):
        assert [dead.hear(), alive.hear()] == ["held", "held"]
        assert LocalStore().clear_dead_drafts(place) == []
        assert [one.writer for one in drafts_in(place)] == ["at work", "at work"]
        dead.kill()
        assert {e.size: writer for e, writer in drafts_in(place)} == {5: "at work", 400: "gone"}
        assert [entry.size for entry in LocalStore().clear_dead_drafts(place)] == [400]
        assert LocalStore().clear_dead_drafts(place) == []
        alive.tell("survivor")
        alive.result()
    assert os.listdir(place) == ["survivor"]  # noqa: PTH208
    assert (tmp_path / "survivor").read_bytes() == b"alive"


def test_a_stopped_writer_is_alive(tmp_path: Path) -> None:
    with Child(draft_programs.hold_a_draft, str(tmp_path), "asleep") as child:
        assert child.hear() == "held"
        os.kill(child.pid, signal.SIGSTOP)
        assert LocalStore().clear_dead_drafts(str(tmp_path)) == []
        os.kill(child.pid, signal.SIGCONT)
        child.tell("awake")
        child.result()
    assert (tmp_path / "awake").read_bytes() == b"asleep"


def test_what_others_left_is_not_ours_to_remove(tmp_path: Path) -> None:
    names = [
        ".hidden",
        ".x.penstock-tmp",
        ".x.0123456789abcde.penstock-tmp",
        ".x.0123456789ABCDEF.penstock-tmp",
        "x.0123456789abcdef.penstock-tmp",
        ".x.0123456789abcdef.penstock-tmp.jsonl",
        "x.penstock-claim",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / ".dir.0123456789abcdef.penstock-tmp").mkdir()
    assert LocalStore().clear_dead_drafts(str(tmp_path)) == []
    assert len(os.listdir(tmp_path)) == len(names) + 1  # noqa: PTH208


@pytest.mark.parametrize(
    ("how", "status"),
    [("exit", 0), ("drop", 0), ("discard", 0), ("write", 7), ("publish", 7)],
)
def test_a_forked_child_neither_removes_nor_publishes_its_parents_draft(
    tmp_path: Path, how: str, status: int
) -> None:
    told = run(draft_programs.fork_and_let_the_child, how, str(tmp_path))
    assert told == {"status": status, "hidden": 1, "cleared": [], "names": ["parent"]}
    assert (tmp_path / "parent").read_bytes() == b"parent\nparent again\n"


def test_a_draft_whose_forked_child_lives_on_is_cleared_when_that_ends(tmp_path: Path) -> None:
    with Child(draft_programs.fork_a_child_that_outlives, str(tmp_path)) as child:
        grandchild = int(child.hear())
        child.kill()
        assert LocalStore().clear_dead_drafts(str(tmp_path)) == []
        os.kill(grandchild, signal.SIGKILL)
        # It is no child of ours, so its end shows by the lock alone.
        while not LocalStore().clear_dead_drafts(str(tmp_path)):
            time.sleep(0.01)
    assert _hidden(tmp_path) == []


@pytest.mark.parametrize("by_link", [True, False])
def test_of_eight_processes_one_takes_each_name_and_none_is_overwritten(
    tmp_path: Path, *, by_link: bool
) -> None:
    names = rounds(40, 2000)
    arguments = [(str(tmp_path), who, names) for who in range(CLAIMANTS)]
    program = draft_programs.claim_by_link if by_link else draft_programs.claim_by_claim
    with run_together(program, arguments) as children:
        won = [child.result() for child in children]
    assert sorted(int(name) for names_won in won for name in names_won) == list(range(names))
    for who, names_won in enumerate(won):
        for name in names_won:
            assert (tmp_path / name).read_text() == f"{name} of {who}"
    assert _hidden(tmp_path) == []


class TestPublishingByClaim:
    """The way where hard links are missing."""

    def _draft(self, tmp_path: Path, content: bytes) -> str:
        draft = tmp_path / ".x.0123456789abcdef.penstock-tmp"
        draft.write_bytes(content)
        return str(draft)

    def test_it_publishes_and_leaves_no_claim(self, tmp_path: Path) -> None:
        publish_by_claim(self._draft(tmp_path, b"x"), str(tmp_path / "a"))
        assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208
        assert (tmp_path / "a").read_bytes() == b"x"

    @pytest.mark.parametrize("kind", ["file", "directory", "broken link"])
    def test_it_never_replaces(self, tmp_path: Path, kind: str) -> None:
        taken = tmp_path / "a"
        if kind == "file":
            taken.write_bytes(b"first")
        elif kind == "directory":
            taken.mkdir()
        else:
            taken.symlink_to(tmp_path / "nowhere")
        before = taken.lstat()
        draft = self._draft(tmp_path, b"second")
        with pytest.raises(ObjectExistsError):
            publish_by_claim(draft, str(taken))
        assert taken.lstat() == before
        assert Path(draft).read_bytes() == b"second"
        assert _hidden(tmp_path) == [Path(draft).name]

    def test_a_dead_claim_does_not_stand_in_the_way(self, tmp_path: Path) -> None:
        with Child(draft_programs.hold_a_claim, str(tmp_path), "a") as child:
            assert child.hear() == "claimed"
            child.kill()
        assert _hidden(tmp_path) == [".a.penstock-claim"]
        publish_by_claim(self._draft(tmp_path, b"x"), str(tmp_path / "a"))
        assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208

    def test_a_dead_claim_is_cleared_with_the_drafts_and_a_living_one_never(
        self, tmp_path: Path
    ) -> None:
        with (
            Child(draft_programs.hold_a_claim, str(tmp_path), "dead") as dead,
            Child(draft_programs.hold_a_claim, str(tmp_path), "alive") as alive,
        ):
            assert [dead.hear(), alive.hear()] == ["claimed", "claimed"]
            dead.kill()
            cleared = LocalStore().clear_dead_drafts(str(tmp_path))
            assert [entry.name for entry in cleared] == [f"{tmp_path}/.dead.penstock-claim"]
            alive.tell()
            alive.result()
        assert _hidden(tmp_path) == []

    def test_a_living_claim_is_waited_for(self, tmp_path: Path) -> None:
        with Child(draft_programs.hold_a_claim, str(tmp_path), "a") as first:
            assert first.hear() == "claimed"
            with Child(draft_programs.publish_by_claim_once, str(tmp_path), "a") as second:
                assert second.hear() == "waiting"
                first.tell()
                first.result()
                assert second.result() == "published"
        assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208


def test_publishing_over_a_directory_fails_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken" / "full").mkdir(parents=True)
    for exclusive in (True, False):
        draft = LocalStore().draft(str(tmp_path), "x")
        with pytest.raises(StorageError, match="taken"):
            draft.publish(str(tmp_path / "taken"), exclusive=exclusive)
        draft.discard()
    assert os.listdir(tmp_path) == ["taken"]  # noqa: PTH208


def test_publishing_into_a_directory_that_is_gone_fails_and_names_it(tmp_path: Path) -> None:
    draft = LocalStore().draft(str(tmp_path), "x")
    for exclusive in (True, False):
        with pytest.raises(FileNotFoundError, match="gone") as raised:
            draft.publish(str(tmp_path / "gone" / "a"), exclusive=exclusive)
        assert isinstance(raised.value, StorageError)
    draft.publish(str(tmp_path / "a"), exclusive=True)
    assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208


def test_a_draft_after_a_failed_write_is_not_published(tmp_path: Path) -> None:
    draft = LocalStore().draft(str(tmp_path), "x")
    draft.write(b"first")
    with pytest.raises(TypeError):
        draft.write("not bytes")  # type: ignore[arg-type]
    for exclusive in (True, False):
        with pytest.raises(StorageError, match="an earlier write failed"):
            draft.publish(str(tmp_path / "a"), exclusive=exclusive)
    draft.discard()
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_the_umask_is_respected(tmp_path: Path) -> None:
    for mask, file_mode, directory_mode in [
        (0o022, 0o644, 0o755),
        (0o077, 0o600, 0o700),
        (0o002, 0o664, 0o775),
    ]:
        place = tmp_path / oct(mask)
        place.mkdir()
        run(draft_programs.write_with_umask, str(place), mask)
        assert stat.S_IMODE((place / "made" / "x").stat().st_mode) == file_mode
        assert stat.S_IMODE((place / "made").stat().st_mode) == directory_mode


def test_a_published_file_has_one_name_only(tmp_path: Path) -> None:
    place = Place(LocalStore(), str(tmp_path))
    for exclusive in (True, False):
        name = place.publish("a" if exclusive else "b", b"x", exclusive=exclusive)
        assert Path(name).stat().st_nlink == 1
