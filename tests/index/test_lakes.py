"""Tables of Delta Lake, Iceberg and Hudi: only their logs say which files count."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.datasets import ParquetRows
from penstock.errors import OptionError
from penstock.index import create_default_jsonl_indexer
from tests.cli.commands import invoke

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

LAKES = {
    "Delta Lake": ("year=2024/part-0.parquet", "_delta_log/00000000000000000000.json"),
    "Iceberg": (
        "data/year=2024/part-0.parquet",
        "metadata/00001-6ee9c2a9-4d7a-4b14-9c5e-943f9e0ff69d.metadata.json",
    ),
    "Hudi": ("year=2024/part-0.parquet", ".hoodie/hoodie.properties"),
}
REMEDIES = {
    "Delta Lake": r"deltalake\.DeltaTable\('{}'\)\.to_pyarrow_table\(\)",
    "Iceberg": r"penstock\.open\(table\.scan\(\)\.to_arrow\(\)\)",
    "Hudi": "as plain Parquet",
}


def write_lake(root: Path, title: str) -> Path:
    data, log = LAKES[title]
    for name in (data, log, data.replace("part-0", "part-1")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name == log:
            (root / name).write_text(json.dumps({"remove": {"path": data}}))
        else:
            pq.write_table(pa.table({"id": [1]}), root / name)
    return root


@pytest.fixture(params=LAKES)
def title(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_lake_table_is_refused_from_everywhere_with_a_remedy(title: str, tmp_path: Path) -> None:
    root = write_lake(tmp_path / "t", title)
    data, _ = LAKES[title]
    remedy = REMEDIES[title].format(re.escape(str(root)))
    file = root / data
    folders = [root, file.parent, tmp_path, root / data.split("/")[0]]
    patterns = [f"{tmp_path}/**/*.parquet", f"{root}/*/**/*.parquet", f"{file.parent}/*"]
    for what in (*folders, *patterns, file, [file, file.parent / "part-1.parquet"], [tmp_path]):
        for options in ({}, {"format": "parquet"}):
            with pytest.raises(OptionError, match=f"{root} is a table of {title}.*{remedy}"):
                penstock.open(what, **options)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=f"table of {title}"):
            ParquetRows(what)
    for verb in ("info", "show", "check", "profile"):
        done = invoke(verb, root)
        assert done.exit_code == 2
        assert f"table of {title}" in " ".join(done.stderr.split())


def test_a_lake_table_without_files_is_refused_too(title: str, tmp_path: Path) -> None:
    log = tmp_path / "t" / LAKES[title][1]
    log.parent.mkdir(parents=True)
    log.write_text("{}")
    with pytest.raises(OptionError, match=f"table of {title}"):
        penstock.open(tmp_path / "t")


def test_files_of_a_log_can_be_read_by_name(title: str, tmp_path: Path) -> None:
    root = write_lake(tmp_path / "t", title)
    log = root / LAKES[title][1]
    assert len(penstock.open(log, format="jsonl")) == 1
    assert len(penstock.open(f"{log.parent}/*", format="jsonl")) == 1


def test_other_files_around_a_lake_table_are_read(title: str, tmp_path: Path) -> None:
    write_lake(tmp_path / "all" / "t", title)
    (tmp_path / "all" / "a.jsonl").write_text("{}\n")
    assert len(penstock.open(f"{tmp_path}/all/*.jsonl")) == 1
    assert len(penstock.open(tmp_path / "all", format="jsonl", index=tmp_path / "index")) == 1
    create_default_jsonl_indexer(tmp_path / "all")()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "all" / "b.parquet")
    assert len(penstock.open(tmp_path / "all" / "b.parquet")) == 2


def test_a_folder_called_metadata_alone_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    for name in ("train.metadata.json", "2024.metadata.json", "v1.json"):
        (tmp_path / "metadata" / name).write_text("{}")
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    assert len(penstock.open(tmp_path)) == 2


@pytest.mark.s3
def test_a_lake_table_in_an_object_store_is_refused_with_one_look(
    title: str, s3_server: S3Server, bucket: str, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    root = write_lake(tmp_path / "t", title)
    for path in root.rglob("*.*"):
        if path.is_file():
            s3_server.put(bucket, f"x/t/{path.relative_to(root)}", path.read_bytes())
    options, data = fault_proxy.storage_options, LAKES[title][0]
    places = ["", "/t"]
    if title != "Hudi":  # Below its root, its log is not looked for.
        places += [f"/t/{data.rpartition('/')[0]}", f"/t/{data}", "/**/*.parquet"]
    for place in places:
        fault_proxy.clear()
        with pytest.raises(OptionError, match=f"s3://{bucket}/x/t is a table of {title}"):
            penstock.open(f"s3://{bucket}/x{place}", storage_options=options)
        assert fault_proxy.count(path="_delta_log") <= 1
        assert fault_proxy.count(path="metadata") <= 1
