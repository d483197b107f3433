"""Worker processes: what they raise, what they send, what kills them, and how they are started."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import penstock
from penstock.errors import OptionError, StaleIndexError, UnsafeForkError, WorkerError
from tests.faults.child import run
from tests.loading import encoders, fork_programs
from tests.loading.encoders import LockedError, OddError, TwoWordsError
from tests.loading.script_programs import NOTEBOOK, OWN_ENCODER, WITHOUT_GUARD
from tests.rounds import LONG

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

METHODS = ("fork", "forkserver", "spawn")
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)
FEW_METHODS = pytest.mark.parametrize("method", METHODS if LONG else METHODS[:1])
"""Where all methods do the same, once a worker runs."""


def _loader(encode: Any = None, method: str | None = "fork", **options: Any) -> penstock.DataLoader:
    chosen = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": method, **options}
    return penstock.DataLoader(pa.table({"n": np.arange(20)}), encode, **chosen)


def test_workers_of_a_fork_server_have_the_variables_of_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for value in ("old", "new"):  # As credentials are, in a long run.
        monkeypatch.setenv("PENSTOCK_TEST", value)
        batches = list(_loader(encoders.sees_variable, "forkserver", num_workers=1))
        assert {text for batch in batches for text in batch} == {value}


# What goes wrong in a worker.


@EVERY_METHOD
def test_an_error_of_a_users_module_arrives_as_it_is(method: str) -> None:
    with pytest.raises(OddError, match="too odd") as raised:
        list(_loader(encoders.raises_odd, method))
    assert str(raised.value) == "too odd"
    shown = "".join(traceback.format_exception(raised.value))
    assert "in raises_odd" in shown  # Where it arose, in the worker.
    assert 'raise OddError("too odd")' in shown
    assert "In the batch of step 0 of epoch 0: records 0, 1, 2, 3 (4 in all)" in shown


def test_a_worker_that_finds_another_index_says_so(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"n": 1}\n' * 8)
    source = penstock.open(tmp_path)
    (tmp_path / "a.jsonl").unlink()
    penstock.open(tmp_path)  # Numbers the records anew.
    options: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": "spawn"}
    with pytest.raises(StaleIndexError, match="open it again in every process"):
        list(penstock.DataLoader(source, batch_size=4, **options))


@FEW_METHODS
@pytest.mark.parametrize(
    ("encode", "kind", "text"),
    [
        (encoders.raises_two_words, TwoWordsError, "odd: by nature"),
        (encoders.raises_locked, LockedError, "kept shut"),
        (encoders.raises_unknown, WorkerError, "raises_unknown.<locals>.InnerError: of 4 rows"),
        (encoders.raises_from_another, OddError, "because of a key"),
    ],
)
def test_an_error_that_does_not_pickle_keeps_its_type_text_and_trace(
    encode: Any, kind: type[Exception], text: str, method: str
) -> None:
    with pytest.raises(kind, match="In the batch of step 0") as raised:
        list(_loader(encode, method))
    assert type(raised.value) is kind
    assert str(raised.value) == text
    shown = "".join(traceback.format_exception(raised.value))
    assert f"in {encode.__name__}" in shown
    assert "records 0, 1, 2, 3 (4 in all)" in "".join(raised.value.__notes__)
    if encode is encoders.raises_from_another:
        assert "KeyError: 'missing'" in shown


@pytest.mark.parametrize("workers", [0, "auto", 2])
def test_the_same_error_is_named_in_the_same_way_wherever_it_arises(workers: Any) -> None:
    with pytest.raises(OddError, match="too odd") as raised:
        list(_loader(encoders.raises_odd, None, num_workers=workers))
    assert raised.value.__notes__ == [
        "In the batch of step 0 of epoch 0: records 0, 1, 2, 3 (4 in all)."
    ]


@FEW_METHODS
def test_what_cannot_be_sent_is_told(method: str) -> None:
    with pytest.raises(WorkerError, match=r"cannot send what encode made.*num_workers=0") as raised:
        list(_loader(encoders.makes_functions, method))
    assert "step 0 of epoch 0" in "".join(raised.value.__notes__)


def test_an_encoder_that_cannot_be_sent_is_refused_with_the_remedy() -> None:
    with pytest.raises(OptionError, match=r"cannot be sent.*multiprocessing_context='fork'"):
        list(_loader(lambda columns: columns, "spawn"))
    assert len(list(_loader(lambda columns: columns, "fork"))) == 5


@FEW_METHODS
def test_a_killed_worker_is_told_and_the_state_goes_up_to_the_batch_before(method: str) -> None:
    loader = _loader(None, method, shuffle=True)
    whole = [batch.ids.tolist() for batch in _loader(None, method, shuffle=True)]
    run = iter(loader)
    seen = [next(run).ids.tolist()]
    for worker in multiprocessing.active_children():
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"was killed by SIGKILL; .*out of memory.*records"):
        seen.extend(batch.ids.tolist() for batch in run)  # Some may be on their way already.
    assert seen == whole[: len(seen)]
    again = _loader(None, method, shuffle=True)
    again.load_state_dict(loader.state_dict())
    assert seen + [batch.ids.tolist() for batch in again] == whole
    assert multiprocessing.active_children() == []


# What they send.


@FEW_METHODS
@pytest.mark.parametrize("encode", [encoders.makes_all_dtypes, encoders.makes_arrays])
def test_whatever_an_encoder_makes_arrives_equal_and_writable(encode: Any, method: str) -> None:
    loader = _loader(encode, method, num_workers=1)
    here = [encode(batch) for batch in _loader(output="arrow", num_workers=0)]
    for made, expected in zip(loader, here, strict=True):
        _check_equal(made, expected)


def _check_equal(made: Any, expected: Any) -> None:
    assert type(made) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
        assert made.requires_grad == expected.requires_grad
        # As what every type goes into, since not every type can be compared.
        assert torch.equal(*(each.to_dense().to(torch.complex128) for each in (made, expected)))
        if made.layout == torch.strided and not made.requires_grad:
            made.zero_()
    elif isinstance(expected, np.ndarray):
        assert made.dtype == expected.dtype
        assert made.flags.writeable
        np.testing.assert_array_equal(made, expected)
    elif isinstance(expected, list):
        for one, other in zip(made, expected, strict=True):
            _check_equal(one, other)
    elif isinstance(expected, dict):
        assert list(made) == list(expected)
        _check_equal(list(made.values()), list(expected.values()))
    else:
        assert made == expected


@FEW_METHODS
def test_batches_of_many_megabytes_and_many_records_do_not_block(method: str) -> None:
    source = pa.table({"n": np.arange(1_000_000)})
    loader = penstock.DataLoader(
        source,
        encoders.makes_large,
        batch_size=200_000,
        num_workers=2,
        multiprocessing_context=method,
    )
    seen = []
    for batch in loader:
        first = int(batch.ids[0])
        large = batch["large"]
        assert (int(large[0]), int(large[-1])) == (first, first + len(large) - 1)
        assert int(large.sum()) == len(large) * first + len(large) * (len(large) - 1) // 2
        large[0] = 5
        seen += batch.ids.tolist()
        assert batch["n"].tolist() == batch.ids.tolist()
    assert seen == list(range(1_000_000))


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel whose memory it is")
@EVERY_METHOD
def test_workers_share_the_memory_of_a_table(method: str) -> None:
    def memory(rows: int) -> int:
        table = pa.table({"n": np.zeros(rows)})
        options = {"batch_size": 100, "num_workers": 2, "multiprocessing_context": method}
        loader = penstock.DataLoader(table, encoders.tells_memory, **options)
        first = next(run := iter(loader))
        run.close()
        return int(first[0])

    large = 12_000_000
    assert memory(large) - memory(100) < 8 * large / 4


@EVERY_METHOD
def test_what_a_worker_writes_into_a_shared_array_is_its_own(method: str) -> None:
    encode = encoders.Weighted(100)
    batches = list(_loader(encode, method, num_workers=2))
    assert [batch[0] for batch in batches] == [101, 101, 102, 102, 103]
    assert encode.weights.sum() == 100


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_without_room_for_a_shared_file_the_error_names_the_folder(method: str) -> None:
    told = run(fork_programs.loader_without_room, method)
    assert told["errno"] == errno.EFBIG
    assert "takes about 400,000 bytes in " in told["text"]
    assert "File too large. Free space there, or give another folder: TMPDIR." in told["text"]
    assert told["open"] == []


def test_nothing_is_shared_of_what_has_no_values() -> None:
    empty = pa.table({"n": pa.array([], pa.int64())})
    loader = penstock.DataLoader(
        empty, batch_size=2, num_workers=2, multiprocessing_context="spawn"
    )
    assert list(loader) == []


def test_torch_may_be_used_in_a_fork_of_a_program_that_used_its_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        # Enough for torch to start threads, which a fork does not have.
        assert float((torch.ones(3_000_000) * 2).sum()) == 6_000_000
        made = list(_loader(encoders.uses_torch_threads, "fork", stall_timeout=60))
    finally:
        torch.set_num_threads(before)
    assert made == [[6_000_000.0] * 4] * 5


# How they are started.


def test_a_fork_that_would_hang_is_refused_with_the_remedy(
    s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    s3_server.put(bucket, "set/a.jsonl", b'{"n": 1}\n{"n": 2}\n')
    source = penstock.open(f"s3://{bucket}/set", storage_options=s3_server.storage_options)
    loader = penstock.DataLoader(
        source, batch_size=1, num_workers=1, multiprocessing_context="fork"
    )
    with pytest.raises(UnsafeForkError, match="multiprocessing_context='forkserver'"):
        list(loader)
    assert multiprocessing.active_children() == []
    # Without being told, nobody forks what is remote; what is local is forked all the same.
    loader = penstock.DataLoader(source, batch_size=1, num_workers=1)
    assert loader.explain()["workers"].startswith("1 worker process, by forkserver")
    assert [batch[0]["n"] for batch in loader] == [1, 2]
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    local = penstock.open(tmp_path)
    loader = penstock.DataLoader(local, batch_size=1, num_workers=1)
    assert "by fork:" in loader.explain()["workers"]
    assert len(list(loader)) == 1


def _run_program(
    text: str, path: Path | None, timeout: float = 100
) -> subprocess.CompletedProcess[str]:
    """Run a program, from a file or as what is typed in."""
    if path is not None:
        path.write_text(text)
    return subprocess.run(
        [sys.executable, "-" if path is None else str(path)],
        input=text if path is None else None,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_a_script_without_a_guard_works_and_is_run_once(tmp_path: Path) -> None:
    done = _run_program(WITHOUT_GUARD, tmp_path / "script.py")
    assert (done.stdout.split(), done.stderr) == (["once"] + ["45"] * 5, "")


@pytest.mark.parametrize("method", METHODS[1:] if LONG else METHODS[1:2])
def test_a_script_with_an_encoder_of_its_own_needs_a_guard_and_says_so(
    method: str, tmp_path: Path
) -> None:
    done = _run_program(OWN_ENCODER + f"go({method!r})\n", tmp_path / "script.py")
    assert done.returncode == 1
    # Itself, two workers, and perhaps the server that forks them; nobody starts more.
    assert 1 < done.stdout.count("ran") <= 4
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("penstock.errors.WorkerError: worker process")
    assert "if __name__ == '__main__'" in last
    guarded = OWN_ENCODER + f"if __name__ == '__main__':\n    go({method!r})\n"
    done = _run_program(guarded, tmp_path / "script.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("[[4], [4], [2]]\n")


@pytest.mark.parametrize("is_typed", [True, False], ids=["typed in", "in a notebook"])
def test_functions_of_a_notebook_cell_work(is_typed: bool, tmp_path: Path) -> None:  # noqa: FBT001
    typed = "\n".join(NOTEBOOK.split("'''")[1:4:2])
    done = _run_program(
        typed if is_typed else NOTEBOOK, None if is_typed else tmp_path / "kernel.py"
    )
    assert (done.stdout, done.stderr) == ("[[10, 11], [12, 13]]\n" * 3, "")


def test_a_typed_in_encoder_is_refused_by_workers_that_cannot_have_it() -> None:
    done = _run_program(OWN_ENCODER + "go('forkserver')\n", None)
    last = done.stderr.strip().splitlines()[-1]
    assert "penstock.errors.WorkerError" in last
    assert "in a module" in last
