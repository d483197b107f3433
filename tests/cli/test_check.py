from __future__ import annotations

import gzip
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.cli._paths import find, look_at
from penstock.cli.check._parts import Findings, ToCheck, check_parts, line_parts
from penstock.jsonl._zstd import seek_table
from penstock.storage import StorageOptions
from tests.cli.commands import document, invoke, succeed, written
from tests.rounds import rounds

LINES = st.sampled_from(
    [b"{}", b'{"a": 1}', b"", b"  ", b"[1]", b"{oops", b"\xff", b"7", b"\xef\xbb\xbf{}", b"{}\r"]
)


def test_nothing_wrong_is_one_line(logs: Path) -> None:
    text = succeed("check", logs)
    assert len(text.splitlines()) == 1
    assert f"{logs}: 3 files, 10 records" in text
    assert "nothing wrong" in text
    told = document("check", logs)
    assert (told["findings"], told["kinds"], told["shown"], told["records"]) == (0, {}, [], 10)


def change_unseen(file: Path, text: str) -> None:
    """Change one byte far from both ends, which the fingerprint covers, and keep the time."""
    was = file.stat()
    file.write_text(text[:60_000] + text[60_000:].replace("1", "2", 1))
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_bytes_that_changed_without_a_trace_are_found_by_their_hash(
    ending: str, tmp_path: Path
) -> None:
    line = "1\n" if ending == "csv" else '{"number": 1}\n'
    text = ("number\n" if ending == "csv" else "") + line * (140_000 // len(line))
    one, other = (tmp_path / f"{name}.{ending}" for name in "ab")
    for file in (one, other):
        file.write_text(text)
    succeed("index", tmp_path, "--full-hash")
    assert "nothing wrong" in succeed("check", tmp_path)
    change_unseen(other, text)
    done = invoke("check", tmp_path)
    assert done.exit_code == 1
    assert f"{other}: changed file: some bytes are not those that were indexed" in done.stdout
    # What is appended changes nothing of what was indexed, and an update hashes that as well.
    one.write_text(text + line)
    assert document("check", tmp_path, code=1)["kinds"] == {"changed file": 1}
    other.write_text(text)
    succeed("index", tmp_path, "--update")
    assert "nothing wrong" in succeed("check", tmp_path)
    change_unseen(one, text + line)
    assert document("check", tmp_path, code=1)["shown"][0]["path"] == str(one)
    succeed("index", tmp_path, "--overwrite")
    assert "nothing wrong" in succeed("check", tmp_path)
    assert "--overwrite --full-hash" in invoke("index", tmp_path, "--update", "--full-hash").stderr


def test_columns_of_bytes_that_changed_are_not_kept(tmp_path: Path) -> None:
    text = '{"number": 1}\n' * 10_000
    (tmp_path / "a.jsonl").write_text(text)
    succeed("index", tmp_path, "--full-hash")
    succeed("materialize", tmp_path, "number:int64")
    for options in (["--full-hash"], []):
        succeed("index", tmp_path, "--overwrite", "--full-hash")
        assert "nothing to build" in succeed("materialize", tmp_path, "number:int64")
        change_unseen(tmp_path / "a.jsonl", (tmp_path / "a.jsonl").read_text())
        succeed("index", tmp_path, "--overwrite", *options)
        assert "nothing to build" not in succeed("materialize", tmp_path, "number:int64")
    source = penstock.open(tmp_path)
    columns = source.materialize({"number": "int64"}).read(range(10_000), {"number": "int64"})
    assert columns["number"].to_pylist() == [record["number"] for record in source]
    assert 2 in columns["number"].to_pylist()


def test_a_killed_builder_leaves_something_to_find(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"number": 1}\n')
    left = tmp_path / ".index.0123456789abcdef.penstock-index-tmp"
    left.mkdir()
    (left / "000000.unit").write_bytes(bytes(100))
    done = invoke("check", tmp_path)
    assert done.exit_code == 1
    assert f"{left}: leftover: 100 B of a writer that is gone" in done.stdout
    assert "the command that was killed goes on with it" in done.stdout


def test_every_bad_line_is_told_with_place_reason_and_beginning(tmp_path: Path) -> None:
    lines = ['{"id":0}', '{"id":', "", b'{"id":"\xff"}', "x" * 100, "", '{"id":1}']
    file = written(tmp_path / "a.jsonl", *lines)
    done = invoke("check", file)
    assert done.exit_code == 1
    first, second, third, summary = done.stdout.splitlines()
    assert first.startswith(f"{file}:2: malformed line: ")
    assert first.endswith("the line begins b'{\"id\":'")
    assert second.startswith(f"{file}:4: malformed line: not UTF-8 at byte 7")
    assert third.startswith(f"{file}:5: malformed line: ")
    assert third.endswith(f"the line begins b'{'x' * 60}' …")
    size = file.stat().st_size
    assert summary.endswith(f"2 records, {size} B of text: 3 findings: 3 malformed lines")


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("[1]", "an array"),
        ('"text"', "a string"),
        ("12", "a number"),
        ("1.5", "a number"),
        ("NaN", "a number"),
        ("true", "true or false"),
        ("null", "null"),
    ],
)
def test_a_line_without_an_object_is_a_finding(tmp_path: Path, line: str, holds: str) -> None:
    file = written(tmp_path / "a.jsonl", "{}", line, '{"n":NaN}')
    told = document("check", file, code=1)
    (finding,) = told["shown"]
    assert finding == {
        "kind": "non-object line",
        "path": str(file),
        "line": 2,
        "reason": holds,
        "begins": f"b{line!r}",
    }
    assert told["records"] == 3


