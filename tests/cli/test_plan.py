from __future__ import annotations

import gzip
import json
import os
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.cli.plan._epoch import block_bytes
from penstock.jsonl import JsonlDir
from penstock.loading import DataLoader
from penstock.order import BucketPlan, CostPlan, Cursor, PackingPlan
from tests.cli.commands import document, invoke, options, succeed, written

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A directory of two plain files, ten records in all, with an index."""
    folder = tmp_path / "lines"
    written(folder / "a.jsonl", *(json.dumps({"id": i}) for i in range(6)))
    written(folder / "b.jsonl", *(json.dumps({"id": i, "x": [i] * i}) for i in range(6, 10)))
    succeed("index", folder)
    return folder


@pytest.fixture
def packed(logs: Path) -> Path:
    """The ten records of `logs`, compressed, with an index."""
    succeed("index", logs)
    return logs


def ids_of(steps: list[dict[str, Any]], *, valid: bool = False) -> list[list[int]]:
    return [
        [row["record"] for row in step["records"] if row["valid"] or not valid] for step in steps
    ]


def saved(path: Path, cursor: Cursor) -> Path:
    path.write_text(json.dumps(cursor.to_dict()))
    return path


def test_a_plan_tells_steps_rows_padding_order_and_reads(lines: Path) -> None:
    text = succeed("plan", lines, "--batch-size", 2, "--world-size", 3)
    assert "10 in 2 files" in text
    assert "full, seed 0, epoch 0 (any record can be read by itself here)" in text
    assert "2 rows × 3 ranks = 6" in text
    assert "2 on every rank" in text
    assert "2 rows over all ranks, marked as not valid" in text
    found = document("plan", lines, "--batch-size", 2, "--world-size", 3)
    assert (found["steps"], found["rows_per_rank"], found["padded_rows"]) == (2, 4, 2)
    assert found["shuffle_true"]["kind"] == "full"
    # Each record is one read in full order, and each file one block in block order.
    assert found["costs"]["full"]["requests"] == 10
    assert found["costs"]["block"]["requests"] == 2
    stored = sum(path.stat().st_size for path in lines.glob("*.jsonl"))
    assert found["costs"]["full"]["bytes"] == found["costs"]["block"]["bytes"] == stored


def test_compressed_records_are_planned_in_block_order(packed: Path) -> None:
    found = document("plan", packed, "--batch-size", 2, "--workers", 4, "--drop-last")
    assert found["order"]["kind"] == found["shuffle_true"]["kind"] == "block"
    stored = sum(path.stat().st_size for path in packed.glob("*.zst"))
    assert found["costs"]["block"] == {"requests": 3, "bytes": stored, "open_bytes": stored}
    # Five batches of two records each, of three blocks: 5 × 3 × (1 - (2/3)²) reads.
    assert found["costs"]["full"]["requests"] == 8


def test_gzip_is_planned_as_a_loader_of_fields_shuffles_it(tmp_path: Path) -> None:
    file = tmp_path / "c4.json.gz"
    file.write_bytes(gzip.compress(b"".join(b'{"id": %d}\n' % n for n in range(10))))
    text = succeed("plan", file, "--batch-size", 4)
    assert "full, seed 0, epoch 0 (gzip is decoded once, into columns)" in text
    assert "shuffle=True" not in text
    steps = document("plan", file, "--batch-size", 4, "--step", ":")["steps"]
    loader = DataLoader(file, {"id": "int64"}, batch_size=4, shuffle=True)
    assert ids_of(steps) == [batch["id"].tolist() for batch in loader]


def test_other_shuffles_seeds_and_epochs_are_planned(lines: Path) -> None:
    def first(*options: object) -> list[list[int]]:
        found = document("plan", lines, "--batch-size", 10, "--step", 0, *options)
        return ids_of(found["steps"])

    assert first("--shuffle", "none") == [list(range(10))]
    orders = [first(), first("--seed", 1), first("--epoch", 1)]
    assert all(sorted(order[0]) == list(range(10)) for order in orders)
    assert len({str(order) for order in orders}) == 3
    text = succeed("plan", lines, "--batch-size", 2, "--shuffle", "none")
    assert "full order: any record can be read by itself here" in text
    assert "sequential order" in text


@pytest.mark.parametrize("shuffle", ["true", "none"])
@pytest.mark.parametrize("source", ["lines", "packed"])
def test_the_steps_of_a_plan_are_those_of_the_loader(
    source: str, shuffle: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(source)
    options = ("--batch-size", 2, "--world-size", 2, "--seed", 5, "--shuffle", shuffle)
    told = document("plan", path, *options, "--step", "0:", "--skip", 3)["steps"]
    assert [(step["step"], step["rank"]) for step in told] == [
        (step, rank) for step in range(3) for rank in range(2)
    ]
    for rank in range(2):
        loader = DataLoader(
            penstock.open(path),
            batch_size=2,
            world_size=2,
            rank=rank,
            seed=5,
            shuffle=shuffle == "true",
            skip=[3],
            num_workers=0,
        )
        for step in told[rank::2]:
            found = loader.explain(step["step"])
            assert [row["record"] for row in step["records"]] == found.ids.tolist()
            assert [row["valid"] for row in step["records"]] == found.valid.tolist()
            assert [row["offset"] for row in step["records"]] == found.offsets.tolist()
    assert sorted(chain.from_iterable(ids_of(told, valid=True))) == [0, 1, 2, *range(4, 10)]


def test_steps_are_listed_with_files_and_offsets(lines: Path) -> None:
    text = succeed("plan", lines, "--batch-size", 4, "--shuffle", "none", "--step", "1:3")
    size = len('{"id": 0}\n')
    assert text.splitlines() == [
        "epoch 0, step 1, rank 0: 4 rows",
        f"  4  {lines}/a.jsonl at byte {4 * size}",
        f"  5  {lines}/a.jsonl at byte {5 * size}",
        f"  6  {lines}/b.jsonl at byte 0",
        f"  7  {lines}/b.jsonl at byte {len(json.dumps({'id': 6, 'x': [6] * 6})) + 1}",
        "epoch 0, step 2, rank 0: 2 rows",
        *text.splitlines()[-2:],
    ]


def test_rows_that_only_make_steps_equal_are_marked(lines: Path) -> None:
    options = ("--batch-size", 2, "--world-size", 3, "--shuffle", "none", "--step", 1)
    last = f"  9  {lines}/b.jsonl at byte {penstock.open(lines).location(9).offset}"
    assert succeed("plan", lines, *options, "--rank", 2).splitlines() == [
        "epoch 0, step 1, rank 2: 2 rows",
        f"{last}  (does not count)",
        f"{last}  (does not count)",
    ]
    (only,) = document("plan", lines, *options, "--rank", 2, "--show")["steps"]
    assert [row["value"] for row in only["records"]] == [None, None]


def test_records_of_steps_are_shown(lines: Path) -> None:
    options = ("--batch-size", 2, "--shuffle", "none", "--step", 3, "--show")
    text = succeed("plan", lines, *options)
    assert text.splitlines()[:2] == [
        "epoch 0, step 3, rank 0",
        f"# 6 – {lines}/b.jsonl at byte 0",
    ]
    (step,) = document("plan", lines, *options)["steps"]
    assert [row["value"]["id"] for row in step["records"]] == [6, 7]


def test_planning_reads_no_data(lines: Path) -> None:
    options = ("--batch-size", 2, "--step", "0:2")
    before = document("plan", lines, *options)
    for path in lines.glob("*.jsonl"):
        stat = path.stat()
        path.write_bytes(b"?" * stat.st_size)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert document("plan", lines, *options) == before


def test_skips_may_be_numbers_ranges_and_files(lines: Path, tmp_path: Path) -> None:
    skips = written(tmp_path / "skips.txt", "0  # bad", "8:10")
    found = document("plan", lines, "--batch-size", 2, "--skip", skips, "--skip", "3:5")
    assert found["skipped"] == 5
    assert found["steps"] == 3
    text = succeed("plan", lines, "--batch-size", 2, "--skip", 4)
    assert "skipped" in text
    assert "1 record\n" in text


def test_a_state_is_planned_from_where_it_stands(lines: Path, tmp_path: Path) -> None:
    source = penstock.open(lines)
    loader = DataLoader(source, batch_size=2, shuffle=True, seed=4, num_workers=0)
    run = iter(loader)
    next(run)
    next(run)
    state = tmp_path / "state.json"
    state.write_text(json.dumps(loader.state_dict()))
    rest = [[record["id"] for record in batch] for batch in run]
    found = document("plan", lines, "--batch-size", 2, "--state", state)
    assert (found["position"], found["next_step"], found["steps"]) == (4, 2, 5)
    assert found["rows_per_rank"] == 6
    told = document("plan", lines, "--batch-size", 2, "--state", state, "--step", "2:")["steps"]
    assert ids_of(told) == rest
    text = succeed("plan", lines, "--batch-size", 2, "--state", state)
    assert "position 4 of 10 (40.0%); step 2 is next, 3 are left" in text
    # A step that lies behind is none of the rest.
    done = invoke("plan", lines, "--batch-size", 2, "--state", state, "--step", 1)
    assert done.exit_code == 1
    assert "the steps of this epoch are 2 to 4" in done.stderr


def test_a_state_goes_on_over_the_records_it_began_with(lines: Path, tmp_path: Path) -> None:
    source = penstock.open(lines)
    state = saved(
        tmp_path / "state.json",
        Cursor(fingerprint=source.fingerprint, length=10, kind="full", position=4),
    )
    options = ("--batch-size", 2, "--state", state)
    before = document("plan", lines, *options, "--step", "2:")
    written(lines / "c.jsonl", '{"id": 10}', '{"id": 11}')
    succeed("index", lines, "--update")
    done = invoke("plan", lines, *options, "--step", "2:", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == before
    assert "2 records were appended" in done.stderr
    text = invoke("plan", lines, *options).stdout
    assert "12 in 3 files, 10 when the run began" in text


def test_records_skipped_since_the_state_are_masked(lines: Path, tmp_path: Path) -> None:
    source = penstock.open(lines)
    state = saved(
        tmp_path / "state.json",
        Cursor(fingerprint=source.fingerprint, length=10, kind="sequential", position=4),
    )
    options = ("--batch-size", 2, "--state", state, "--skip", 5)
    found = document("plan", lines, *options)
    assert (found["masked"], found["skipped"], found["steps"]) == (1, 0, 5)
    (step,) = document("plan", lines, *options, "--step", 2)["steps"]
    assert [(row["record"], row["valid"]) for row in step["records"]] == [(4, True), (5, False)]
    assert "1 record until the next epoch" in succeed("plan", lines, *options)


def test_the_state_of_other_records_is_a_finding(lines: Path, tmp_path: Path) -> None:
    state = saved(tmp_path / "state.json", Cursor(fingerprint="0" * 16, length=10, position=2))
    done = invoke("plan", lines, "--batch-size", 2, "--state", state)
    assert done.exit_code == 1
    assert "changed since the state was saved" in done.stderr
    assert "loader.explain" in done.stderr


def test_parquet_and_csv_are_planned_without_an_index(tmp_path: Path) -> None:
    table = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(100)}), table, row_group_size=10)
    found = document("plan", table, "--batch-size", 10)
    assert (found["order"]["kind"], found["steps"]) == ("block", 10)
    assert found["costs"]["block"]["requests"] == 10
    assert abs(found["costs"]["block"]["bytes"] - table.stat().st_size) < 10
    options = ("--batch-size", 3, "--shuffle", "none", "--step", 1)
    assert f"  3  {table}, row 3" in succeed("plan", table, *options)
    rows = written(tmp_path / "a.csv", "id", "1", "2", "3")
    assert document("plan", rows, "--batch-size", 2)["steps"] == 2


def test_the_stored_bytes_of_a_file_are_shared_out_over_its_blocks(tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    with JsonlDir(folder).writer_sync(".jsonl.zst", max_records_per_shard=3000) as writer:
        writer.write_many({"id": i, "text": "x" * 700} for i in range(5000))
    source = penstock.open(folder)
    sizes = {str(path): path.stat().st_size for path in folder.glob("*.zst")}
    text, stored = block_bytes(source, source.blocks, sizes)
    assert len(stored) == len(source.blocks) - 1 > 2
    assert abs(int(stored.sum()) - sum(sizes.values())) <= len(stored)
    assert int(text.sum()) == int(source.location(np.arange(5000)).bytes.sum())
    # Of files whose size nobody knows, the text counts.
    assert np.array_equal(block_bytes(source, source.blocks, {})[1], text)


def test_an_empty_file_has_no_steps(tmp_path: Path) -> None:
    table = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), table)
    found = document("plan", table, "--batch-size", 4)
    assert (found["records"], found["steps"], found["first_steps"]) == (0, 0, [])
    done = invoke("plan", table, "--batch-size", 4, "--step", 0)
    assert (done.exit_code, "are none" in done.stderr) == (1, True)


def test_a_missing_index_is_built_and_kept_fresh_unless_it_was_built_on_purpose(
    logs: Path,
) -> None:
    records = document("plan", logs, "--batch-size", 4)["records"]
    assert len(penstock.open(logs, refresh="never")) == records
    written(logs / "zz.jsonl", '{"id": 1}', '{"id": 2}')
    assert document("plan", logs, "--batch-size", 4)["records"] == records + 2
    succeed("index", logs, "--overwrite")
    written(logs / "zz.jsonl", '{"id": 1}')
    done = invoke("plan", logs, "--batch-size", 4)
    assert done.exit_code == 3
    assert f"penstock index {logs} --overwrite" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --batch-size"),
        (["--global-batch-size", 5, "--world-size", 2], "--global-batch-size 5 is not"),
        (["--global-batch-size", 4, "--batch-size", 3], "--global-batch-size 4 is not"),
        (["--batch-size", 0], "--batch-size"),
        (["--batch-size", 2, "--rank", 1], "--rank 1 is not one of 1"),
        (["--batch-size", 2, "--hosts", 2], "--hosts 2"),
        (["--batch-size", 2, "--show"], "give --step"),
        (["--batch-size", 2, "--step", "x"], "expected a step"),
        (["--batch-size", 2, "--skip", 10], "10 to 11 do not lie in a dataset of 10"),
        (["--batch-size", 2, "--skip", "nothing.txt"], "cannot read this file"),
        (["--batch-size", 2, "--cache-bytes", "much"], "expected bytes"),
        (["--batch-size", 2, "--shuffle", "some"], "--shuffle"),
        (["--batch-size", 2, "--state", "{broken}"], "no JSON"),
        (["--batch-size", 2, "--state", "{list}"], "a JSON object"),
        (["--batch-size", 2, "--state", "{other}"], "missing"),
        (["--batch-size", 2, "--state", "{stream}"], "the state of a stream"),
        (["--batch-size", 2, "--state", "{other}", "--seed", 1], "leave it out with --state"),
        (["--cost", "n"], "expected FIELD:N"),
        (["--cost", "n:9", "--batch-size", 2], "give one of --cost FIELD:N"),
        (["--bucket", "n"], "give one of --cost FIELD:N"),
        (["--cost", "none:9"], "has a field 'none'"),
        (["--batch-size", 2, "--mix", "a"], "expected NAME=WEIGHT"),
        (["--batch-size", 2, "--mix", "a=0"], "'a' has the weight 0"),
        (
            ["--batch-size", 2, "--mix", "a=1", "--weights", "id"],
            "a Mixture has weights of its own",
        ),
        (["--batch-size", 2, "--balance", "id", "--weights", "id"], "weights and balance both"),
        (["--cost", "id:9", "--weights", "id"], "a plan places each record once"),
    ],
    ids=str,
)
def test_a_wrong_command_line_is_told(
    lines: Path, tmp_path: Path, options: list[object], message: str
) -> None:
    files = {
        "{broken}": written(tmp_path / "broken.json", "{"),
        "{list}": written(tmp_path / "list.json", "[]"),
        "{other}": written(tmp_path / "other.json", '{"version": 1}'),
        "{stream}": written(tmp_path / "stream.json", '{"version": 1, "done": {}}'),
    }
    done = invoke("plan", lines, *(files.get(str(option), option) for option in options))
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_state_file_that_is_not_there_is_an_input_error(lines: Path) -> None:
    done = invoke("plan", lines, "--batch-size", 2, "--state", lines / "none.json")
    assert done.exit_code == 3
    assert "none.json" in done.stderr


def test_remote_data_is_planned_as_a_loader_reads_it(bucket: str, s3_server: S3Server) -> None:
    path, given = f"s3://{bucket}/far", options(s3_server.storage_options)
    with JsonlDir(path, storage_options=s3_server.storage_options).writer_sync(".jsonl.zst") as w:
        w.write_many({"id": i} for i in range(100))
    succeed("index", path, *given)
    source = penstock.open(path, storage_options=s3_server.storage_options)
    loader = DataLoader(source, batch_size=10, shuffle=True, rank=1, world_size=2)
    shown = invoke("plan", path, "--batch-size", 10, "--world-size", 2, *given).stdout
    assert "remote data is read by blocks" in shown
    arguments = ("--batch-size", 10, "--world-size", 2, "--rank", 1, "--step", "0:5")
    planned = document("plan", path, *arguments, *given)
    ids = [batch.ids.tolist() for batch in loader]
    rows = [[row["record"] for row in step["records"]] for step in planned["steps"]]
    assert rows == ids


def test_fields_that_have_columns_are_told(lines: Path) -> None:
    assert document("plan", lines, "--batch-size", 2)["columns"] == []
    assert "are gathered" not in succeed("plan", lines, "--batch-size", 2)
    succeed("materialize", lines, "id")
    assert document("plan", lines, "--batch-size", 2)["columns"] == ["id"]
    assert "id: batches of nothing else are gathered" in succeed("plan", lines, "--batch-size", 2)


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        (["--cost", "len(text):20"], CostPlan("len(text)", 20)),
        (["--bucket", "n:2", "--batch-size", 3], BucketPlan("n", 3, 2)),
        (["--pack", "len():99", "--batch-size", 2], PackingPlan("len()", 99, 2)),
    ],
    ids=str,
)
def test_plans_are_those_of_the_loader(tmp_path: Path, options: list[object], plan: Any) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text("".join(f'{{"n": {n}, "text": "{"x" * (n % 9 + 1)}"}}\n' for n in range(40)))
    loader = DataLoader(path, ["n"], batch_size=plan, shuffle=True, seed=4, num_workers=0)
    batches = [batch.ids.tolist() for batch in loader]
    loader.set_epoch(0)
    common = ["plan", path, *options, "--world-size", 3]
    found = document(*common, "--seed", 4)
    assert found["batches"] == len(batches)
    assert found["steps"] == -(-len(batches) // 3)
    assert found["padded_batches"] == found["steps"] * 3 - len(batches)
    assert found["padding"]["planned"] <= found["padding"]["plain"]
    assert f"{len(batches)} batches" in succeed(*common)
    steps = document(*common, "--seed", 4, "--step", ":")["steps"]
    assert [ids for ids in ids_of(steps, valid=True) if ids] == batches
    assert ("bins" in steps[0]) == isinstance(plan, PackingPlan)
    next(iter(loader))
    state = tmp_path / "state.json"
    state.write_text(json.dumps(loader.state_dict()))
    assert f"batch 1 of {len(batches)}" in succeed(*common, "--state", state)
    rest = document(*common, "--state", state, "--step", ":")["steps"]
    assert [ids for ids in ids_of(rest, valid=True) if ids] == batches[1:]
    other = invoke("plan", path, "--cost", "len():999", "--state", state)
    assert other.exit_code == 2
    assert "the state counts batches by the plan" in other.stderr


@pytest.mark.parametrize("options", [{"weights": "id"}, {"balance": "kind"}])
def test_weighted_draws_are_those_of_the_loader(tmp_path: Path, options: dict[str, str]) -> None:
    path = written(
        tmp_path / "a.jsonl", *(json.dumps({"id": i, "kind": "ab"[i < 2]}) for i in range(9))
    )
    loader = DataLoader(path, {"id": "int64"}, batch_size=4, seed=7, **options)
    given = [f"--{name}={value}" for name, value in options.items()]
    found = document("plan", path, "--batch-size", 4, "--seed", 7, *given, "--step", ":", "--json")
    assert ids_of(found["steps"]) == [batch.ids.tolist() for batch in loader]
    text = succeed("plan", path, "--batch-size", 4, *given)
    assert "weighted, seed 0, epoch 0 (drawn with replacement" in text
    assert "reads" not in text


def test_a_planned_mixture_goes_on_over_the_records_it_began_with(tmp_path: Path) -> None:
    paths = {
        name: written(tmp_path / f"{name}.jsonl", *(f'{{"n": {1 + i % 7}}}' for i in range(20)))
        for name in "ab"
    }
    mixture = penstock.Mixture(
        {name: penstock.open(paths[name]) for name in "ab"}, {"a": 1, "b": 1}
    )
    loader = DataLoader(mixture, batch_size=CostPlan("n", 9))
    run = iter(loader)
    next(run)
    state = tmp_path / "state.json"
    state.write_text(json.dumps(loader.state_dict()))
    rest = [batch.ids.tolist() for batch in run]
    written(paths["a"], *(f'{{"n": {1 + i % 7}}}' for i in range(23)))
    mix = ["--mix", "a=1", "--mix", f"b=1:{paths['b']}", "--cost", "n:9"]
    found = document("plan", paths["a"], *mix, "--state", state, "--step", "1:")
    assert ids_of(found["steps"]) == rest


@pytest.mark.parametrize("stop", ["first_exhausted", "all_exhausted", "repeat"])
def test_a_mixture_is_that_of_the_loader(tmp_path: Path, stop: Any) -> None:
    paths = {
        name: written(tmp_path / f"{name}.jsonl", *(json.dumps({"id": i}) for i in range(count)))
        for name, count in {"a": 30, "b": 12}.items()
    }
    sources = {name: penstock.open(path) for name, path in paths.items()}
    loader = DataLoader(
        penstock.Mixture(sources, {"a": 0.75, "b": 0.25}, stop=stop), batch_size=5, seed=7
    )
    run = iter(loader)
    expected = [next(run).ids.tolist() for _ in range(6)]
    given = ["--mix", "a=0.75", "--mix", f"b=0.25:{paths['b']}", "--stop", stop, "--batch-size", 5]
    command = ["plan", paths["a"], *given]
    found = document(*command, "--seed", 7, "--step", "0:6", "--json")
    assert ids_of(found["steps"]) == expected
    assert found["steps"][0]["records"][0]["file"].endswith(".jsonl")
    text = succeed(*command)
    assert "a 75.0%, b 25.0%" in text
    assert ("without end" in text) == (stop == "repeat")
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    rest = [next(run).ids.tolist() for _ in range(2)]
    state = ["--state", tmp_path / "state.json"]
    found = document(*command, *state, "--step", "6:8", "--json")
    assert ids_of(found["steps"]) == rest
    assert "as the state says" in succeed(*command, *state)
    done = invoke("plan", paths["a"], "--batch-size", 5, *state)
    assert done.exit_code == 1
