"""Sources in the places where people have files: servers, hubs, archives, links, home folders."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import zipfile
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock import DataLoader
from penstock.errors import (
    CorruptIndexError,
    ObjectNotFoundError,
    OptionError,
    StaleIndexError,
    StoragePermissionError,
)
from penstock.index import (
    IndexStore,
    create_default_jsonl_indexer,
    create_tokenize_and_index_jsonl_text_func,
)
from penstock.jsonl import JsonlDir, JsonlFile
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.http_files import HttpFiles

RECORDS = [{"id": n, "text": "x" * (n % 50)} for n in range(2000)]
LINES = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(RECORDS), sink, row_group_size=500)
    return bytes(sink.getvalue())


FILES = {
    "a.jsonl": LINES,
    "a.json.gz": gzip.compress(LINES),
    "a.csv": b"id,text\n" + b"".join(f"{r['id']},{r['text']}\n".encode() for r in RECORDS),
    "a.parquet": parquet(),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("query", ["", "?sig=a%2Fb&download=1"])
def test_every_format_is_read_over_http(web: HttpFiles, name: str, query: str) -> None:
    source = penstock.open(f"{web.put(f'/some/{name}', FILES[name])}{query}")
    assert source.files == [f"{web.url}/some/{name}{query}"]
    ids = [7, 1999, 0, 512]
    assert [record["id"] for record in source[ids]] == ids
    assert source.read(ids, {"id": "int64"}).column("id").to_pylist() == ids
    assert {one.target for one in web.asked} == {f"/some/{name}{query}"}


def test_a_list_of_urls_is_one_source(web: HttpFiles) -> None:
    urls = [web.put(f"/{n}.jsonl", LINES[: 30 * n].rpartition(b"\n")[0]) for n in range(2, 8)]
    source = penstock.open(urls)
    assert source.files == urls
    assert len(source) == sum(len(penstock.open(url)) for url in urls)
    with pytest.raises(OptionError, match="on one server"):
        penstock.open([urls[0], urls[1].replace("127.0.0.1", "localhost")])


@pytest.mark.parametrize("path", ["/data", "/data/", "/data/*.jsonl"])
def test_what_http_cannot_list_is_refused(web: HttpFiles, path: str) -> None:
    web.put("/data/a.jsonl", LINES)
    with pytest.raises(ObjectNotFoundError, match="Give the URLs of the files, as a list"):
        penstock.open(f"{web.url}{path}")
    with pytest.raises(ObjectNotFoundError, match="Give the URLs"):
        list(JsonlDir(f"{web.url}/data").iter_records_sync())


def test_opening_again_costs_one_head(web: HttpFiles, own_cache: Path) -> None:
    url = web.put("/a.jsonl", LINES)
    first = penstock.open(url)
    assert len([*(own_cache / "indexes").iterdir()]) == 1
    web.asked.clear()
    again = penstock.open(url)
    assert again.fingerprint == first.fingerprint
    assert [one.method for one in web.asked] == ["HEAD"]
    other = penstock.open(f"{url}?version=2")
    assert other[5] == RECORDS[5]
    assert len([*(own_cache / "indexes").iterdir()]) == 2


@pytest.mark.parametrize("tells", ["tag", "time", "nothing"])
def test_other_content_is_noticed(web: HttpFiles, tells: str) -> None:
    web.tag, web.has_times = ('"{}"' if tells == "tag" else ""), tells == "time"
    url = web.put("/a.jsonl", b'{"a":1}\n' * 10)
    before = penstock.open(url)
    loaded = [batch[0] for batch in DataLoader(before, batch_size=10, num_workers=0)]
    assert loaded == [{"a": 1}]
    web.put(url, b'{"a":2}\n' * 10)
    web.times["/a.jsonl"] += 2
    after = penstock.open(url)  # Its index is its own, and is made anew.
    assert after.fingerprint != before.fingerprint
    (batch,) = DataLoader(after, batch_size=10, num_workers=0)
    assert batch == [{"a": 2}] * 10  # Not the blocks that are kept of the old content.
    web.put(url, b'{"a":3}\n' * 11)
    with pytest.raises(StaleIndexError):
        penstock.open(url, refresh="never")


def test_nothing_is_written_to_a_place_that_is_only_read(web: HttpFiles, tmp_path: Path) -> None:
    url = web.put("/a.jsonl", LINES)
    source = penstock.open(url)
    (tmp_path / "a.jsonl").write_bytes(LINES)
    tokenise = create_tokenize_and_index_jsonl_text_func
    for place in (web.url, "hf://datasets/a/b", "memory://d"):
        writes: list[Any] = [
            lambda place=place: penstock.writer(f"{place}/new.jsonl"),
            lambda place=place: penstock.writer(f"{place}/new"),
            lambda place=place: JsonlFile(f"{place}/new.jsonl").open_sync("wb"),
            lambda place=place: JsonlFile.from_local_sync(tmp_path / "a.jsonl", f"{place}/b.jsonl"),
            lambda place=place: source.materialize({"id": "int64"}, path=f"{place}/columns"),
            lambda place=place: create_default_jsonl_indexer(tmp_path, index=f"{place}/index")(),
            lambda place=place: tokenise(
                list, 0, input_base_path=tmp_path, output_base_path=f"{place}/tokens"
            )(),
        ]
        for write in writes:
            with pytest.raises(StoragePermissionError, match=r"cannot write .* read-only place"):
                write()
    assert {one.method for one in web.asked} <= {"GET", "HEAD"}


def test_an_index_on_purpose_goes_to_the_cache_where_its_place_is_only_read(
    tmp_path: Path, own_cache: Path
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.jsonl").write_bytes(LINES)
    url = f"local://{tmp_path}/d"
    create_default_jsonl_indexer(url)()
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["a.jsonl"]
    assert len([*(own_cache / "indexes").iterdir()]) == 1
    source = penstock.open(url)
    assert (source[3], source.files) == (RECORDS[3], [f"{url}/a.jsonl"])
    with (tmp_path / "d" / "a.jsonl").open("ab") as file:
        file.write(LINES)
    with pytest.raises(StaleIndexError):
        penstock.open(url)
    # An index that came with the data is read where it lies; what is new goes to the cache.
    create_default_jsonl_indexer(tmp_path / "d")()
    (own_cache / "indexes").rename(own_cache / "away")
    assert len(penstock.open(url)) == 4000
    (tmp_path / "d" / "b.jsonl").write_bytes(LINES)
    assert len(penstock.open(url, refresh="update")) == 6000
    assert len(penstock.open(tmp_path / "d", refresh="never")) == 4000


@pytest.mark.parametrize("url", ["zip://", "zip://*.jsonl", "zip://**/*.jsonl", "zip://a.jsonl"])
def test_records_of_an_archive(tmp_path: Path, url: str) -> None:
    with zipfile.ZipFile(tmp_path / "data.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", LINES)
    options = {"fo": str(tmp_path / "data.zip")}
    source = penstock.open(url, storage_options=options)
    assert source[[1999, 3]] == [RECORDS[1999], RECORDS[3]]
    assert penstock.open(source.files[0], storage_options=options)[7] == RECORDS[7]


def place_of(kind: str, web: HttpFiles, folder: Path) -> str:
    (folder / "a.jsonl").write_bytes(LINES)
    return web.put("/a.jsonl", LINES) if kind == "http" else f"local://{folder}/a.jsonl"


@pytest.mark.parametrize("method", rounds(["forkserver"], ["forkserver", "spawn"]))
def test_workers_read_the_same_and_a_resume_goes_on(
    web: HttpFiles, tmp_path: Path, method: str
) -> None:
    def seen(loader: DataLoader, count: int | None = None) -> list[tuple[list[int], list[int]]]:
        return [(b.ids.tolist(), b["id"].tolist()) for b in itertools.islice(loader, count)]

    make = partial(DataLoader, encode={"id": "int64"}, batch_size=64, shuffle="block", seed=3)
    (tmp_path / "a.jsonl").write_bytes(LINES)
    expected = seen(make(tmp_path / "a.jsonl", materialize=False))
    for kind in ("http", "fsspec"):
        source = penstock.open(place_of(kind, web, tmp_path))
        loader = make(source, num_workers=1, multiprocessing_context=method)
        begun = seen(loader, 10)
        resumed = make(source, num_workers=0)
        resumed.load_state_dict(loader.state_dict())
        assert begun + seen(resumed) == expected


@pytest.mark.parametrize("kind", ["http", "fsspec"])
def test_a_block_is_fetched_once_for_a_host(web: HttpFiles, tmp_path: Path, kind: str) -> None:
    url = place_of(kind, web, tmp_path)
    source = penstock.open(url)

    def run() -> tuple[list[int], dict[str, float]]:
        loader = DataLoader(source, {"id": "int64"}, batch_size=100, shuffle=True, num_workers=0)
        return np.concatenate([batch["id"] for batch in loader]).tolist(), loader.stats()

    (first, cost), (second, again) = run(), run()
    assert first == second
    assert sorted(first) == list(range(2000))
    assert cost["storage_requests"] > 0
    assert again["storage_requests"] == 0


def test_folders_behind_links_are_read_and_nothing_is_written_through_them(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for number, folder in enumerate((data, elsewhere, elsewhere / "deep")):
        folder.mkdir()
        (folder / f"{number}.jsonl").write_text(json.dumps({"n": number}) + "\n")
    (data / "linked").symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    for what in (data, data / "**" / "*.jsonl", [data / "linked"]):
        source = penstock.open(what)
        found = [record["n"] for record in source]
        assert found == ([1, 2] if isinstance(what, list) else [0, 1, 2])
    names = (data / "index" / "file_location.txt").read_text().split()
    assert names == ["0.jsonl", "linked/1.jsonl", "linked/deep/2.jsonl"]
    penstock.open(data).materialize({"n": "int64"}, progress=False)
    assert [file.name for file in JsonlDir(data).walk_sync()] == ["0.jsonl", "1.jsonl", "2.jsonl"]
    assert sorted(path for path in elsewhere.rglob("*") if "index" not in path.parts) == before


def test_a_link_that_leads_to_other_records_makes_an_index_stale(tmp_path: Path) -> None:
    for name, value in (("data", 0), ("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text(json.dumps({"n": value}) + "\n")
        os.utime(tmp_path / name / "a.jsonl", (0, 0))
    link = tmp_path / "data" / "linked"
    link.symlink_to(tmp_path / "one")
    source = penstock.open(tmp_path / "data")
    assert [record["n"] for record in source] == [0, 1]
    link.unlink()
    link.symlink_to(tmp_path / "two")
    with pytest.raises(StaleIndexError, match=r"linked/a\.jsonl"):
        penstock.open(tmp_path / "data", refresh="never")
    changed = penstock.open(tmp_path / "data")
    assert [record["n"] for record in changed] == [0, 2]
    assert changed.fingerprint != source.fingerprint


def test_an_index_of_others_still_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "data").mkdir()
    for name in ("data", "secret"):
        (tmp_path / name / "a.jsonl").write_text("{}\n")
    penstock.open(tmp_path / "data")
    for path in ("../secret/a.jsonl", "/etc/passwd", "http://host/a.jsonl", "~/a.jsonl"):
        (tmp_path / "data" / "index" / "file_location.txt").write_text(f"{path}\n")
        with pytest.raises((CorruptIndexError, StaleIndexError, ObjectNotFoundError)):
            print(penstock.open(tmp_path / "data", refresh="never")[0])


def test_a_tilde_is_a_home_folder_wherever_a_path_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(elsewhere)
    with penstock.writer("~/data/a.jsonl") as sink:
        sink.write(RECORDS)
    with JsonlDir("~/shards").writer_sync() as writer:
        writer.write_many(RECORDS[:3])
    assert JsonlFile("~/data/a.jsonl").path == f"{home}/data/a.jsonl"
    assert JsonlDir("~/shards").download_sync("~/copy") == f"{home}/copy"
    assert JsonlFile.from_local_sync("~/data/a.jsonl", "~/b.jsonl").size_sync() > 50_000
    assert len(penstock.open("~/data", index="~/index")) == 2000
    assert (home / "index" / "meta.json").exists()
    assert len(penstock.open(["~/b.jsonl", "~/shards/part-00000.jsonl"])) == 2003
    assert len(penstock.open("~/**/*.jsonl")) == 2 * 2000 + 2 * 3
    source = penstock.open("~/b.jsonl")
    source.materialize({"id": "int64"}, path="~/columns", progress=False)
    assert (home / "columns").exists()
    create_default_jsonl_indexer("~/shards")()
    assert len(IndexStore("~/shards").load()) == 3
    (home / "skipped").write_text("0:1990\n")
    assert len([*DataLoader(source, batch_size=5, skip="~/skipped", num_workers=0)]) == 2
    run = create_tokenize_and_index_jsonl_text_func(
        lambda text: [len(text)], 0, input_base_path="~/shards", output_base_path="~/tokens"
    )
    run()
    assert len(penstock.open("~/tokens")) == 3
    assert not [*elsewhere.iterdir()]


def test_the_place_of_blocks_may_be_in_a_home_folder(
    web: HttpFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    url = web.put("/a.jsonl", LINES)
    source = penstock.open(url, storage_options={"cache_dir": "~/blocks"})
    next(iter(DataLoader(source, batch_size=10, shuffle=True, num_workers=0)))
    assert [*(tmp_path / "blocks").glob("*.block")]
