"""After a fork: never a hang, never a crash, always the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.jsonl import JsonlDir, JsonlFile
from tests.faults import fork_programs
from tests.faults.child import run
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults.grounds import Ground

RECORDS = 60
SHARDS = 3
METHODS = pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
REMOTE_REMEDY = "multiprocessing_context='forkserver' (or 'spawn')"


@pytest.fixture
def written(ground: Ground) -> Ground:
    """A directory of compressed shards, local and on S3."""
    with JsonlDir(ground.path, ground.storage_options).writer_sync(
        ".jsonl.zst", max_records_per_shard=RECORDS // SHARDS
    ) as writer:
        writer.write_many({"n": n, "text": "x" * 100} for n in range(RECORDS))
    return ground


@pytest.fixture
def remote(s3_ground: Ground) -> Ground:
    with JsonlDir(s3_ground.path, s3_ground.storage_options).writer_sync(
        max_records_per_shard=RECORDS // SHARDS
    ) as writer:
        writer.write_many({"n": n} for n in range(RECORDS))
    return s3_ground


def _run(program: Callable[..., Any], ground: Ground, *more: object) -> Any:
    return run(program, ground.path, ground.storage_options, *more)


def _is_refused(child: dict[str, Any]) -> bool:
    """Whether a child was told at once, with the remedy, and ended well."""
    return child["status"] == 0 and REMOTE_REMEDY in child["refused"]


def test_a_store_made_and_not_used_before_the_fork_works_in_the_child(remote: Ground) -> None:
    told = _run(fork_programs.row_1_made_but_not_used, remote)
    assert told["child"] == {"status": 0, "result": RECORDS}
    assert told["parent"] == RECORDS
    assert _is_refused(told["later"])


def test_a_store_used_before_the_fork_is_refused_in_the_child_and_works_in_the_parent(
    remote: Ground,
) -> None:
    told = _run(fork_programs.row_2_used_in_the_parent, remote)
    assert told["before"] == told["parent"] == RECORDS
    assert _is_refused(told["child"])


def test_a_new_store_in_the_child_of_a_user_is_refused_and_the_parent_reads_on(
    remote: Ground,
) -> None:
    told = _run(fork_programs.row_3_made_anew_in_the_child, remote)
    assert told["before"] == RECORDS
    assert told["counts"] == [RECORDS]
    assert all(_is_refused(child) for child in told["children"])


@METHODS
def test_workers_of_a_parent_that_used_its_store(remote: Ground, method: str) -> None:
    told = run(fork_programs.row_4_workers, method, remote.path, remote.storage_options)
    assert told["parent"] == RECORDS
    for answers in (told["pool"], told["executor"]):
        if method == "fork":
            assert all(REMOTE_REMEDY in answer["refused"] for answer in answers)
        else:
            expected = [RECORDS] + [RECORDS // SHARDS] * SHARDS
            assert [answer["result"] for answer in answers] == expected


@METHODS
def test_workers_of_a_parent_that_did_not(remote: Ground, method: str) -> None:
    told = run(fork_programs.unused_workers, method, remote.path, remote.storage_options)
    assert told == {
        "pool": [{"result": RECORDS}],
        "executor": [{"result": RECORDS}],
        "parent": RECORDS,
    }


@METHODS
def test_errors_arrive_from_workers_as_what_they_are(remote: Ground, method: str) -> None:
    told = run(fork_programs.error_through_workers, method, remote.path, remote.storage_options)
    expected = "UnsafeForkError" if method == "fork" else "ObjectNotFoundError"
    assert told == [expected, expected]


def test_children_that_exit_as_programs_do_harm_nobody(written: Ground) -> None:
    told = _run(fork_programs.child_that_exits, written)
    assert told == {"before": RECORDS, "children": [0] * 5, "parent": RECORDS}


def test_a_grandchild_is_refused_as_a_child_is(remote: Ground) -> None:
    told = _run(fork_programs.grandchild, remote)
    assert told["child"]["status"] == 0
    assert _is_refused(told["child"]["result"])
    assert told["parent"] == RECORDS


def test_a_child_may_use_what_its_parent_did_not_and_its_own_child_may_not(
    remote: Ground,
) -> None:
    told = _run(fork_programs.child_of_an_unused_parent, remote)
    assert told["result"]["own"] == RECORDS
    assert _is_refused(told["result"]["grandchild"])


def test_forks_while_other_threads_read_are_refused_one_and_all(remote: Ground) -> None:
    forks = rounds(20, 300)
    told = _run(fork_programs.fork_while_threads_read, remote, forks)
    assert told == {"statuses": [0], "refused": forks, "counts": [RECORDS]}


def test_async_code_in_a_child_is_refused_too(remote: Ground) -> None:
    told = _run(fork_programs.async_child, remote)
    assert told["before"] == told["parent"] == RECORDS
    assert _is_refused(told["child"])


def test_a_child_of_a_writer_is_refused_too(remote: Ground) -> None:
    told = _run(fork_programs.writing_child, remote)
    assert [told["before"], told["parent"]] == [
        [remote.at("part-00003.jsonl")],
        [remote.at("part-00004.jsonl")],
    ]
    assert _is_refused(told["child"])


def test_children_forked_before_the_first_use_read_and_write_at_once(remote: Ground) -> None:
    told = _run(fork_programs.many_children, remote)
    assert told == {"statuses": [0] * 6, "written": 6 * RECORDS}


def test_a_child_cannot_go_on_with_its_parents_stream_and_the_parent_can(written: Ground) -> None:
    told = _run(fork_programs.child_that_goes_on_reading, written)
    assert told["child"]["status"] == 0
    assert "forked" in told["child"]["refused"]
    assert told["parent"] == RECORDS


def test_a_child_cannot_go_on_decoding_its_parents_stream_and_the_parent_can(
    tmp_path: Path,
) -> None:
    lines = 400
    with JsonlFile(tmp_path / "a.jsonl").writer_sync() as writer:
        writer.write_many({"text": "x" * 50_000} for _ in range(lines))
    told = run(fork_programs.child_that_goes_on_decoding, str(tmp_path / "a.jsonl"))
    assert told["child"]["status"] == 0
    assert "Begin to read in the forked process" in told["child"]["refused"]
    assert told["parent"] == lines


def test_a_child_may_drop_its_parents_stream_at_any_moment(written: Ground) -> None:
    forks = rounds(30, 500)
    assert _run(fork_programs.child_that_drops_a_stream, written, forks) == [0] * forks


@pytest.mark.parametrize("how", ["write", "close", "flush"])
def test_a_child_cannot_use_its_parents_writer_and_the_parent_can(ground: Ground, how: str) -> None:
    told = run(
        fork_programs.child_with_its_parents_writer, ground.path, ground.storage_options, how
    )
    assert told["child"]["status"] == 0
    assert "Open a writer of its own" in told["child"]["refused"]
    assert told["published"] == 1
    records = list(JsonlDir(ground.path, ground.storage_options).iter_records_sync())
    assert [record["n"] for record in records] == list(range(100))
    assert ground.hidden() == []


@pytest.mark.parametrize(("how", "status"), [("exception", 6), ("exit", 5), ("well", 7)])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst"])
def test_a_child_that_leaves_its_parents_block_publishes_nothing(
    ground: Ground, how: str, status: int, name: str
) -> None:
    told = run(
        fork_programs.child_that_leaves_its_parents_block,
        ground.at(name),
        ground.storage_options,
        how,
    )
    assert told == {"statuses": [status]}
    records = list(JsonlFile(ground.at(name), ground.storage_options).iter_records_sync())
    assert [record["n"] for record in records] == list(range(100))
    assert ground.names() == [name]
