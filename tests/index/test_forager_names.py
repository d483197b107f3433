"""data-forager's code and indexes of any version: what runs and opens as it is."""

from __future__ import annotations

import gzip
import inspect
import json
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import penstock
import penstock.datasets
import penstock.index
from penstock.datasets import Dataset, JsonlDataset, SubsampledDataset, TokensDataset
from penstock.errors import CorruptIndexError, StaleIndexError
from penstock.index import (
    FileTextLinesIndexer,
    IndexStore,
    NOOPSampleGenerator,
    ProcessTextLineFunc,
    SampleData,
    SampleIndex,
    TokenizerFunc,
    create_default_jsonl_indexer,
    create_tokenize_and_index_jsonl_text_func,
    noop_sample_processing,
)
from tests.index.test_forager import forager

RECORDS = [{"n": number} for number in range(30)]
LINES = [json.dumps(record).encode() + b"\n" for record in RECORDS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "a.jsonl").write_bytes(b"".join(LINES[:20]))
    (tmp_path / "data" / "sub" / "b.jsonl").write_bytes(b"".join(LINES[20:]))
    return tmp_path / "data"


def index_as_given(folder: Path, names: list[str], paths: list[Path]) -> None:
    """Write an index as data-forager 0.1.4 does: with the paths that it was given."""
    (folder / "index").mkdir()
    (folder / "index" / "file_location.txt").write_text("".join(f"{name}\n" for name in names))
    rows = [
        (number, match.start(), match.end() - match.start())
        for number, path in enumerate(paths)
        for match in re.finditer(rb".*\n", path.read_bytes())
    ]
    np.array(rows, "<u8").tofile(folder / "index" / "sample_locations.bin")