@pytest.mark.parametrize("name", ["a.jsonl.zst", "a.jsonl.gz"])
@pytest.mark.parametrize("damage", ["cut off", "flipped"])
def test_a_damaged_file_is_a_finding_and_the_others_are_checked(
    logs: Path, name: str, damage: str
) -> None:
    good = (logs / "part-00000.jsonl.zst").read_bytes()
    if name.endswith(".gz"):
        good = gzip.compress(b'{"id":0}\n' * 1000, mtime=0)
    middle = len(good) // 2
    flipped = good[:middle] + bytes([good[middle] ^ 0x55]) + good[middle + 1 :]
    (logs / name).write_bytes(good[:-20] if damage == "cut off" else flipped)
    done = invoke("check", logs)
    assert done.exit_code == 1
    assert f"{logs / name}: damaged file: is " in done.stdout
    told = document("check", logs, code=1)
    assert told["kinds"] == {"damaged file": 1}
    assert told["records"] >= 10


@pytest.mark.parametrize("name", ["a.jsonl.zst", "a.jsonl.gz"])
def test_lines_before_the_damage_are_checked(tmp_path: Path, name: str) -> None:
    compress = gzip.compress if name.endswith(".gz") else zstandard.compress
    (tmp_path / name).write_bytes(compress(b'{"id":0}\n[1]\n{bad\n') + b"junk")
    told = document("check", tmp_path, code=1)
    assert told["kinds"] == {"non-object line": 1, "malformed line": 1, "damaged file": 1}
    assert told["records"] == 2


@pytest.mark.parametrize("ending", ["zst", "gz"])
def test_a_compressed_file_of_no_bytes_is_a_finding(ending: str, logs: Path) -> None:
    (logs / f"part-00003.jsonl.{ending}").touch()
    told = document("check", logs, code=1)
    assert (told["kinds"], told["records"]) == ({"damaged file": 1}, 10)
    assert told["shown"][0]["path"] == str(logs / f"part-00003.jsonl.{ending}")
    assert "is cut off" in told["shown"][0]["reason"]


