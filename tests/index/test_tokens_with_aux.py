"""Samples of tokens and further arrays, as data-forager 0.2.0 makes and reads them."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.datasets import TokensDataset, TokensWithAuxDataset
from penstock.errors import CorruptIndexError, OptionError
from penstock.index import (
    ArraySpec,
    AuxDataGenerator,
    IndexStore,
    LossMaskGenerator,
    Part,
    ProcessPartsFunc,
    SampleIndex,
    SampleSchema,
    TokenizedSampleWithAuxGenerator,
    create_tokenize_and_index_with_aux_func,
)
from tests.cli.commands import succeed
from tests.index.tokenize_samples import EOS, letters

if TYPE_CHECKING:
    from tests.servers.s3_server import S3Server

ROOT = Path(__file__).parents[2]
TYPES = ["system", "prompt", "thinking", "response", "text"]
SIZE = 8


def documents(count: int, seed: int) -> list[list[dict[str, str]]]:
    rng = np.random.default_rng(seed)
    return [
        [
            {"type": TYPES[kind], "text": "abcdefghij"[: rng.integers(0, 10)]}
            for kind in rng.integers(0, len(TYPES), rng.integers(0, 4))
        ]
        for _ in range(count)
    ]


FILES = {"a2.jsonl": documents(20, 1), "A10.jsonl": documents(3, 2), "sub/c.jsonl": documents(9, 3)}
ALL = [*FILES["a2.jsonl"], *FILES["A10.jsonl"], *FILES["sub/c.jsonl"]]


def expected(texts: list[list[dict[str, str]]] = ALL) -> tuple[list[int], list[int]]:
    tokens: list[int] = []
    mask: list[int] = []
    for document in texts:
        for part in document:
            tokens += letters(part["text"])
            mask += [int(part["type"] in {"system", "prompt"})] * len(letters(part["text"]))
        tokens, mask = [*tokens, EOS], [*mask, 0]
    whole = len(tokens) // SIZE * SIZE
    return tokens[:whole], mask[:whole]


def parts_of(line: bytes) -> list[Part]:
    return [Part(**part) for part in json.loads(line)["parts"]]


def write(folder: Path) -> Path:
    for name, texts in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps({"parts": document}) + "\n" for document in texts)
        (folder / name).write_text("".join(lines))
    return folder


def made(folder: Path, **options: Any) -> Path:
    options = {"sample_size": SIZE} | options
    masks: dict[str, AuxDataGenerator] = {"loss_mask": LossMaskGenerator()}
    create_tokenize_and_index_with_aux_func(
        parts_of, letters, EOS, masks, write(folder), **options
    )()
    return folder


def forager(*arguments: object) -> str:
    program = [sys.executable, "-m", "tests.index.aux_forager", *map(str, arguments)]
    return subprocess.run(
        program, check=True, capture_output=True, text=True, timeout=60, cwd=ROOT
    ).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("ours"))


def test_both_make_the_same_files_and_read_each_others(folder: Path, tmp_path: Path) -> None:
    forager("tokenize", write(tmp_path), SIZE)
    for path in sorted(path for path in tmp_path.rglob("*") if path.is_file()):
        assert (folder / path.relative_to(tmp_path)).read_bytes() == path.read_bytes(), path.name
    tokens, mask = expected()
    there = json.loads(forager("read", folder))
    assert [token for sample in there for token in sample["tokens"]] == tokens
    assert [value for sample in there for value in sample["loss_mask"]] == mask
    for opened in (
        TokensWithAuxDataset.create_from_index_on_filesystem(tmp_path),
        penstock.open(tmp_path),
    ):
        assert isinstance(opened, TokensWithAuxDataset)
        assert [{name: a.tolist() for name, a in sample.items()} for sample in opened] == there


def test_a_sample_is_a_dict_of_arrays(folder: Path) -> None:
    tokens, mask = expected()
    dataset = penstock.open(folder)
    assert len(dataset) == len(tokens) // SIZE
    for sample in (dataset[1], pickle.loads(pickle.dumps(dataset))[1], dataset[1:2][0]):
        assert (sample["tokens"].dtype, sample["loss_mask"].dtype) == (np.uint32, np.uint8)
        assert sample["tokens"].tolist() == tokens[SIZE : 2 * SIZE]
        assert sample["loss_mask"].tolist() == mask[SIZE : 2 * SIZE]
        sample["tokens"][:] = 0  # A copy: the next read is not changed.
    batch = dataset.read([2, 0], {"loss_mask": "list<int64>"})
    assert batch.to_pydict() == {"loss_mask": [mask[2 * SIZE : 3 * SIZE], mask[:SIZE]]}
    assert dataset.schema.names == ["tokens", "loss_mask"]


@pytest.mark.parametrize("workers", [0, 2])
def test_arrays_are_fields_of_a_loader(workers: int, folder: Path) -> None:
    tokens, mask = expected()
    fields = {"tokens": f"int64[{SIZE}]", "loss_mask": f"uint8[{SIZE}]"}
    loader = penstock.DataLoader(
        penstock.open(folder), fields, batch_size=4, num_workers=workers, materialize=False
    )
    batches = list(loader)
    assert torch.cat([batch["tokens"] for batch in batches]).ravel().tolist() == tokens
    assert torch.cat([batch["loss_mask"] for batch in batches]).ravel().tolist() == mask
    plain = list(penstock.DataLoader(penstock.open(folder), batch_size=4, num_workers=workers))
    assert [t for batch in plain for sample in batch for t in sample["tokens"].tolist()] == tokens


def test_samples_lie_in_object_storage(folder: Path, s3_server: S3Server, bucket: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            s3_server.put(bucket, f"d/{path.relative_to(folder)}", path.read_bytes())
    options = s3_server.storage_options
    dataset = penstock.open(f"s3://{bucket}/d", storage_options=options)
    assert [t for sample in dataset for t in sample["tokens"].tolist()] == expected()[0]


def test_the_command_line_knows_them(folder: Path) -> None:
    samples = len(expected()[0]) // SIZE
    about = succeed("info", folder)
    assert f"{samples}" in about
    assert "days" not in about
    assert "nothing wrong" in succeed("check", folder)
    assert '"loss_mask"' in succeed("show", folder, "0")
    assert '"tokens"' not in succeed("show", folder, "0", "--fields", "loss_mask")
    assert '"loss_mask"' in succeed("show", folder, "0", "--json")


def test_tokens_alone_are_not_made_of_them(folder: Path) -> None:
    with pytest.raises(CorruptIndexError, match="TokensWithAuxDataset"):
        TokensDataset.create_from_index_on_filesystem(folder)
    index = SampleIndex(["a.bin"], np.zeros((1, 3), np.uint64), None)
    with pytest.raises(ValueError, match="sample_schema"):
        TokensWithAuxDataset(sample_index=index)


def test_a_store_keeps_a_schema(tmp_path: Path) -> None:
    schema = SampleSchema(2, [ArraySpec("tokens", "uint16", 0), ArraySpec("weight", "float32", 4)])
    assert schema.total_bytes_per_sample == 12
    (tmp_path / "a.bin").write_bytes(bytes(24))
    store = IndexStore(tmp_path)
    store.init_store()
    store.set_sample_schema(schema)
    for at in (0, 12):
        store.add_sample(str(tmp_path / "a.bin"), at, 12)
    store.close()
    index = store.load()
    assert index.sample_schema == schema
    assert pickle.loads(pickle.dumps(index)).sample_schema == schema
    bare = SampleIndex(index.file_locations, index.sample_locations, schema)
    assert pickle.loads(pickle.dumps(bare)).sample_schema == schema
    assert TokensWithAuxDataset(bare)[1]["weight"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sample_size", 0),
        ("sample_size", 1 << 40),
        ("sample_size", "8"),
        ("arrays", []),
        ("arrays", [{"name": "tokens", "dtype": "O", "offset": 0}]),
        ("arrays", [{"name": "tokens", "dtype": "({[", "offset": 0}]),
        ("arrays", [{"name": "tokens", "dtype": "uint32", "offset": -4}]),
        ("arrays", [{"name": "tokens", "dtype": "uint32", "offset": 12}]),
        ("arrays", [{"name": "t", "dtype": "uint8", "offset": 0}] * 2),
        ("arrays", [{"name": "tokens", "dtype": "float128", "offset": 0}]),
        ("total_bytes_per_sample", 1 << 62),
        ("total_bytes_per_sample", 3),
    ],
)
def test_a_forged_schema_is_an_error(key: str, value: object, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "index" / "sample_schema.json"
    forged = json.loads(path.read_text()) | {key: value}
    for schema in (forged, forged | {"total_bytes_per_sample": None}):
        if schema is forged or key == "arrays":
            path.write_text(json.dumps(schema))
            with pytest.raises(CorruptIndexError, match=r"sample_schema\.json"):
                penstock.open(tmp_path)


def test_a_schema_of_other_sizes_is_found_when_read(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "index" / "sample_schema.json"
    path.write_text(path.read_text().replace("40", "48"))
    with pytest.raises(CorruptIndexError, match="has 40 bytes, and sample_schema"):
        penstock.open(tmp_path)[0]


class Short(LossMaskGenerator):
    def generate(self, *_: object, **__: object) -> list[int]:
        return [1]


def test_what_cannot_be_an_array_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    parse: ProcessPartsFunc = parts_of
    for names in ({}, {"tokens": LossMaskGenerator()}):
        with pytest.raises(OptionError, match="aux_generators"):
            TokenizedSampleWithAuxGenerator(parse, letters, EOS, names)
    with pytest.raises(OptionError, match="made 1 values for a part of"):
        create_tokenize_and_index_with_aux_func(
            parse, letters, EOS, {"short": Short()}, tmp_path, sample_size=SIZE
        )()
    assert not (tmp_path / "index").exists()
    with pytest.raises(ValueError, match="input_base_path"):
        create_tokenize_and_index_with_aux_func(parse, letters, EOS, {"mask": Short()})


@given(st.integers(1, 50), st.lists(st.sampled_from(["uint8", "int16", "float64"]), max_size=4))
def test_a_row_has_the_bytes_of_its_arrays(size: int, types: list[str]) -> None:
    arrays, at = [ArraySpec("tokens", "uint32", 0)], 4 * size
    for number, type_ in enumerate(types):
        arrays.append(ArraySpec(f"a{number}", type_, at))
        at += size * np.dtype(type_).itemsize
    schema = SampleSchema(size, arrays)
    assert schema.total_bytes_per_sample == schema.row().itemsize == at
    assert schema.row()["tokens"].shape == (size,)
