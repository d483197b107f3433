from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.demo._stages import (
    STAGES,
    BrokenPromiseError,
    DemoRun,
    go_on,
    kill_a_writer,
    record,
    stream_arrow,
    stream_records,
    write_dataset,
)
from penstock.cli.demo._training import (
    EPOCHS,
    TRAINING_STAGES,
    Step,
    TrainingPlan,
    kill_training,
    resume_training,
    train_uncut,
)
from penstock.jsonl import JsonlDir
from penstock.storage import drafts_in
from tests.cli.commands import document, invoke, visible, written
from tests.cli.drafts import held_draft

if TYPE_CHECKING:
    from collections.abc import Callable

DEMO_SECONDS = 100
"""Three processes load torch, perhaps on a busy machine."""
LEFT_OUT = "Training was left out, as torch is not installed: pip install 'penstock[torch]'"


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch not be found; a training is three processes that load it."""
    monkeypatch.setitem(sys.modules, "torch", None)


def test_the_installed_demo_works_anywhere_and_leaves_nothing(tmp_path: Path) -> None:
    work, temporary = tmp_path / "work", tmp_path / "tmp"
    # A folder of that name must not be taken for the package.
    written(work / "penstock" / "__init__.py", "raise SystemExit('not this one')")
    temporary.mkdir()
    done = subprocess.run(
        [Path(sys.executable).parent / "penstock", "demo", "--records", "1000"],
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
        cwd=work,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "All 1,000 records are there once, although a writer was killed." in done.stdout
    assert "every loss is the same to the last digit" in done.stdout
    told = dict(re.findall(r"^ *(\S+(?: \S+)*)  +(.*)$", done.stdout, re.MULTILINE))
    assert "2 epochs of 1,000 records" in told["train"]
    assert "with 1 worker" in told["kill training"]
    assert "with 2 workers" in told["resume"]
    losses = [float(loss) for loss in told["loss"].split()]
    assert losses[-1] < losses[0] / 2
    assert told["same loss"] == told["loss"]
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("no_torch")
def test_without_torch_one_line_says_how_to_get_the_training() -> None:
    done = invoke("demo", "--records", 100)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == LEFT_OUT
    assert "train  " not in done.stdout


@pytest.mark.usefixtures("no_torch")
def test_json_tells_every_step() -> None:
    told = document("demo", "--records", 500)
    assert (told["records"], told["holds"], told["broken"], told["kept"]) == (500, True, None, None)
    assert told["left_out"] == LEFT_OUT
    steps = {step["step"]: step for step in told["steps"]}
    assert list(steps) == [
        "write",
        "kill -9",
        "visible",
        "left behind",
        "go on",
        "stream records",
        "stream Arrow",
    ]
    assert steps["write"]["records"] == 250
    assert steps["stream records"]["records"] == steps["stream Arrow"]["records"] == 500
    assert all(step["seconds"] > 0 for step in told["steps"] if step["records"])


@pytest.mark.usefixtures("no_torch")
@pytest.mark.parametrize("records", [100, 101, 109, 997])
def test_what_is_kept_is_the_whole_dataset(tmp_path: Path, records: int) -> None:
    kept = tmp_path / "new" / "data"
    done = invoke("demo", "--records", records, "--keep", kept)
    assert done.exit_code == 0
    assert f"penstock info {kept}" in done.stdout
    assert list(JsonlDir(kept).iter_records_sync()) == [record(i) for i in range(records)]
    assert all(name.endswith(".jsonl.zst") for name in visible(kept))


def test_a_place_that_is_not_empty_is_refused(logs: Path) -> None:
    before = visible(logs)
    done = invoke("demo", "--keep", logs)
    assert done.exit_code == 2
    assert "empty" in done.stderr
    assert visible(logs) == before
    assert invoke("demo", "--keep", logs / before[0]).exit_code == 2


def written_run(place: Path) -> DemoRun:
    demo = DemoRun(str(place), 200, "")
    write_dataset(demo)
    kill_a_writer(demo)
    go_on(demo)
    return demo


@pytest.mark.parametrize("stage", [stream_records, stream_arrow])
def test_a_lost_record_breaks_the_promise(tmp_path: Path, stage: Callable[[DemoRun], None]) -> None:
    demo = written_run(tmp_path)
    assert stage in STAGES
    stage(demo)
    (tmp_path / "part-00003.jsonl.zst").unlink()
    with pytest.raises(BrokenPromiseError, match="all 200"):
        stage(demo)


def test_a_record_given_twice_breaks_the_promise(tmp_path: Path) -> None:
    demo = written_run(tmp_path)
    shard = tmp_path / "part-00003.jsonl.zst"
    (tmp_path / "part-00004.jsonl.zst").write_bytes(shard.read_bytes())
    with pytest.raises(BrokenPromiseError, match="once, in order"):
        stream_records(demo)
    with pytest.raises(BrokenPromiseError, match="same values"):
        stream_arrow(demo)


def test_a_draft_that_stays_breaks_the_promise(tmp_path: Path) -> None:
    demo = DemoRun(str(tmp_path), 200, "")
    write_dataset(demo)
    kill_a_writer(demo)
    (draft,) = tmp_path.glob(".*")
    with draft.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BrokenPromiseError, match="clears the dead one's draft"):
            go_on(demo)


def test_a_second_draft_breaks_the_promise_and_the_writer_is_ended(logs: Path) -> None:
    demo = DemoRun(str(logs), 200, "")
    with held_draft(logs, "other.jsonl") as other:
        with pytest.raises(BrokenPromiseError, match="unfinished shard is hidden"):
            kill_a_writer(demo)
        other.kill()
    assert {leftover.writer for leftover in drafts_in(str(logs))} == {"gone"}


def test_a_broken_promise_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def lose_a_shard(demo: DemoRun) -> None:
        next(Path(demo.directory).glob("part-*")).unlink()

    monkeypatch.setattr(
        "penstock.cli.demo._demo.STAGES", [write_dataset, lose_a_shard, stream_records]
    )
    done = invoke("demo", "--keep", tmp_path / "data")
    assert done.exit_code == 1
    assert "this does not hold: all 50,000 records are there" in done.stderr
    assert "write" in done.stdout
    assert "although a writer was killed" not in done.stdout
    told = document("demo", "--records", 100, code=1)
    assert (told["holds"], told["broken"]) == (False, "all 100 records are there")
    assert capfd.readouterr().err == ""


def test_a_checkpoint_that_is_off_by_little_breaks_the_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def disturb(demo: DemoRun) -> None:
        path = Path(demo.scratch, "killed.pt")
        saved = torch.load(path, weights_only=True)
        saved["model"]["0.bias"][0] += 1e-4
        torch.save(saved, path)

    assert [train_uncut, kill_training, resume_training] == TRAINING_STAGES
    stages = [train_uncut, kill_training, disturb, resume_training]
    monkeypatch.setattr("penstock.cli.demo._demo.TRAINING_STAGES", stages)
    kept = tmp_path / "data"
    told = document("demo", "--records", 301, "--keep", kept, code=1)
    assert told["holds"] is False
    assert told["broken"].startswith("after the resume every loss is that of the uncut run")
    assert told["left_out"] is None
    steps = {step["step"]: step for step in told["steps"]}
    assert list(steps)[-3:] == ["train", "loss", "kill training"]
    assert (steps["train"]["records"], steps["train"]["seconds"] > 0) == (602, True)
    # The data lies there alone: index, logs and checkpoints were elsewhere.
    assert all(name.endswith(".jsonl.zst") for name in visible(kept))


@given(st.integers(100, 10**9))
def test_training_is_killed_in_the_middle_of_an_epoch_and_after_a_checkpoint(records: int) -> None:
    plan = TrainingPlan(records)
    end = EPOCHS * plan.epoch_steps
    assert plan.batch_size * (plan.epoch_steps - 1) < records <= plan.batch_size * plan.epoch_steps
    assert plan.saved_at % plan.save_every == 0
    assert plan.epoch_steps < plan.saved_at < plan.killed_at < end - 1
    assert plan.killed_at < plan.saved_at + plan.save_every


def test_a_record_that_training_misses_or_sees_twice_is_found() -> None:
    plan = TrainingPlan(200)
    size = plan.batch_size
    epoch = [Step("", list(range(at, min(at + size, 200))), 0.0) for at in range(0, 200, size)]
    steps = epoch[::-1] + epoch
    assert plan.sees_all_once(steps)
    assert not plan.sees_all_once(steps[:-1])
    for wrong in ([], [7, 7], [200]):
        assert not plan.sees_all_once([*steps[:-1], Step("", wrong + steps[-1].ids[1:], 0.0)])
    # What was seen too often in one epoch does not make up for the other.
    assert not plan.sees_all_once([*epoch[:-1], epoch[0], epoch[-1], *epoch[1:]])
