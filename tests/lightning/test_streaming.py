"""Files of a folder or a bucket, chosen by regular expressions, come out as batches."""

from __future__ import annotations

import gzip
import logging
import os
import pickle
import random
import re
import sys
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import penstock
from penstock.errors import MalformedLineError, OptionError, TruncatedFileError
from penstock.lightning import (
    Category,
    DateParts,
    Number,
    SchemaModel,
    ShardingStrategy,
    StreamingDataModule,
    Suffix,
)
from tests.lightning.streaming_files import (
    EACH,
    NAMES,
    content,
    lines,
    module,
    numbers,
    records,
    values,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.servers.s3_server import S3Server


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each suffix, with files that have a hundred numbers each to themselves."""
    root = tmp_path_factory.mktemp("every")
    for suffix, names in NAMES.items():
        for at, name in enumerate(names):
            write(root / suffix / name, records(100 * at), suffix)
    return root


@pytest.fixture
def lots(tmp_path: Path) -> Path:
    """Five files of 3, 14, 15, 9 and 26 records, which are numbered through."""
    start = 0
    for at, count in enumerate((3, 14, 15, 9, 26)):
        write(tmp_path / "lots" / f"part-{at}.jsonl", records(start, count))
        start += count
    return tmp_path / "lots"


LOTS = 67


def drops_all(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    assert record
    yield from ()


def expected(suffix: str) -> list[int]:
    return [100 * at + n for at in range(len(NAMES[suffix])) for n in range(EACH)]


# Formats and places.


@pytest.mark.parametrize("suffix", NAMES)
def test_every_suffix_is_read_from_a_folder_compressed_too(every: Path, suffix: str) -> None:
    own = module(every, suffix, test=rf"/{suffix}/", train=rf"/{suffix}/")
    batches, drawn = own.dataloader("test"), own.dataloader("train")
    assert numbers(batches) == expected(suffix)
    assert len(batches) == len(drawn) == -(-len(expected(suffix)) // 4)
    assert {*numbers(drawn)} <= {*expected(suffix)}


@pytest.mark.parametrize("suffix", NAMES)
def test_every_suffix_is_read_from_a_bucket_compressed_too(
    suffix: str, bucket: str, s3_server: S3Server
) -> None:
    for at, name in enumerate(NAMES[suffix]):
        s3_server.put(bucket, f"a/{suffix}/{name}", content(suffix, name, records(100 * at)))
    s3_server.put(bucket, f"ab/{suffix}/0.{suffix}", b"not below the root")
    engine = {"storage_options": s3_server.storage_options}
    own = module(f"s3://{bucket}/a", Suffix(suffix), test=rf"^s3://{bucket}/a/.*", engine=engine)
    assert numbers(own.dataloader("test")) == expected(suffix)


def test_a_bucket_is_read_by_worker_processes_in_few_requests(
    bucket: str, s3_server: S3Server
) -> None:
    for at in range(2):
        s3_server.put(bucket, f"{at}.jsonl", lines(records(400 * at, 400)))
    options: dict[str, Any] = {"engine": {"storage_options": s3_server.storage_options}}
    options |= {"sharding": "chunk", "chunk_batch_size": 100, "observation_buffer_size": 100}
    shuffled = module(f"s3://{bucket}/", test=r"\.jsonl$", **options).dataloader("test")
    assert sorted(numbers(shuffled)) == list(range(800))
    assert shuffled.loader.stats()["storage_requests"] <= 4  # And not one for each batch.
    by_two = module(f"s3://{bucket}", test=r"\.jsonl$", num_workers=2, **options)
    assert sorted(numbers(by_two.dataloader("test"))) == list(range(800))


def test_a_bucket_without_the_prefix_or_the_file_is_not_found(
    bucket: str, s3_server: S3Server
) -> None:
    s3_server.put(bucket, "events/0.jsonl", lines(records(0)))
    options: dict[str, Any] = {
        "test": ".",
        "engine": {"storage_options": s3_server.storage_options},
    }
    with pytest.raises(FileNotFoundError, match=r"event"):
        module(f"s3://{bucket}/event", **options).dataloader("test")
    one = module(f"s3://{bucket}/events/0.jsonl", **options)
    assert numbers(one.dataloader("test")) == list(range(EACH))


def test_a_json_file_is_an_array_or_lines_each_for_itself(tmp_path: Path) -> None:
    write(tmp_path / "a.json", records(0, 2), "json")
    (tmp_path / "b.json").write_bytes(lines(records(2, 3)))
    write(tmp_path / "c.json", records(5, 2), "json")
    for on_error in ("skip", "raise"):
        own = module(tmp_path, "json", test="json$", engine={"on_error": on_error})
        assert numbers(own.dataloader("test")) == list(range(7))


def test_a_blank_line_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\n{"n": 1}\n\n{"n": 2}\n\n')
    assert numbers(module(tmp_path, test="jsonl$").dataloader("test")) == [1, 2]


def test_a_preprocessor_gets_rows_as_dicts_with_moments_and_nested_values(tmp_path: Path) -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5)  # noqa: DTZ001 (as files have it)
    row = {"n": 1, "at": moment, "items": [{"price": 2.5}, None], "none": None}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    seen = []

    def look(record: dict[str, Any]) -> dict[str, Any]:
        seen.append(record)
        return record

    own = module(tmp_path, "parquet", test=".", preprocessor=look)
    assert numbers(own.dataloader("test")) == [1]
    assert seen == [row]


# Which files.


@pytest.mark.parametrize("spelled", ["{}", "{}/", "file://{}", None])
def test_a_pattern_is_searched_in_the_path_as_the_root_is_spelled(
    every: Path, spelled: str | None
) -> None:
    root = every if spelled is None else spelled.format(every)
    begins = re.escape(os.fspath(root).rstrip("/"))
    for pattern in (rf"^{begins}/csv/0", re.compile(r"CSV/0\.csv$", re.IGNORECASE), "csv/0"):
        assert numbers(module(root, "csv", test=pattern).dataloader("test")) == list(range(EACH))


@pytest.mark.parametrize("root", [".", "./", "./lots/..", "lots"])
@pytest.mark.parametrize("suffix", ["ndjson", "parquet"])
def test_a_relative_root_stays_relative_for_patterns_and_is_found(
    root: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "lots" / "a.x", records(0), suffix)
    own = module(root, suffix, test=rf"^{re.escape(root.rstrip('/'))}/.*a\.x$")
    assert numbers(own.dataloader("test")) == list(range(EACH))


def test_files_come_sorted_and_a_root_may_be_one_file(lots: Path) -> None:
    write(lots / "z" / "part-0.jsonl", records(LOTS))
    assert numbers(module(lots, test=r"part").dataloader("test")) == list(range(LOTS + EACH))
    one = lots / "part-0.jsonl"
    assert numbers(module(one, test=r"^.*part-0\.jsonl$").dataloader("test")) == [0, 1, 2]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        module(lots / "nowhere", test=".").dataloader("test")


def test_what_is_no_data_is_left_out(tmp_path: Path) -> None:
    for name in ("a.jsonl", ".hidden.jsonl", "_draft.jsonl", "index/b.jsonl", ".tmp/c.jsonl"):
        write(tmp_path / name, records(0))
    assert numbers(module(tmp_path, test=".").dataloader("test")) == list(range(EACH))
    with pytest.raises(ValueError, match="there are 1 file"):
        module(tmp_path, test="index/").dataloader("test")


def test_a_root_is_no_pattern_but_may_look_like_one(tmp_path: Path) -> None:
    write(tmp_path / "run[1]" / "a.jsonl", records(0))
    write(tmp_path / "run[1]" / "b.jsonl", records(EACH))
    found = numbers(module(tmp_path / "run[1]", test=".").dataloader("test"))
    assert found == list(range(2 * EACH))
    for root in (tmp_path / "*" / "*.jsonl", "s3://my-bucket/day=*"):
        with pytest.raises(OptionError, match="is a pattern: give the folder"):
            module(root, test=".")


def test_a_file_of_two_splits_is_named(lots: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = module(lots, train="part", validate=r"part-0", predict="part", replacement=False)
    data.dataloader("train")
    (line,) = [one.message for one in caplog.records if "in both train= and" in one.message]
    assert re.match(r"1 file is in both train= and validate=, the first is .*part-0\.jsonl", line)


@pytest.mark.parametrize(
    ("glob", "expression"),
    [
        ("*.jsonl", r"[^/]*\.jsonl$"),
        ("train/*.jsonl", r"train/[^/]*\.jsonl$"),
        ("**/part-0.jsonl", r"(?:.*/)?part-0\.jsonl$"),
        ("train/**", r"train/.*$"),
        ("part-*.jsonl", r"part-[^/]*\.jsonl$"),
        ("part*", r"part[^/]*$"),
        ("{train,test}/*.jsonl", r"(?:train|test)/[^/]*\.jsonl$"),
    ],
)
def test_a_glob_is_an_error_that_shows_the_regular_expression(glob: str, expression: str) -> None:
    with pytest.raises(ValueError, match="is a glob, and a regular expression is nee") as raised:
        module("data", train=glob)
    assert f"train={glob!r}" in str(raised.value)
    assert str(raised.value).endswith(f': r"{expression}".')


@pytest.mark.parametrize(
    "pattern", [r"/train/.*\.jsonl$", "part-.*", r"part-0*7\.jsonl", "a.*", r"\d*", "[0-9]*x", "a"]
)
def test_a_regular_expression_is_taken_for_none(pattern: str) -> None:
    module("data", train=pattern)


def test_a_pattern_that_matches_nothing_is_an_error_that_shows_files(lots: Path) -> None:
    for split in ("train", "test"):
        with pytest.raises(ValueError, match=r"matches .*='nothing'.* 5 files, as .*part-0.jsonl"):
            module(lots, **{split: "nothing"}).dataloader(split)
    with pytest.raises(ValueError, match=r'reads as a glob, .*: r"part-\[\^/\]\\.jsonl\$"'):
        module(lots, test="part-?.jsonl").dataloader("test")
    (lots / "folder").mkdir()
    with pytest.raises(ValueError, match="there is none"):
        module(lots / "folder", test=".").dataloader("test")


@pytest.mark.parametrize("split", ["train", "test", "predict"])
def test_an_empty_split_has_no_batches_where_that_is_allowed(lots: Path, split: str) -> None:
    (lots / "none.jsonl").write_bytes(b"\n")
    for pattern in ("nothing", "none.jsonl$"):
        own = module(lots, **{split: pattern}, engine={"allow_empty": True})
        assert list(own.dataloader(split)) == []
        assert len(own.dataloader(split)) == 0
    with pytest.raises(RuntimeError, match=r"no record is in 1 file of .*none\.jsonl"):
        module(lots, **{split: "none.jsonl$"}).dataloader(split)


def test_options_that_cannot_work_are_refused_in_the_constructor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for root in ("gs://bucket/x", "http://host/x"):
        with pytest.raises(ValueError, match="expected a folder, or s3://"):
            module(root, test=".")
    for root in (None, b"data"):
        with pytest.raises(TypeError, match=r"root=.*: expected a path"):
            module(root, test=".")
    for wrong in ("xml", "jsonl"):
        with pytest.raises(ValueError, match="expected one of ndjson, parquet, feather, avro"):
            module("data", wrong, test=".")
    module("data", " NDJSON ", test=".")
    for wrong in (3, re.compile(b"x")):
        with pytest.raises(TypeError, match="expected a regular expression"):
            module("data", test=wrong)
    with pytest.raises(ValueError, match=r"test='\(' is no regular expression"):
        module("data", test="(")
    for size, kind in ((0, ValueError), (True, TypeError), (None, TypeError)):
        with pytest.raises(kind, match=rf"file_buffer_size={size}: expected"):
            module("data", test=".", file_buffer_size=size)
    with pytest.warns(UserWarning, match="without a split"):
        module("data")
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ImportError, match=r"suffix='avro' needs .*penstock\[avro\]"):
        module("data", "avro", test=".")


# CSV.


@pytest.mark.parametrize("path", ["auto", "rows"])
@pytest.mark.parametrize(
    ("nulls", "labels"),
    [(None, ["", "NA", "x"]), (["NA"], ["", "x"]), (["", "NA"], ["x"])],
)
def test_an_empty_field_of_text_is_a_label_unless_it_stands_for_null(
    tmp_path: Path, nulls: list[str] | None, labels: list[str], path: str
) -> None:
    (tmp_path / "a.csv").write_text("n,kind,at\n0,,\n,NA,2024-01-01T07:00\n2,x,\n")
    (tmp_path / "b.csv").write_text("n\n3\n")
    model = SchemaModel(
        Number("n"),
        Category("kind", max_vocab_size=4, p_unavailable=0),
        DateParts("at", dateparts=["hour_of_day"]),
        batch_size=4,
    )
    engine = {"path": path, "format_options": nulls and {"null_values": nulls}}
    own = module(tmp_path, "csv", model=model, train=".", replacement=False, engine=engine)
    (batch,) = own.dataloader("train")
    assert model.interprocess_encoding_context["record/kind"].snapshot() == labels
    assert batch["record/n"].state.flatten().tolist() == [0, 1, 0, 0]
    kinds = [int(one not in labels) for one in ("", "NA", "x")]
    assert batch["record/kind"].state.flatten().tolist() == [*kinds, 1]
    assert batch["record/at"].state.flatten().tolist() == [1, 0, 1, 1]
    assert penstock.open(tmp_path / "a.csv")[0]["kind"] is None, "the module alone reads it so"


# Trouble.


def test_a_bad_line_stops_the_run_with_its_file_or_is_skipped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(records(0, 6)) + b'{"n":\n' + lines(records(6, 3)))
    with pytest.raises(MalformedLineError, match=r"a\.jsonl.*EngineOptions\(on_error='skip'\)"):
        list(module(tmp_path, test=".").dataloader("test"))
    batches = list(module(tmp_path, test=".", engine={"on_error": "skip"}).dataloader("test"))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert numbers(batches) == list(range(9))
    assert "record 6 does not count" in caplog.text
    own = module(tmp_path, test=".", engine={"on_error": "skip"}, preprocessor=dict)
    assert numbers(own.dataloader("test")) == list(range(9))
    assert "record 6 is left out" in caplog.text


@pytest.mark.parametrize("bad", ["null", "[1]", '"text"', "7"])
@pytest.mark.parametrize("suffix", ["ndjson", "json"])
def test_a_preprocessor_sees_no_record_that_is_json_but_no_object(
    tmp_path: Path, suffix: str, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ['{"n": 0}', bad, '{"n": 1}']
    whole = "\n".join(texts) if suffix == "ndjson" else f"[{', '.join(texts)}]"
    (tmp_path / "a.x").write_text(whole)
    strict, lenient = (
        module(tmp_path, suffix, test=".", engine={"on_error": one}, preprocessor=dict)
        for one in ("raise", "skip")
    )
    with pytest.raises(MalformedLineError, match=r"record 1 \(.*a\.x.*on_error='skip'"):
        list(strict.dataloader("test"))
    assert numbers(lenient.dataloader("test")) == [0, 1]
    assert "record 1 is left out" in caplog.text


def test_a_file_that_cannot_be_opened_is_left_out_with_a_warning_or_raises(tmp_path: Path) -> None:
    write(tmp_path / "parquet" / "a.parquet", records(0), "parquet")
    (tmp_path / "parquet" / "b.parquet").write_bytes(b"PAR1 is no whole file")
    write(tmp_path / "lines" / "a.jsonl.gz", records(0))
    packed = gzip.compress(lines(records(9)))
    (tmp_path / "lines" / "b.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    for suffix, folder, default in (("parquet", "parquet", "skip"), ("ndjson", "lines", "raise")):
        for on_error in ("skip", "raise", None):
            own = module(tmp_path / folder, suffix, test=".", engine={"on_error": on_error})
            if (on_error or default) == "skip":
                with pytest.warns(UserWarning, match=r"b\..* is left out"):
                    assert numbers(own.dataloader("test")) == list(range(EACH))
            else:
                with pytest.raises(OSError, match=r"b\..*"):
                    own.dataloader("test")
    with (
        pytest.warns(UserWarning, match="is left out"),
        pytest.raises(RuntimeError, match=r"no file of 1 .* can be read"),
    ):
        module(tmp_path, "parquet", train=r"b\.parquet").dataloader("train")
    with pytest.raises(TruncatedFileError):
        module(tmp_path, train=r"b\.jsonl").dataloader("train")


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A file with one bad row group of three, and a good one."""
    path = tmp_path / "a.parquet"
    table = pa.table({"n": np.arange(600), "text": [str(n) * 9 for n in range(600)]})
    pq.write_table(table, path, row_group_size=200, use_dictionary=False)
    data = bytearray(path.read_bytes())
    page = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    data[page + 30 : page + 60] = bytes(30)
    path.write_bytes(data)
    write(tmp_path / "b.parquet", records(600), "parquet")
    return tmp_path


@pytest.mark.parametrize("by", [{}, {"preprocessor": dict}])
def test_what_is_damaged_in_a_table_is_skipped_and_said_once(
    damaged: Path, by: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    good = [*range(200), *range(400, 610)]
    model = SchemaModel(Number("n"), batch_size=50)
    found = numbers(module(damaged, "parquet", model=model, test=".", **by).dataloader("test"))
    assert [n for n in found if n < 192 or n >= 448] == [n for n in good if n < 192 or n >= 448]
    if not by:
        assert found == good
    assert len([one for one in caplog.records if "row group 1 cannot be read" in one.message]) == 1
    own = module(damaged, "parquet", test=".", engine={"on_error": "raise"}, **by)
    with pytest.raises(OSError, match="row group 1 cannot be read"):
        list(own.dataloader("test"))


@pytest.mark.parametrize("epoch", ["finite", "infinite"])
@pytest.mark.parametrize("preprocessor", [dict, drops_all])
def test_records_none_of_which_can_be_read_are_an_error(
    tmp_path: Path, preprocessor: Any, epoch: str
) -> None:
    (tmp_path / "a.jsonl").write_text("{\n{\n")
    skips = {"on_error": "skip"}
    for by in ({}, {"preprocessor": preprocessor}):
        own = module(tmp_path, test=".", engine=skips, **by)
        with pytest.raises(RuntimeError, match="no record can be read, and 2 were tried"):
            list(own.dataloader("test"))
    by |= {"replacement": {"train": True}, "engine": {**skips, "epoch": epoch}}
    with pytest.raises(RuntimeError, match="no record can be read, and 2 were tried"):
        list(module(tmp_path, train=".", **by).dataloader("train"))
    (tmp_path / "b.jsonl").write_text('{"n": 0}\n')
    found = numbers(module(tmp_path, test=".", **by).dataloader("test"))
    assert found == ([0] if preprocessor is dict else [])


def test_records_that_cannot_be_read_say_nothing_of_queries(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{\n" * 20 + '{"n": 5}\n')
    model = SchemaModel(Number("n"), batch_size=1)
    own = module(tmp_path, model=model, test=".", engine={"on_error": "skip"})
    assert numbers(own.dataloader("test")) == [5]


# Files that can only be read from their beginning.


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_gzip_file_is_shuffled_and_drawn_from_in_rising_order(tmp_path: Path, split: str) -> None:
    count = 12_000
    some = [{"n": number, "pad": "x" * 200} for number in range(count)]
    write(tmp_path / "a.jsonl.gz", some)
    model = SchemaModel(Number("n"), batch_size=500)
    for size in (1, 4000):
        own = module(
            tmp_path, model=model, observation_buffer_size=size, **{split: "."}
        ).dataloader(split)
        assert len(own) == 24
        for _ in range(2):
            found = numbers(own)
            assert sorted(found) == list(range(count))
            assert (size > 1) <= (found != sorted(found))


# Shuffles, samples, seeds, epochs.


def epochs(own: StreamingDataModule, split: str, count: int = 3) -> list[list[int]]:
    batches = own.dataloader(split)
    return [numbers(batches) for _ in range(count)]


def test_order_is_kept_without_buffers_and_shuffled_anew_in_each_epoch_with_them(
    lots: Path,
) -> None:
    about: dict[str, Any] = {"train": ".", "validate": ".", "replacement": False}
    for split in ("train", "validate"):
        plain = epochs(module(lots, **about), split)
        assert plain == [list(range(LOTS))] * 3
        for option in ({"observation_buffer_size": 30}, {"file_buffer_size": 5}):
            shuffled = epochs(module(lots, **about, **option), split)
            assert [sorted(one) for one in shuffled] == plain
            assert len({tuple(one) for one in [*plain, *shuffled]}) == 4
            assert shuffled == epochs(module(lots, **about, **option), split)
            others = epochs(module(lots, **about, **option, engine={"seed": 2}), split)
            assert others != shuffled


def test_prediction_keeps_order_and_all_records_whatever_the_options(lots: Path) -> None:
    own = module(
        lots,
        predict=".",
        observation_buffer_size=50,
        file_buffer_size=5,
        sample_rate=0.3,
        engine={"equalize": "drop"},
    )
    (batches,) = epochs(own, "predict", 1)
    assert batches == list(range(LOTS))


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_sample_is_the_same_however_files_are_shared(lots: Path, split: str) -> None:
    options: dict[str, Any] = {split: ".", "sample_rate": 0.5, "replacement": False}
    first, second, _ = epochs(module(lots, **options), split)
    assert first != second
    assert all(15 < len(one) < 50 for one in (first, second))
    for more in (
        {"sharding": "record"},
        {"sharding": "chunk", "chunk_batch_size": 4, "num_workers": 2},
        {"observation_buffer_size": 9, "file_buffer_size": 3},
    ):
        again = epochs(module(lots, **options, **more), split, 2)
        assert [sorted(one) for one in again] == [sorted(first), sorted(second)]


def test_training_draws_with_replacement_in_epochs_as_long_as_the_files(lots: Path) -> None:
    own = module(lots, train=".", chunk_batch_size=2)
    batches = own.dataloader("train")
    assert len(batches) == 17
    drawn = [numbers(batches) for _ in range(40)]
    assert {len(one) for one in drawn} == {LOTS}
    assert len({tuple(one) for one in drawn}) == 40
    counts = Counter(number for one in drawn for number in one)
    assert {*counts} == {*range(LOTS)}
    assert max(counts[n] for n in range(LOTS)) < 120
    once = module(lots, train=".", replacement=False).dataloader("train")
    assert numbers(once) == list(range(LOTS))


def test_an_infinite_epoch_has_no_length_and_goes_on(lots: Path) -> None:
    batches = module(lots, train=".", engine={"epoch": "infinite"}).dataloader("train")
    with pytest.raises(TypeError, match="not known"):
        len(batches)
    seen = Counter[int]()
    for step, batch in enumerate(batches):
        seen.update(values(batch))
        if step == 100:
            break
    assert len(seen) > LOTS * 0.9


def test_one_line_says_that_records_are_drawn(lots: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock.lightning"):
        module(lots, train=".").dataloader("train")
    assert [one.message for one in caplog.records if one.name == "penstock.lightning"] == [
        "drawing with replacement, finite epochs"
    ]


def test_the_seed_is_torchs_at_the_first_loader_and_no_generator_is_touched(lots: Path) -> None:
    def order(own: StreamingDataModule) -> list[int]:
        return numbers(own.dataloader("train"))

    options: dict[str, Any] = {"train": ".", "observation_buffer_size": 20, "sample_rate": 0.9}
    torch.manual_seed(5)
    random.seed(5)
    before = (torch.get_rng_state().tolist(), random.getstate())
    own = module(lots, **options, engine={"seed": None})
    first = order(own)
    assert (torch.get_rng_state().tolist(), random.getstate()) == before
    torch.manual_seed(6)
    assert order(own) == first
    assert order(module(lots, **options, engine={"seed": 5})) == first
    assert order(module(lots, **options, engine={"seed": None})) != first


# Workers.


@pytest.fixture
def ranks() -> Iterator[Callable[[StreamingDataModule, int, int], StreamingDataModule]]:
    """Lets a module stand where a trainer of several ranks would put it."""

    class Rank:
        num_nodes = 1

        def __init__(self, rank: int, world_size: int) -> None:
            self.global_rank, self.world_size = rank, world_size

    def put(own: StreamingDataModule, rank: int, world_size: int) -> StreamingDataModule:
        own.trainer = Rank(rank, world_size)  # type: ignore[assignment]
        return own

    return put  # type: ignore[return-value]


@pytest.mark.parametrize("sharding", ShardingStrategy)
@pytest.mark.parametrize(("world_size", "workers"), [(1, 2), (2, 2), (3, 0)])
def test_ranks_and_workers_read_every_record_once(
    lots: Path, ranks: Any, sharding: str, world_size: int, workers: int
) -> None:
    options: dict[str, Any] = {"chunk_batch_size": 4, "num_workers": workers, "sharding": sharding}
    found, steps = [], []
    for rank in range(world_size):
        own = ranks(module(lots, test=".", **options), rank, world_size)
        batches = own.dataloader("test")
        found.append(numbers(batches))
        steps.append(len(batches))
    assert sorted(n for own in found for n in own) == list(range(LOTS))
    assert len({*steps}) == 1
    assert all(found)


def test_fewer_files_than_ranks_are_warned_of(lots: Path, ranks: Any) -> None:
    own = ranks(module(lots, test="part-0", sharding="file"), 0, 2)
    with pytest.warns(UserWarning, match=r"1 file of test= for 2 ranks.*sharding='chunk'"):
        own.dataloader("test")


def test_spawned_workers_and_a_pickled_module_give_the_same_batches(lots: Path) -> None:
    options: dict[str, Any] = {"train": ".", "observation_buffer_size": 10, "num_workers": 2}
    options["model"] = SchemaModel(Number("n", p_mask=0.2), Category("text"), batch_size=4)
    own = module(lots, **options)
    plain = [batch.ids.tolist() for batch in own.dataloader("train")]
    assert [
        batch.ids.tolist() for batch in pickle.loads(pickle.dumps(own)).dataloader("train")
    ] == plain
    spawned = module(lots, **options, engine={"multiprocessing_context": "spawn"})
    assert [batch.ids.tolist() for batch in spawned.dataloader("train")] == plain
