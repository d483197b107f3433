"""Text of every source becomes the same samples: files of any format, views, records in memory."""

from __future__ import annotations

import gzip
import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import zstandard

import penstock
from penstock.errors import MalformedLineError, OptionError
from penstock.index import read_bad_lines
from tests.cli.commands import document, invoke
from tests.cli.token_samples import bpe
from tests.faults.halting import halting
from tests.index.text_samples import sample_texts
from tests.index.tokenize_program import UNIT, Program
from tests.index.tokenize_samples import by_hand, indexer, left_of, tokens_in, write_texts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_server import S3Server

TEXTS = [text for text in sample_texts(300, 1) if "\r" not in text]
RECORDS: list[dict[str, Any]] = [
    {"text": text, "n": n, "meta": {"body": text}} for n, text in enumerate(TEXTS)
]
SIZE = 50


class MapStyle:
    """A dataset of torch's kind."""

    def __len__(self) -> int:
        return len(RECORDS)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return RECORDS[number]


def parquet(folder: Path, group: int = 20) -> Path:
    pq.write_table(pa.Table.from_pylist(RECORDS), folder / "a.parquet", row_group_size=group)
    return folder / "a.parquet"


def jsonl(folder: Path) -> Path:
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return folder / "a.jsonl"


def packed(folder: Path, ending: str) -> Path:
    data = jsonl(folder).read_bytes()
    path = folder / f"b.jsonl{ending}"
    path.write_bytes(gzip.compress(data) if ending == ".gz" else zstandard.compress(data))
    return path


def csv(folder: Path) -> Path:
    flat = pa.table({"n": range(len(TEXTS)), "text": TEXTS})
    pyarrow.csv.write_csv(flat, folder / "a.csv")
    return folder / "a.csv"


