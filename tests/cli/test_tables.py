"""Every verb takes Arrow IPC, ORC and Avro as it takes Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import penstock
from penstock.tables import _avro
from tests.cli.commands import document, invoke, succeed
from tests.datasets.table_files import ENDINGS, write

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {".arrow": "arrow", ".feather": "arrow", ".orc": "orc", ".avro": "avro"}
UNITS = {".arrow": "record batch", ".feather": "record batch", ".orc": "stripe", ".avro": "block"}


@pytest.fixture(params=ENDINGS)
def ending(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> Path:
    """Return a folder of two files, with 40 and 60 rows."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_avro, "_UNIT_BYTES", 1)
    for name, numbers in (("a", range(40)), ("b", range(40, 100))):
        columns = {"id": numbers, "text": [f"{n:020}" for n in numbers]}
        write(tmp_path / "data" / f"{name}{ending}", columns, 10)
    return tmp_path / "data"


def test_verbs_that_look(folder: Path, ending: str) -> None:
    info = document("info", folder)
    assert (info["format"], info["records"], info["index"]) == (KINDS[ending], 100, None)
    assert info["columns"] == [{"name": "id", "type": "int64"}, {"name": "text", "type": "string"}]
    assert [one["records"] for one in info["per_file"]] == [40, 60]
    assert f'"text":"{41:020}"' in succeed("show", folder, "41").replace(" ", "")
    assert len(document("show", folder, "--where", "id >= 95")) == 5
    profile = document("profile", folder, "--workers", 0)
    assert profile["records"] == 100
    checked = document("check", folder, "--workers", 0)
    assert (checked["records"], checked["findings"]) == (100, 0)
    sampled = succeed("check", folder, "--sample", "50%", "--workers", 0)
    assert f"of the {UNITS[ending]}" in sampled


def test_verbs_that_prepare(folder: Path, tmp_path: Path) -> None:
    assert "no index" in succeed("index", folder)
    assert document("index", folder)["index"] is None
    assert "penstock profile" in invoke("index", folder, "--profile").stderr
    held = document("materialize", folder, "id", "--path", tmp_path / "columns")
    assert len(held["columns"]) == 1
    done = document("convert", folder, tmp_path / "out.jsonl")
    assert (done["records"], done["files_read"]) == (100, 2)
    assert penstock.open(tmp_path / "out.jsonl")[:] == penstock.open(folder)[:]


def test_verbs_that_plan_and_run(folder: Path, ending: str) -> None:
    plan = document("plan", folder, "--batch-size", 10)
    kind = "full" if ending == ".arrow" else "block"
    assert (plan["order"]["kind"], plan["steps"]) == (kind, 10)
    step = succeed("plan", folder, "--batch-size", 3, "--shuffle", "none", "--step", 1)
    assert f"{folder}/a{ending}, row 3" in step
    found = document("bench", folder, "--seconds", "0.1", "--batch-size", 16, "--workers", 0)
    assert found["fields"] == {"id": "int64?"} | {"text": "string"}


def test_units_that_cannot_be_read_and_schemas_that_differ_are_findings(
    folder: Path, ending: str
) -> None:
    write(folder / f"c{ending}", {"id": ["x"]})
    (folder / f"d{ending}").write_bytes((folder / f"a{ending}").read_bytes()[:-5])
    path = folder / f"b{ending}"
    data = bytearray(path.read_bytes())
    # Texts of the last unit, or what they are compressed to.
    at = data.find(f"{95:020}".encode())
    at = at if at > 0 else len(data) * 3 // 4
    data[at : at + 40] = b"\xff" * 40
    path.write_bytes(data)
    found = document("check", folder, "--workers", 0, code=1)
    kinds = found["kinds"]
    assert kinds["differing schema"] == 1
    assert kinds["damaged file"] >= 1
    unreadable = kinds.get(f"unreadable {UNITS[ending]}", 0) + kinds.get("malformed text", 0)
    assert unreadable + kinds["damaged file"] >= 2


@pytest.mark.parametrize("ending", [".parquet", ".orc"])
def test_a_text_that_is_not_utf_8_is_one_bad_record_for_every_verb(
    tmp_path: Path, ending: str
) -> None:
    texts = pa.array([b"fine", b"caf\xe9", b"good"]).view(pa.string())
    path, table = tmp_path / f"a{ending}", pa.table({"text": texts})
    (pq if ending == ".parquet" else orc).write_table(table, path)
    found = document("check", path, "--workers", 0, code=1)
    assert (found["records"], found["kinds"]) == (2, {"malformed text": 1})
    assert found["shown"][0]["reason"] == "row 1: field 'text' is not UTF-8"
    for verb in (("convert", path, tmp_path / "out.jsonl"), ("materialize", path, "text")):
        done = invoke(*verb)
        assert done.exit_code == 1
        assert f"{path}" in done.stderr
        assert "field 'text' holds text that is not UTF-8" in done.stderr
    assert penstock.open(path).read([0, 2], {"text": "string"}).column(0).to_pylist() == [
        "fine",
        "good",
    ]


def test_moments_of_every_table_are_converted_as_iso_texts(tmp_path: Path) -> None:
    moments = pa.array([1_704_067_200_000_000_005, None], pa.timestamp("ns"))
    table = pa.table({"at": moments})
    pq.write_table(table, tmp_path / "a.parquet")
    orc.write_table(table, tmp_path / "a.orc")
    write(tmp_path / "a.feather", table)
    for name in ("a.parquet", "a.orc", "a.feather"):
        succeed("convert", tmp_path / name, tmp_path / "out.jsonl", "--overwrite")
        written = penstock.open(tmp_path / "out.jsonl")[:]
        assert written == [{"at": "2024-01-01T00:00:00.000000005"}, {"at": None}]