@pytest.mark.parametrize("given", ["{folder}", "data", "./data", "../{above}/data"])
def test_an_index_with_paths_as_given_opens_where_they_lead_below_the_base(
    given: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    base = given.format(folder=folder, above=folder.parent.name)
    files = [Path(base) / "a.jsonl", Path(base) / "sub" / "b.jsonl"]
    index_as_given(folder, [f"{base}/a.jsonl", f"{base}/sub/b.jsonl"], files)
    for opened in (
        JsonlDataset.create_from_index_on_filesystem(base),
        JsonlDataset(IndexStore(folder).load()),
        penstock.open(folder),
    ):
        assert list(opened) == RECORDS
        assert opened.files == [str(folder / "a.jsonl"), str(folder / "sub" / "b.jsonl")]
        assert list(pickle.loads(pickle.dumps(opened))) == RECORDS


def test_an_index_whose_paths_lead_elsewhere_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(LINES[0])
    for name in (str(outside), "../outside.jsonl", f"{folder}/../outside.jsonl"):
        index_as_given(folder, [name], [outside])
        with pytest.raises(CorruptIndexError, match="does not lie below"):
            JsonlDataset.create_from_index_on_filesystem(folder)
        IndexStore(folder).clear()
    index_as_given(folder, ["data/a.jsonl"], [folder / "a.jsonl"])
    monkeypatch.chdir(folder / "sub")
    with pytest.raises(StaleIndexError, match=r"before 0\.1\.6 that names paths from another"):
        JsonlDataset.create_from_index_on_filesystem(folder)


def test_a_relative_path_below_the_base_wins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = folder / "data"
    inner.mkdir()
    (inner / "a.jsonl").write_bytes(LINES[7])
    index_as_given(folder, ["data/a.jsonl"], [inner / "a.jsonl"])
    monkeypatch.chdir(folder.parent)
    assert list(JsonlDataset.create_from_index_on_filesystem(folder)) == [RECORDS[7]]


def test_an_index_of_penstock_names_no_paths_as_given(folder: Path) -> None:
    create_default_jsonl_indexer(folder)()
    for path in (folder / "index" / "meta.json", folder / "index" / "file_location.txt"):
        path.write_text(path.read_text().replace("a.jsonl", f"{folder}/a.jsonl"))
    with pytest.raises(CorruptIndexError, match="does not lie below"):
        IndexStore(folder).load()


class CountingStore(IndexStore):
    """A store of somebody else: it sees every sample."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.calls: list[str] = []
        self.added: list[tuple[str, int, int]] = []

    def init_store(self) -> None:
        self.calls.append("init_store")
        super().init_store()

    def add_sample(self, file_location: str, byte_offset: int, num_bytes: int) -> None:
        self.added.append((file_location, byte_offset, num_bytes))
        super().add_sample(file_location, byte_offset, num_bytes)

    def close(self) -> None:
        self.calls.append("close")
        super().close()


@pytest.mark.parametrize("generator", [None, NOOPSampleGenerator()], ids=["default", "noop"])
def test_a_subclass_of_the_index_store_is_called(generator: Any, folder: Path) -> None:
    store = CountingStore(folder)
    paths = [str(folder / "a.jsonl"), str(folder / "sub" / "b.jsonl")]
    FileTextLinesIndexer(paths, store, generator)()
    assert store.calls == ["init_store", "close"]
    ends = np.cumsum([0, *map(len, LINES[:20])]).tolist()
    expected = [(paths[0], at, len(line)) for at, line in zip(ends, LINES[:20], strict=False)]
    assert store.added[:20] == expected
    assert list(JsonlDataset(store.load())) == RECORDS


class Marked:
    """A generator whose samples are the lines themselves, as NOOPSampleGenerator's are."""

    def prepare(self, text_file_path: str) -> None:
        self.path = text_file_path

    def create_samples(self, text_line: bytes) -> list[SampleData]:
        return noop_sample_processing(text_line, self.path) if text_line.strip() else []

    def finish(self, is_last_file: bool) -> None:  # noqa: FBT001
        self.last = is_last_file


class Derived(NOOPSampleGenerator):
    pass


@pytest.mark.parametrize("generator", [Marked, Derived, NOOPSampleGenerator, None])
@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("a.jsonl", bytes),
        ("a.jsonl.zst", zstandard.ZstdCompressor().compress),
        ("a.jsonl.gz", gzip.compress),
    ],
)
def test_lines_behind_a_byte_order_mark_are_found_where_they_lie(
    generator: Any, name: str, packed: Any, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(packed("\ufeff".encode() + b"".join(LINES)))
    made = None if generator is None else generator()
    FileTextLinesIndexer([str(tmp_path / name)], IndexStore(tmp_path), made)()
    rows = IndexStore(tmp_path).load().sample_locations
    assert rows[:, 1].tolist() == [3, *(3 + np.cumsum(list(map(len, LINES[:-1])))).tolist()]
    if name == "a.jsonl":
        assert list(JsonlDataset.create_from_index_on_filesystem(tmp_path)) == RECORDS


def test_arguments_stand_in_the_seeds_order(folder: Path) -> None:
    parameters = inspect.signature(create_tokenize_and_index_jsonl_text_func).parameters.values()
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert by_position == [
        "tokenizer_func", "eos_idx", "input_base_path", "input_file_paths", "output_base_path",
        "index_store", "process_text_line_func", "logger", "name",
    ]  # fmt: skip
    encode: TokenizerFunc = lambda text: list(text.encode())  # noqa: E731
    text_of: ProcessTextLineFunc = bytes.decode
    output = folder.parent / "out"
    arguments = (encode, 0, folder, None, output, None, text_of, None, "name")
    create_tokenize_and_index_jsonl_text_func(*arguments, sample_size=8, progress=False)()
    tokens = TokensDataset.create_from_index_on_filesystem(output)
    assert bytes(tokens[0].tolist()) == LINES[0][:8]


class Mixin:
    def __init__(self, *, scale: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale


class Scaled(Dataset, Mixin):
    """A subclass of somebody else, with a constructor as the seed's classes have it."""

    def __init__(self, sample_index: SampleIndex, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(sample_index, name=name, **kwargs)

    def _process_sample(self, sample_bytes: bytes) -> int:
        return int(json.loads(sample_bytes)["n"]) * self.scale


def test_constructors_pass_keywords_on_as_the_seeds_do(folder: Path) -> None:
    create_default_jsonl_indexer(folder)()
    dataset = Scaled.create_from_index_on_filesystem(str(folder), name="x", scale=3)
    assert [dataset[1], *dataset[2:4]] == [3, 6, 9]
    assert pickle.loads(pickle.dumps(dataset))[5] == 15
    index = IndexStore(folder).load()
    for made in (Dataset, JsonlDataset, TokensDataset):
        with pytest.raises(TypeError):
            made(index, unknown=1)  # type: ignore[abstract]


def test_the_page_picks_the_seeds_subsample(folder: Path) -> None:
    create_default_jsonl_indexer(folder)()
    dataset = penstock.open(folder)
    seed, factor = 7, 0.4
    size = int(factor * len(dataset))
    chosen = np.random.default_rng(seed).choice(len(dataset), size, replace=False)
    program = (
        "import json; from data_forager.datasets.common import SubsampledDataset as S;"
        f"print(json.dumps([S(range(30), {factor}, {seed})[i] for i in range({size})]))"
    )
    environment = {"PYBASE_SUPPRESS_LEGACY_WARNINGS": "1", "PATH": "/usr/bin"}
    call = [sys.executable, "-c", program]
    theirs = json.loads(subprocess.check_output(call, text=True, timeout=60, env=environment))
    assert [record["n"] for record in dataset.take(np.sort(chosen))] == theirs
    ours = SubsampledDataset(dataset, factor, seed=seed)
    assert len(ours) == len(theirs)
    assert [record["n"] for record in ours] != theirs


def test_every_name_of_the_page_is_there() -> None:
    page = Path(__file__).parents[2] / "docs" / "coming-from-data-forager.md"
    ours, rooms = 0, iter((penstock.index, penstock.datasets))
    for line in page.read_text().splitlines():
        if line.startswith("| data-forager | name |"):
            room = next(rooms)
        elif re.match(r"\| `(indexers|sample_|index_|datasets)", line):
            for name in re.findall(r"`(\w+)`", line.split("|")[2]):
                assert hasattr(room, name), name
                assert name in room.__all__
                ours += 1
    assert ours > 25


def test_an_index_of_the_installed_data_forager_opens(folder: Path) -> None:
    forager("index", folder)
    order = random.Random(1).sample(range(30), 30)
    dataset = JsonlDataset.create_from_index_on_filesystem(folder)
    assert [dataset[number] for number in order] == [RECORDS[number] for number in order]