SOURCES: dict[str, Any] = {
    "parquet": parquet,
    "a folder of parquet": lambda folder: parquet(folder).parent,
    "a pattern": lambda folder: f"{parquet(folder).parent}/*.parquet",
    "csv": csv,
    "a file without an ending": lambda folder: parquet(folder).rename(folder / "data"),
    "where": lambda folder: penstock.open(parquet(folder)).where("n >= 0"),
    "where of .jsonl.gz": lambda folder: penstock.open(packed(folder, ".gz")).where("n >= 0"),
    "take of .jsonl.zst": lambda folder: penstock.open(packed(folder, ".zst")).take(
        np.arange(len(TEXTS))
    ),
    "take": lambda folder: penstock.open(jsonl(folder)).take(np.arange(len(TEXTS))),
    "split": lambda folder: penstock.open(jsonl(folder)).split(all=1.0)[0],
    "a + b": lambda folder: (
        penstock.open(jsonl(folder)).take(np.arange(99))
        + penstock.open(parquet(folder)).take(np.arange(99, len(TEXTS)))
    ),
    "table": lambda _: pa.Table.from_pylist(RECORDS),
    "list": lambda _: RECORDS,
    "map-style": lambda _: MapStyle(),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_samples_of_its_texts(kind: str, tmp_path: Path) -> None:
    source = SOURCES[kind](tmp_path)
    report = indexer(input_base_path=source, output_base_path=tmp_path / "out", sample_size=SIZE)()
    expected = by_hand({"part-00000.jsonl": TEXTS}, SIZE)
    assert tokens_in(tmp_path / "out") == expected
    assert (report.documents, report.trained) == (len(TEXTS), None)
    assert left_of(tmp_path / "out") == []


@pytest.mark.parametrize("packing", ["concat", "best_fit"])
def test_processes_and_units_do_not_change_samples(packing: str, tmp_path: Path) -> None:
    path = parquet(tmp_path)
    found = []
    for number, way in enumerate([{}, {"num_workers": 2, "unit_bytes": 3000}]):
        out = tmp_path / str(number)
        options: dict[str, Any] = {"sample_size": SIZE, "packing": packing, **way}
        indexer(input_base_path=path, output_base_path=out, **options)()
        found.append(tokens_in(out))
    assert found[0] == found[1]


def test_records_in_memory_go_to_processes_only_when_asked(tmp_path: Path) -> None:
    for number, workers in enumerate([None, 2]):
        out = tmp_path / str(number)
        options = {"num_workers": workers, "sample_size": SIZE, "unit_bytes": 3000}
        indexer(input_base_path=RECORDS, output_base_path=out, **options)()
        assert tokens_in(out) == by_hand({"part-00000.jsonl": TEXTS}, SIZE)


def test_a_bad_record_is_named_or_set_aside(tmp_path: Path) -> None:
    table = pa.table({"text": ["one", None, "three"], "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "a.parquet")
    given = {"input_base_path": tmp_path / "a.parquet", "sample_size": 2}
    with pytest.raises(MalformedLineError, match=r"record 1 \(row 1 of .*a\.parquet\) is no doc"):
        indexer(output_base_path=tmp_path / "raised", **given)()
    report = indexer(output_base_path=tmp_path / "skipped", on_error="skip", **given)()
    assert (report.documents, report.bad_documents) == (2, 1)
    (bad,) = read_bad_lines(tmp_path / "skipped" / "index")
    assert (bad.line, "is null, not a string" in bad.reason) == (2, True)
    with pytest.raises(MalformedLineError, match=r"record 0 is no document: no field 'body'"):
        indexer(input_base_path=RECORDS, output_base_path=tmp_path / "no", text_key="body")()


def test_a_record_that_cannot_be_read_is_named_or_set_aside(tmp_path: Path) -> None:
    texts = pa.array([b"one", b"caf\xe9", b"two"]).view(pa.string())
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("n,text\n1,one\n2\n3,two\n")
    for name, why in (("a.parquet", "not UTF-8"), ("a.csv", "is no row of its file")):
        given = {"input_base_path": tmp_path / name, "output_base_path": tmp_path / f"{name}-out"}
        with pytest.raises(MalformedLineError, match=rf"record 1 .*{name}.* is no document.*{why}"):
            indexer(**given)()
        report = indexer(**given, on_error="skip")()
        assert (report.documents, report.bad_documents) == (2, 1)


def test_what_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = indexer(input_base_path=RECORDS, output_base_path=out, sample_size=SIZE)
    made()
    with pytest.raises(OptionError, match="holds tokens already"):
        indexer(input_base_path=penstock.open(out), output_base_path=tmp_path / "more")
    with pytest.raises(OptionError, match="takes lines of JSON"):
        indexer(
            input_base_path=RECORDS, output_base_path=tmp_path / "no", process_text_line_func=str
        )()
    with pytest.raises(ValueError, match="nothing says where tokens"):
        indexer(input_base_path=RECORDS)


@pytest.mark.parametrize("packing", ["concat", "best_fit"])
def test_a_killed_run_over_records_goes_on_with_the_same_answers(
    packing: str, tmp_path: Path
) -> None:
    path, out, whole = parquet(tmp_path), tmp_path / "out", tmp_path / "whole"
    options = {"sample_size": SIZE, "packing": packing, "template": "{n}: {text}"}
    program = Program(
        path, env=halting("*.unit", after=3), output_base_path=out, num_workers=2, **options
    )
    units: list[Path] = []
    while program.process.is_alive() and len(units) < 3:
        time.sleep(0.01)
        units = [*out.glob(".index.*.penstock-index-tmp/*.unit")]
    program.process.kill()
    program.ended()
    assert units
    told: list[int] = []

    class View:
        def add(self, count: int) -> None:
            told.append(count)

    given: dict[str, Any] = {"input_base_path": path, "unit_bytes": UNIT, **options}
    indexer(output_base_path=out, progress=View(), **given)()
    assert told[0] > UNIT  # The finished units come first, at once.
    indexer(output_base_path=whole, **given)()
    assert tokens_in(out) == tokens_in(whole)
    flags = [(folder / "index" / "trained.bin").read_bytes() for folder in (out, whole)]
    assert flags[0] == flags[1]
    assert left_of(out) == []


def test_finished_parts_of_records_that_nothing_identifies_are_not_used(tmp_path: Path) -> None:
    job = indexer(input_base_path=MapStyle(), output_base_path=tmp_path).job
    assert job.texts.key() is None
    view = penstock.open(MapStyle()).take([1, 2])
    assert indexer(input_base_path=view, output_base_path=tmp_path).job.texts.key() is None
    known = [indexer(input_base_path=RECORDS[:n], output_base_path=tmp_path) for n in (8, 8, 9)]
    first, same, other = (one.job.texts.key() for one in known)
    assert first == same != other


def test_the_command_takes_tables_and_a_condition(tmp_path: Path) -> None:
    tokenizer = bpe(tmp_path / "tokenizer.json")
    given = ["--tokenizer", tmp_path / "tokenizer.json", "--sample-size", 16, "--workers", 0]
    for number, path in enumerate([parquet(tmp_path), csv(tmp_path)]):
        out = tmp_path / f"out{number}"
        made = document("tokenize", path, out, *given, "--where", "n < 40 and n >= 10")
        assert (made["documents"], made["files"]) == (30, 1)
        expected = [token for text in TEXTS[10:40] for token in [*tokenizer.encode(text).ids, 0]]
        found = np.concatenate(penstock.open(out)[:]).tolist()
        assert found == expected[: len(found)]
    done = invoke("tokenize", csv(tmp_path), tmp_path / "no", *given, "--text-key", "body")
    assert done.exit_code == 1
    assert "record 0" in done.stderr
    assert "--text-key" in done.stderr


@pytest.mark.s3
def test_a_remote_table_is_tokenised_like_a_local_one(
    tmp_path: Path, s3_server: S3Server, bucket: str, own_cache: Path
) -> None:
    del own_cache
    s3_server.put(bucket, "data/a.parquet", parquet(tmp_path).read_bytes())
    for number, workers in enumerate([0, 1]):
        out = tmp_path / str(number)
        options: dict[str, Any] = {"num_workers": workers, "sample_size": SIZE, "unit_bytes": UNIT}
        options["storage_options"] = s3_server.storage_options
        indexer(input_base_path=f"s3://{bucket}/data", output_base_path=out, **options)()
        assert tokens_in(out) == by_hand({"part-00000.jsonl": TEXTS}, SIZE)


def test_lines_of_a_folder_are_still_read_as_files(tmp_path: Path) -> None:
    write_texts(tmp_path / "in", {"a.jsonl": TEXTS[:9], "b.jsonl": TEXTS[9:20]})
    csv(tmp_path / "in")
    indexer(input_base_path=tmp_path / "in", output_base_path=tmp_path, sample_size=SIZE)()
    assert sorted(tokens_in(tmp_path).bins) == [
        "a-tokenized-samples.bin",
        "b-tokenized-samples.bin",
    ]
