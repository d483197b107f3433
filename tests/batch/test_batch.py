from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from penstock.batch import Batch, Masked, user_batch
from penstock.errors import OptionError
from tests.batch.encoder_contract import plain
from tests.batch.sample_batch import same, sample, tensors


def test_it_is_a_mapping_whose_length_is_its_rows() -> None:
    batch = sample()
    assert isinstance(batch, Mapping)
    assert len(batch) == 2
    assert list(batch) == list(batch.keys()) == list(dict(batch))
    assert len(batch.keys()) == len(batch.values()) == len(batch.items()) == len(dict(batch)) == 8
    assert batch["x"] is dict(batch)["x"]
    assert "x" in batch
    assert "y" not in batch
    assert batch.get("y") is None


def test_a_field_that_is_not_there_is_named_beside_those_that_are() -> None:
    with pytest.raises(KeyError, match="no field 'y' in this batch; there are: 'x', 'vector'"):
        _ = sample()["y"]


def test_it_can_be_made_of_a_mapping_alone() -> None:
    batch = sample()
    again = type(batch)({name: value for name, value in batch.items()})  # noqa: C416 (as others do)
    assert len(again) == 2
    assert again.ids is again.valid is None
    assert len(Batch({})) == 0


def test_ids_may_come_as_arrays() -> None:
    ids, valid = np.array([3, 1]), np.array([True, False])
    batch = Batch({}, ids=ids, valid=valid)
    assert len(batch) == 2
    assert batch.ids is not None
    assert batch.ids.tolist() == [3, 1]
    assert batch.valid is not None
    assert batch.valid.dtype == torch.bool


@pytest.mark.parametrize("device", ["meta", torch.device("meta")], ids=["text", "device"])
def test_every_tensor_moves_to_the_device(device: Any) -> None:
    batch = sample()
    moved = batch.to(device, non_blocking=True)
    assert len(tensors(moved)) == len(tensors(batch)) == 14
    assert {t.device.type for t in tensors(moved)} == {"meta"}
    assert {t.device.type for t in tensors(batch)} == {"cpu"}
    assert moved["tags"].lengths.device.type == "meta"
    assert moved["country"].vocabulary is batch["country"].vocabulary
    assert moved["name"] == ["a", None]
    assert plain(batch.to("cpu")) == plain(batch.to(None)) == plain(batch)


class Noted(Batch):
    def __init__(self, fields: Mapping[str, Any], note: str) -> None:
        super().__init__(fields)
        self.note = note


def test_one_of_a_subclass_stays_what_it_is() -> None:
    batch = Noted({"x": torch.ones(2)}, "mine")
    for other in (batch.to("meta"), copy.copy(batch), pickle.loads(pickle.dumps(batch))):
        assert type(other) is Noted
        assert other.note == "mine"
        assert other is not batch
    assert batch["x"].device.type == "cpu"


def test_types_are_not_changed_by_moving() -> None:
    with pytest.raises(OptionError, match="keeps its types"):
        sample().to(torch.float16)  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_it_is_pinned_copied_and_kept_for_a_stream() -> None:
    batch = sample()
    pinned = batch.pin_memory()
    assert all(t.is_pinned() for t in tensors(pinned))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        moved = pinned.to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(stream)
    moved.record_stream(torch.cuda.current_stream())
    assert {t.device.type for t in tensors(moved)} == {"cuda"}
    assert plain(moved) == plain(batch)
    assert moved["tags"].to_padded().tolist() == [[7, 8], [0, 0]]
    assert pa.table(moved).to_pydict() == pa.table(batch).to_pydict()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_pinning_says_what_torch_says() -> None:
    with pytest.raises(RuntimeError, match="accelerator"):
        sample().pin_memory()


def test_copies_are_the_same() -> None:
    batch = sample()
    assert same(pickle.loads(pickle.dumps(batch)))
    deep = copy.deepcopy(batch)
    assert same(deep)
    deep["x"][0] = 9
    assert same(batch)
    assert same(copy.copy(batch))


def send_back(batch: Batch, connection: Any) -> None:
    connection.send((same(batch), batch["x"].sum().item()))


def test_it_travels_to_a_spawned_process() -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=send_back, args=(sample(), there))
    process.start()
    assert here.poll(60)
    assert here.recv() == (True, 2.0)
    process.join(30)
    assert process.exitcode == 0


def test_it_shows_rows_and_fields() -> None:
    assert repr(sample()) == (
        "Batch of 2 rows, 1 of them valid: x float32[2], vector int64[2, 3], tags Jagged int64, "
        "pages Jagged Jagged int64, age Masked int64[2], recent Padded int64[2, 2], "
        "country Categories of 1, name list"
    )
    assert repr(Batch({})) == "Batch of 0 rows, no fields"


ROWS = [
    {
        "x": 0.5,
        "vector": [1, 2, 3],
        "tags": [7, 8],
        "pages": [],
        "age": 3,
        "recent": [1],
        "country": None,
        "name": "a",
    },
    {
        "x": 1.5,
        "vector": [4, 5, 6],
        "tags": [],
        "pages": [[1], [2]],
        "age": None,
        "recent": [2, 3],
        "country": "de",
        "name": None,
    },
]


def test_arrow_polars_and_duckdb_take_it_as_it_is() -> None:
    import duckdb
    import polars as pl

    batch = sample()
    assert pa.table(batch).to_pylist() == ROWS
    structs = pl.from_arrow(batch)
    assert isinstance(structs, pl.Series)
    assert structs.to_list() == ROWS
    relation = duckdb.from_arrow(pa.RecordBatchReader.from_stream(batch))
    assert relation.aggregate("sum(x)").fetchall() == [(2.0,)]


def test_arrow_takes_every_type_of_number() -> None:
    fields = {
        "half": torch.tensor([0.5], dtype=torch.float16),
        "brain": torch.tensor([0.5], dtype=torch.bfloat16),
        "large": torch.tensor([2**63], dtype=torch.uint64),
        "flag": torch.tensor([True]),
        "graph": torch.tensor([1.0], requires_grad=True),
        "cube": torch.arange(6).reshape(1, 2, 3),
        "masked": Masked(torch.zeros(1, 2), torch.tensor([False])),
    }
    assert pa.table(Batch(fields)).to_pylist() == [
        {
            "half": 0.5,
            "brain": 0.5,
            "large": 2**63,
            "flag": True,
            "graph": 1.0,
            "cube": [[0, 1, 2], [3, 4, 5]],
            "masked": None,
        }
    ]


def test_a_padded_field_knows_which_values_are_its_own() -> None:
    assert sample()["recent"].mask.tolist() == [[True, False], [True, True]]


def test_importing_the_room_and_its_arrays_loads_no_torch() -> None:
    program = (
        "import sys; from penstock.batch import *; print('torch' in sys.modules, 'Batch' in dir())"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert shown.split() == ["False", "True"]


def test_what_torch_has_no_tensor_for_stays_an_array() -> None:
    wide = np.zeros(2, np.longdouble)
    batch = user_batch({"wide": wide, "more": Batch({"n": np.zeros(3)})}, np.arange(2), None)
    assert batch["wide"] is wide
    assert len(batch["more"]) == 3
