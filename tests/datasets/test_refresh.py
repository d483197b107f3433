"""Data that changes: which index `open` brings up to date, and what becomes of the numbers."""

from __future__ import annotations

import gzip
import json
import logging
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.datasets import CsvRows
from penstock.errors import ChangedSourceError, OptionError, StaleIndexError
from penstock.index import create_default_jsonl_indexer
from penstock.jsonl import JsonlDir, JsonlFile
from penstock.storage._folders import hidden_name
from tests.rounds import rounds
from tests.unprivileged import as_nobody, folder_for_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.datasets import Source
    from penstock.index import Refresh
    from tests.servers.s3_server import S3Server

README = Path(__file__).parents[2] / "README.md"


def lines(*numbers: int) -> str:
    return "".join(f'{{"id": {n}}}\n' for n in numbers)


def append(path: Path, *numbers: int) -> None:
    with path.open("a") as file:
        file.write(lines(*numbers))


def ids(source: Source) -> list[int]:
    return [record["id"] for record in source]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "b.jsonl").write_text(lines(0, 1, 2))
    return folder


WAYS: dict[str, Callable[[Path], Any]] = {
    "folder": lambda folder: folder,
    "pattern": lambda folder: f"{folder}/*.jsonl",
    "list": lambda folder: [f"{folder}/*.jsonl"],
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_appended_gets_the_numbers_after_the_others(
    way: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    what = WAYS[way](folder)
    before = penstock.open(what)
    (folder / "a.jsonl").write_text(lines(10))
    append(folder / "b.jsonl", 3, 4)
    with caplog.at_level(logging.INFO, "penstock"):
        after = penstock.open(what)
    assert sorted(ids(after)[3:]) == [3, 4, 10]
    assert ids(after)[:3] == [0, 1, 2]
    assert after.was(before.fingerprint, 3)
    assert after.fingerprint != before.fingerprint
    (line,) = caplog.messages
    assert "1 file is new, 1 file is longer; what is new has the numbers from 3 on" in line
    assert penstock.open(what).fingerprint == after.fingerprint


CHANGES: dict[str, tuple[Callable[[Path], object], list[int]]] = {
    "other content": (lambda f: (f / "b.jsonl").write_text(lines(7, 8, 9)), [7, 8, 9]),
    "shorter": (lambda f: (f / "b.jsonl").write_text(lines(0)), [0]),
    "longer and other": (lambda f: (f / "b.jsonl").write_text(lines(5, 6, 7, 8)), [5, 6, 7, 8]),
    "gone": (lambda f: (f / "b.jsonl").unlink(), []),
    "renamed": (lambda f: (f / "b.jsonl").rename(f / "a.jsonl"), [0, 1, 2]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_changed_renumbers_and_changes_the_fingerprint(
    way: str, change: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "c.jsonl").write_text(lines(20))
    what = WAYS[way](folder)
    before = penstock.open(what)
    act, left = CHANGES[change]
    act(folder)
    after = penstock.open(what)
    assert ids(after) == [*left, 20]
    assert (after.fingerprint == before.fingerprint) is (change == "renamed")  # The same records.
    (line,) = caplog.messages
    assert re.search(r"1 file is changed \(.*b\.jsonl: .*\); its records are numbered anew", line)
    assert not list(folder.glob(".*"))


def test_a_single_file_and_a_compressed_one_are_kept_fresh(folder: Path) -> None:
    packed = folder / "b.jsonl.gz"
    for path, write in (
        (folder / "b.jsonl", Path.write_bytes),
        (packed, lambda path, text: path.write_bytes(gzip.compress(text))),
    ):
        for numbers in ([0, 1], [0, 1, 2], [5]):
            write(path, lines(*numbers).encode())
            assert ids(penstock.open(path)) == numbers
    zstd = folder / "b.jsonl.zst"
    for numbers in ([0, 1], [0, 1, 2], [5]):
        with JsonlFile(zstd).writer_sync() as writer:
            writer.write_many({"id": n} for n in numbers)
        assert ids(penstock.open(zstd)) == numbers


def test_rows_of_csv_are_kept_fresh(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,x\n0,1\n")
    for opens in (penstock.open, CsvRows):
        path.write_text("id,x\n0,1\n")
        first = opens(path)
        with path.open("a") as file:
            file.write('1,"a\nb"\n')
        second = opens(path)
        assert [row["x"] for row in second] == ["1", "a\nb"]
        assert second.was(first.fingerprint, 1)
        path.write_text("id;y\n")
        assert len(opens(path)) == 0


def made_by(folder: Path) -> object:
    return json.loads((folder / "meta.json").read_text()).get("made_by")


def test_an_index_that_was_built_on_purpose_is_refused_when_stale(folder: Path) -> None:
    create_default_jsonl_indexer(folder)()
    assert made_by(folder / "index") == "index"
    append(folder / "b.jsonl", 3)
    for refresh in ("auto", "never"):
        with pytest.raises(StaleIndexError, match=r"b\.jsonl .grew.*--update"):
            penstock.open(folder, refresh=refresh)  # type: ignore[arg-type]
    assert ids(penstock.open(folder, refresh="update")) == [0, 1, 2, 3]
    assert made_by(folder / "index") == "index"
    (folder / "b.jsonl").write_text(lines(9))
    with pytest.raises(StaleIndexError, match="would renumber"):
        penstock.open(folder, refresh="update")
    with pytest.raises(StaleIndexError, match=r"shrank.*--overwrite"):
        penstock.open(folder)
    assert ids(penstock.open(folder, refresh="rebuild")) == [9]
    assert ids(penstock.open(folder)) == [9]
    assert made_by(folder / "index") == "index"


def test_never_leaves_an_index_of_open_as_it_is(folder: Path) -> None:
    penstock.open(folder)
    assert made_by(folder / "index") == "open"
    (folder / "a.jsonl").write_text(lines(10))
    assert ids(penstock.open(folder, refresh="never")) == [0, 1, 2]
    append(folder / "b.jsonl", 3)
    with pytest.raises(StaleIndexError, match="grew"):
        penstock.open(folder, refresh="never")
    with pytest.raises(OptionError, match="refresh='sometimes': expected one of 'auto'"):
        penstock.open(folder, refresh="sometimes")  # type: ignore[arg-type]


@pytest.mark.parametrize("refresh", ["auto", "update", "rebuild", "never"])
def test_a_missing_index_is_built_and_a_fresh_one_opens_whatever_refresh_says(
    refresh: Refresh, folder: Path
) -> None:
    assert ids(penstock.open(folder, refresh=refresh)) == [0, 1, 2]
    assert ids(penstock.open(folder, refresh=refresh)) == [0, 1, 2]


def test_an_index_with_checks_keeps_them_when_it_is_built_anew(folder: Path) -> None:
    create_default_jsonl_indexer(folder, validate=True, profile=True, full_hash=True)()
    (folder / "b.jsonl").write_text(lines(4) + "no json\n" + lines(5))
    assert ids(penstock.open(folder, refresh="rebuild")) == [4, 5]
    assert (folder / "index" / "bad_lines.ndjson").read_text()
    assert json.loads((folder / "index" / "meta.json").read_text())["profiled"]


def test_rebuild_repairs_a_damaged_index(folder: Path) -> None:
    penstock.open(folder)
    (folder / "index" / "meta.json").write_text("{")
    assert ids(penstock.open(folder, refresh="rebuild")) == [0, 1, 2]
    assert ids(penstock.open(folder)) == [0, 1, 2]


def test_without_made_by_an_index_in_the_cache_is_one_of_open(
    folder: Path, own_cache: Path
) -> None:
    pattern = f"{folder}/*.jsonl"
    for what in (folder, pattern):
        penstock.open(what)
    (cached,) = (own_cache / "indexes").iterdir()
    for index in (cached, folder / "index"):
        meta = json.loads((index / "meta.json").read_text())
        del meta["made_by"]
        (index / "meta.json").write_text(json.dumps(meta))
    append(folder / "b.jsonl", 3)
    assert len(penstock.open(pattern)) == 4
    with pytest.raises(StaleIndexError, match="grew"):
        penstock.open(folder)


OPENS = """
import logging, sys, penstock
logging.basicConfig(level=logging.INFO, format="log %(message)s", stream=sys.stdout)
print("ready", flush=True)
sys.stdin.readline()
source = penstock.open(sys.argv[1])
print("seen", len(source), source.fingerprint, *[record["id"] for record in source], flush=True)
"""


def test_of_many_processes_one_refreshes(folder: Path) -> None:
    penstock.open(folder)
    for round_ in range(rounds(2, 20)):
        if round_ % 2:
            (folder / "b.jsonl").write_text(lines(*range(2000, 2000 + round_)))
        else:
            append(folder / "b.jsonl", *range(1000))
        children = [
            subprocess.Popen(
                [sys.executable, "-c", OPENS, str(folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for _ in range(4)
        ]  # fmt: skip
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        outputs = []
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        for child in children:
            outputs += child.communicate(timeout=60)[0].splitlines()
            assert child.returncode == 0
        assert len({line for line in outputs if line.startswith("seen")}) == 1
        assert sum(line.startswith("log") for line in outputs) == 1


KILLED = """
import os, signal, sys, penstock
def hook(event, arguments):
    # The old index is put aside, then the new one gets its name: between the two, or before both.
    if event == "os.rename" and sys.argv[2] in os.fsdecode(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
penstock.open(sys.argv[1])
"""


@pytest.mark.parametrize("moment", ["/index", "penstock-index-tmp"])
@pytest.mark.parametrize("after", [[0, 1, 2, 3], [7]])
def test_a_killed_refresher_is_made_good_by_the_next_one(
    moment: str, after: list[int], folder: Path
) -> None:
    penstock.open(folder)
    (folder / "b.jsonl").write_text(lines(*after))
    died = subprocess.run([sys.executable, "-c", KILLED, folder, moment], check=False)
    assert died.returncode == -signal.SIGKILL
    assert (folder / "index").exists() is (moment == "/index")
    assert ids(penstock.open(folder)) == after
    assert sorted(path.name for path in folder.iterdir()) == ["b.jsonl", "index"]


def test_an_index_put_aside_stays_refused_where_nothing_may_be_written(folder: Path) -> None:
    create_default_jsonl_indexer(folder)()
    (folder / "index").rename(folder / hidden_name("index", "old"))
    append(folder / "b.jsonl", 3)
    with pytest.raises(StaleIndexError, match="grew"):
        penstock.open(folder)  # Brought back, and still one that was built on purpose.
    assert (folder / "index").exists()


def test_a_read_only_folder_with_an_index_of_open_is_refreshed_in_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with folder_for_all() as base:
        data, cache = base / "data", base / "cache"
        data.mkdir()
        cache.mkdir()
        cache.chmod(0o777)
        monkeypatch.setenv("PENSTOCK_CACHE", str(cache))
        (data / "b.jsonl").write_text(lines(0, 1, 2))
        before = penstock.open(data)
        (data / "a.jsonl").write_text(lines(10))
        for path in (data, data / "index"):
            path.chmod(0o555)
        (cache / "locks").chmod(0o777)
        for expected in ([0, 1, 2, 10], [0, 1, 2, 10]):  # Also when it is there already.
            seen, was = as_nobody(partial(seen_by_another, data, before.fingerprint))
            assert (seen, was) == (expected, True)
        assert made_by(next((cache / "indexes").iterdir())) == "open"
        assert ids(penstock.open(data, refresh="never")) == [0, 1, 2]


def seen_by_another(path: Path, fingerprint: str) -> tuple[list[int], bool]:
    source = penstock.open(path)
    return ids(source), source.was(fingerprint, 3)


@pytest.mark.parametrize("view", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_continues_on_the_length_it_recorded_when_data_was_appended(
    view: bool,  # noqa: FBT001 (a parameter of the test)
    workers: int,
    folder: Path,
) -> None:
    append(folder / "b.jsonl", *range(3, 100))

    def loader() -> penstock.DataLoader:
        source = penstock.open(f"{folder}/*.jsonl")
        chosen = source.split(train=0.8, val=0.2)[0] if view else source
        return penstock.DataLoader(
            chosen, {"id": "int64"}, batch_size=8, shuffle=True, num_workers=workers
        )

    first, seen = loader(), []
    for _, batch in zip(range(3), first, strict=False):
        seen += batch["id"].tolist()
    state = first.state_dict()
    rest = [number for batch in loader() for number in batch["id"].tolist()][len(seen) :]
    append(folder / "b.jsonl", *range(100, 150))
    longer = loader()
    with pytest.warns(UserWarning, match="were appended"):
        longer.load_state_dict(state)
    assert [number for batch in longer for number in batch["id"].tolist()] == rest
    (folder / "b.jsonl").write_text(lines(*range(1, 101)))
    with pytest.raises(ChangedSourceError):
        loader().load_state_dict(state)


@pytest.mark.s3
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.zst"])
def test_remote_data_is_kept_fresh(
    suffix: str, s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, options = f"s3://{bucket}/data", s3_server.storage_options

    def write(*numbers: int) -> None:
        with JsonlDir(url, options).writer_sync(suffix) as writer:
            writer.write_many({"id": n} for n in numbers)

    write(0, 1)
    before = penstock.open(url, storage_options=options)
    write(2, 3)
    after = penstock.open(url, storage_options=options)
    assert ids(after) == [0, 1, 2, 3]
    assert after.was(before.fingerprint, 2)
    with JsonlFile(after.files[0], options).writer_sync() as writer:
        writer.write({"id": 9})
    assert ids(penstock.open(url, storage_options=options)) == [9, 2, 3]
    # On purpose it lies beside the data: its owner keeps it fresh.
    create_default_jsonl_indexer(url, storage_options=options)()
    write(4)
    assert ids(penstock.open(url, storage_options=options)) == [9, 2, 3, 4]
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "another machine"))
    assert ids(penstock.open(url, storage_options=options)) == [9, 2, 3]
    assert ids(penstock.open(url, refresh="update", storage_options=options)) == [9, 2, 3, 4]


def test_the_example_of_the_readme_runs_again_and_on_other_data(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(import penstock\n.*?)```", README.read_text(), re.DOTALL)
    check = "\nassert len(ds) == sum(1 for _ in open('events.jsonl'))\n"
    for text in (program, program, program.replace("range(5000)", "range(3000)")):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", text + check],
            cwd=tmp_path, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