def test_a_seek_table_that_hides_a_frame_is_a_finding(logs: Path) -> None:
    lines = [b'{"id": 1}\n{"id": 2}\n', b'{"id": 3}\n{"id": 4}\n']
    frames = [zstandard.compress(some) for some in lines]
    table = seek_table([(sum(map(len, frames)), len(lines[0]))])
    (logs / "part-00003.jsonl.zst").write_bytes(b"".join(frames) + table)
    told = document("check", logs, code=1)
    assert told["kinds"] == {"damaged file": 1}
    assert "seek table" in told["shown"][0]["reason"]


@pytest.mark.parametrize("what", ["", "/*"], ids=["folder", "pattern"])
def test_a_link_that_leads_nowhere_is_a_finding_and_the_others_are_checked(
    what: str, logs: Path
) -> None:
    link = logs / "part-00003.jsonl.zst"
    link.symlink_to("nowhere")
    told = document("check", f"{logs}{what}", code=1)
    assert (told["kinds"], told["records"]) == ({"missing file": 1}, 10)
    assert told["shown"][0]["path"] == str(link)
    assert "it is a link to nowhere, and nothing is there" in told["shown"][0]["reason"]
    for command in (["info", logs], ["convert", logs, logs.parent / "copy.jsonl"]):
        assert f"{link}: it is a link to nowhere" in invoke(*command).stderr
    assert not (logs.parent / "copy.jsonl").exists()


def test_a_link_back_to_its_own_folder_doubles_nothing(logs: Path) -> None:
    (logs / "loop").symlink_to(".")
    (logs / "again").symlink_to(".")
    assert document("check", f"{logs}/**/*.jsonl.zst")["records"] == 10


def test_a_dead_writers_leftover_is_a_finding(logs: Path, dead_draft: Path) -> None:
    told = document("check", logs, code=1)
    assert told["kinds"] == {"leftover": 1}
    assert told["shown"][0]["path"] == str(dead_draft)
    assert "penstock clean" in invoke("check", logs).stdout


def test_a_living_writers_draft_is_no_finding(logs: Path, living_draft: Path) -> None:
    assert living_draft.exists()
    assert invoke("check", logs).exit_code == 0


def test_all_findings_are_counted_and_only_the_first_shown(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", *["{oops"] * 30, "1", "2")
    done = invoke("check", file)
    assert len(done.stdout.splitlines()) == 21
    assert done.stdout.splitlines()[-1].endswith(
        "32 findings (12 not shown): 30 malformed lines, 2 non-object lines"
    )
    assert len(invoke("check", file, "--max", "3").stdout.splitlines()) == 4
    assert len(invoke("check", file, "--max", "0").stdout.splitlines()) == 1
    told = document("check", file, "--max", "5", code=1)
    assert (told["findings"], len(told["shown"])) == (32, 5)
    assert told["kinds"] == {"malformed line": 30, "non-object line": 2}


def test_a_sample_finds_its_share_and_is_the_same_for_a_seed(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", *["{oops", "{}"] * 5000)
    told = document("check", file, "--sample", "10%", "--max", "5000", code=1)
    assert told["sample"] == 0.1
    assert 350 < told["findings"] < 650
    assert 350 < told["records"] < 650
    assert told == document("check", file, "--sample", "10%", "--max", "5000", code=1)
    other = document("check", file, "--sample", "10%", "--seed", "1", "--max", "5000", code=1)
    assert told["shown"] != other["shown"]
    assert all(finding["line"] % 2 == 1 for finding in told["shown"])
    assert document("check", file, "--sample", "100%", code=1)["findings"] == 5000
    assert invoke("check", file, "--sample", "2").exit_code == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "a,b\n" + '1,2\n"3\n4"\n' * 2500),
        ("a.csv.gz", "a,b\n" + '1,2\n"3\n4"\n' * 2500),
        ("a.json", "[" + ", 0,\n\n".join(["{}"] * 2500) + ", 0]"),
    ],
)
def test_rows_and_elements_are_sampled_too(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    whole = document("check", file, "--max", "5000", code=1)
    told = document("check", file, "--sample", "10%", "--max", "5000", code=1)
    assert 150 < told["findings"] < 350
    assert 150 < told["records"] < 350
    assert told == document("check", file, "--sample", "10%", "--max", "5000", code=1)
    every = [(one["line"], one["reason"]) for one in whole["shown"]]
    assert len(every) == 2500
    assert {(one["line"], one["reason"]) for one in told["shown"]} < {*every}
    words = "rows" if "csv" in name else "elements"
    assert f"in a sample of 10 % of the {words}" in invoke("check", file, "--sample", "10%").stdout


def test_a_sample_still_finds_damage(logs: Path) -> None:
    victim = logs / "part-00001.jsonl.zst"
    victim.write_bytes(victim.read_bytes()[:40])
    assert document("check", logs, "--sample", "1%", code=1)["kinds"] == {"damaged file": 1}


def test_a_file_that_cannot_be_read_at_all_is_an_error_not_a_finding(logs: Path) -> None:
    victim = logs / "part-00001.jsonl.zst"
    victim.unlink()
    os.mkfifo(victim)
    done = invoke("check", logs)
    assert done.exit_code == 3
    assert str(victim) in done.stderr
    assert "6 records" in done.stdout
    assert "not all could be read" in done.stdout
    told = document("check", logs, code=3)
    assert [error["path"] for error in told["errors"]] == [str(victim)]


def report_of(path: Path, part_bytes: int, most: int, workers: int = 0) -> Findings:
    """Return what is found in parts of files, about three of them in a unit."""
    report = Findings(most, lambda _: None)
    at_path = look_at(str(path), StorageOptions())
    files = find(str(path), StorageOptions(), at_path).found
    parts = list(line_parts(ToCheck(files, at_path, None, None, 0, part_bytes)))
    check_parts(parts, report, lambda _: None, workers, unit_bytes=3 * part_bytes)
    return report


@given(
    lines=st.lists(LINES, max_size=12),
    ends=st.booleans(),
    part_bytes=st.integers(4, 40),
    most=st.integers(0, 5),
)
@settings(max_examples=rounds(60, 3000), deadline=None)
def test_parts_of_a_file_find_what_the_whole_file_has(
    lines: list[bytes], part_bytes: int, most: int, *, ends: bool
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_bytes(b"\n".join(lines) + b"\n" * ends)
        whole, cut = report_of(path, 1 << 20, most), report_of(path, part_bytes, most)
        assert cut.shown == whole.shown
        assert list(cut.kinds.items()) == list(whole.kinds.items())
        assert (cut.records, cut.errors) == (whole.records, whole.errors)
        assert cut.text_bytes == whole.text_bytes


def test_processes_find_the_same_in_the_same_order(logs: Path) -> None:
    written(logs / "b.jsonl", *["{}", "{oops", "[1]"] * 30, b"\xff")
    (logs / "c.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 99)[:-9])
    os.mkfifo(logs / "d.jsonl")
    for arguments in ((), ("--max", "3"), ("--sample", "20%")):
        here, there = (
            invoke("check", logs, *arguments, "--workers", workers) for workers in (0, 2)
        )
        assert (here.exit_code, here.stdout, here.stderr) == (3, there.stdout, there.stderr)
    assert document("check", logs, "--workers", "0", code=3) == document(
        "check", logs, "--workers", "2", code=3
    )
    (logs / "d.jsonl").unlink()
    whole, cut = report_of(logs, 1 << 20, 50), report_of(logs, 64, 50, workers=2)
    assert (cut.shown, cut.kinds, cut.records) == (whole.shown, whole.kinds, whole.records)


def test_csv_files_without_a_common_column_are_a_finding(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    written(folder / "0.csv", "no,rows")
    written(folder / "a.csv", "x,y", "1,2")
    written(folder / "b.csv", "p,q", "1,2")
    written(folder / "c.csv", "z,x", "1,2")
    told = document("check", folder, code=1)
    assert told["kinds"] == {"differing schema": 1}
    assert told["shown"][0]["path"].endswith("b.csv")
    assert "have no column in common: x, y … and p, q" in told["shown"][0]["reason"]
    assert told == document("check", folder, "--workers", "2", code=1)


def test_rows_of_csv_that_cannot_be_read_are_findings(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    written(folder / "a.csv", "id,name", "1,ann", "2", '3,"two', 'lines"', "4,x,y", b"5,\xff")
    written(folder / "b.csv", "id,name", "1", '2,"open', "3,x")
    written(folder / "c.csv", "id,id", "1,2")
    written(folder / "d.csv", "id,other", "1,2")
    told = document("check", folder, code=1)
    assert [(Path(one["path"]).name, one["line"], one["kind"]) for one in told["shown"]] == [
        ("a.csv", 3, "malformed row"),
        ("a.csv", 6, "malformed row"),
        ("a.csv", 7, "malformed row"),
        ("b.csv", 2, "malformed row"),
        ("b.csv", None, "malformed row"),
        ("c.csv", None, "malformed header"),
    ]
    assert told["shown"][0]["reason"] == "1 field, and its file has 2 columns"
    assert told["shown"][0]["begins"] == "b'2'"
    assert told["shown"][2]["reason"].startswith("not UTF-8 at byte 2")
    assert "the quote at byte 12 is never closed" in told["shown"][4]["reason"]
    assert told["records"] == 3
    assert told == document("check", folder, "--workers", "2", code=1)
    assert "nothing wrong" in succeed("check", folder / "d.csv")
    sampled = document("check", folder, "--sample", "100%", code=1)
    assert sampled == {**told, "sample": 1}


def test_row_groups_that_cannot_be_read_and_schemas_that_differ_are_findings(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    table = pa.table({"a": range(4000), "s": [str(n) for n in range(4000)]})
    pq.write_table(
        table,
        folder / "a.parquet",
        row_group_size=1000,
        compression="none",
        write_page_checksum=True,
    )
    assert document("check", folder)["records"] == 4000
    damaged = bytearray((folder / "a.parquet").read_bytes())
    place = pq.read_metadata(folder / "a.parquet").row_group(2).column(0).data_page_offset
    damaged[place + 200] ^= 0x55
    (folder / "b.parquet").write_bytes(damaged)
    (folder / "c.parquet").write_bytes(damaged[:-100])
    pq.write_table(pa.table({"a": ["x"]}), folder / "d.parquet")
    told = document("check", folder, code=1)
    assert told["kinds"] == {"damaged file": 1, "differing schema": 1, "unreadable row group": 1}
    assert [Path(one["path"]).name for one in told["shown"]] == [
        "c.parquet",
        "d.parquet",
        "b.parquet",
    ]
    assert told["shown"][2]["reason"].startswith("row group 2 cannot be read: ")
    assert told["records"] == 7000
    assert told == document("check", folder, "--workers", "2", code=1)
    sampled = document("check", folder, "--sample", "50%", code=1)
    assert 0 < sampled["records"] < 8000


def test_lines_that_the_index_has_set_aside_are_told(tmp_path: Path) -> None:
    written(tmp_path / "lines" / "a.jsonl", "{}", "{oops", "[1]")
    assert document("check", tmp_path / "lines", code=1)["set_aside"] is None
    assert invoke("index", tmp_path / "lines", "--validate").exit_code == 1
    done = invoke("check", tmp_path / "lines")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1] == (
        "2 lines are set aside in bad_lines.ndjson of the index, and no records"
    )
    assert document("check", tmp_path / "lines", code=1)["set_aside"] == 2
