"""Batches in other people's programs."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from penstock.batch import Batch, Categories, Jagged, Masked, Padded
from penstock.errors import OptionError
from tests.batch.sample_batch import same, sample, tensors
from tests.documents import fences

FRAMEWORKS = Path(__file__).parents[2] / "docs" / "frameworks.md"


def tags(rows: list[list[int]], dtype: torch.dtype = torch.int64) -> Jagged:
    values = torch.tensor([value for row in rows for value in row], dtype=dtype)
    return Jagged(values, lengths=torch.tensor([len(row) for row in rows]))


@pytest.fixture
def torchrec() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What the package warns of while it is imported.
        import torchrec

        return torchrec


def test_torchrec_gets_a_key_for_each_jagged_field(torchrec: Any) -> None:
    batch = Batch(
        {"a": tags([[1, 2], []]), "price": torch.zeros(2), "b": tags([[3], [4, 5]])},
        ids=torch.tensor([0, 1]),
    )
    found = batch.as_torchrec()
    assert isinstance(found, torchrec.KeyedJaggedTensor)
    assert found.keys() == ["a", "b"]
    assert found.stride() == 2
    assert {
        key: [row.tolist() for row in jagged.to_dense()] for key, jagged in found.to_dict().items()
    } == {
        "a": [[1, 2], []],
        "b": [[3], [4, 5]],
    }


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"x": torch.zeros(1)}, "no field of this batch is jagged"),
        ({"p": Jagged(tags([[1]]), lengths=torch.tensor([1]))}, "'p' holds lists of lists"),
        ({"a": tags([[1]]), "b": tags([[1]], torch.float32)}, "a int64, b float32"),
    ],
    ids=["none", "lists of lists", "types"],
)
@pytest.mark.usefixtures("torchrec")
def test_what_torchrec_cannot_hold_is_said(fields: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        Batch(fields).as_torchrec()


@pytest.mark.parametrize(
    ("method", "package", "extra"),
    [("as_torchrec", "torchrec", "torchrec"), ("as_tensordict", "tensordict", "lightning")],
)
def test_a_missing_package_names_the_pip_install(method: str, package: str, extra: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from penstock.batch import Batch\n"
        f"try: Batch({{}}).{method}()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert shown.startswith("MissingExtraError")
    assert f"pip install 'penstock[{extra}]'" in shown


def test_tensordict_has_the_same_fields_and_rows() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensordict
    batch = sample()
    fields = {name: value for name, value in batch.items() if name != "pages"}
    found = Batch(fields, batch.ids, batch.valid).as_tensordict()
    assert isinstance(found, tensordict.TensorDict)
    assert found.batch_size == torch.Size([2])
    assert set(found.keys()) == set(fields)
    assert found["x"] is not None
    assert found["x"].tolist() == [0.5, 1.5]
    assert [row.tolist() for row in found["tags"].unbind()] == [[7, 8], []]
    assert found["age", "mask"].tolist() == [True, False]
    assert found["recent", "lengths"].tolist() == [1, 2]
    assert found["country"].tolist() == [-1, 0]
    assert list(found["name"]) == ["a", None]
    empty = Batch({"name": [], "x": torch.zeros(0)}).as_tensordict()
    assert empty.batch_size == torch.Size([0])
    assert set(empty.keys()) == {"name", "x"}


def test_lightning_moves_it_and_finds_its_size() -> None:
    from lightning.fabric.utilities import move_data_to_device
    from lightning.pytorch.utilities.data import extract_batch_size

    batch = sample()
    moved = move_data_to_device({"inner": batch}, torch.device("meta"))["inner"]
    assert type(moved) is Batch
    assert {t.device.type for t in tensors(moved)} == {"meta"}
    assert same(move_data_to_device(batch, torch.device("cpu")))
    simple = Batch({"x": torch.zeros(3, 5), "age": Masked(torch.zeros(3), torch.ones(3).bool())})
    assert extract_batch_size(simple) == 3
    # A jagged field comes first, and its rows are not taken for the batch.
    assert extract_batch_size(Batch({"tags": tags([[1], [2, 3]]), "x": torch.zeros(2)})) == 2


def test_accelerate_moves_it() -> None:
    from accelerate.utils import send_to_device

    batch = sample()
    moved = send_to_device([batch], torch.device("meta"), non_blocking=True)[0]
    assert type(moved) is Batch
    assert {t.device.type for t in tensors(moved)} == {"meta"}
    assert same(send_to_device(batch, "cpu"))


def test_transformers_rebuilds_it_and_unpacks_it_into_a_model(tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor, tags: Jagged, **_: object) -> dict[str, torch.Tensor]:
            assert isinstance(tags, Jagged)
            return {"loss": (x * self.weight).sum() + tags.to_padded().sum()}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], disable_tqdm=True)
        trainer = Trainer(Model(), arguments)
    rebuilt = trainer._prepare_inputs(sample())  # type: ignore[arg-type] # noqa: SLF001
    assert type(rebuilt) is Batch
    assert len(rebuilt) == 2
    assert isinstance(rebuilt["age"], Masked)
    assert isinstance(rebuilt["recent"], Padded)
    assert isinstance(rebuilt["country"], Categories)
    assert trainer.model(**rebuilt)["loss"].item() == 17.0


def test_the_recipe_for_transformers_marks_rows_wherever_the_labels_are() -> None:
    (recipe,) = (one for one in fences(FRAMEWORKS) if "class MyTrainer" in one.text)
    text = recipe.text[: recipe.text.index("class SaveLoader")]
    labels: torch.Tensor | None = torch.tensor([5, 6])

    class Base:
        def prediction_step(self, *_: object, **__: object) -> tuple[None, None, Any]:
            return None, None, labels

    names: dict[str, Any] = {"transformers": SimpleNamespace(Trainer=Base)}
    exec(text, names)
    step = names["MyTrainer"]().prediction_step
    assert step(None, Batch({}))[2] is labels
    rows = Batch({}, valid=torch.tensor([True, False]))
    assert step(None, rows, None)[2].tolist() == [5, -100]
    labels = labels.to("meta")
    assert step(None, rows, ignore_keys=None)[2].device.type == "meta"
    labels = None
    assert step(None, rows)[2] is None


def test_torchs_loader_hands_it_to_its_own_method_to_pin_it() -> None:
    class Seen(Exception):  # noqa: N818
        pass

    class Watched(Batch):
        def pin_memory(self) -> Batch:
            raise Seen

    with pytest.raises(Seen):
        pin_memory(Watched({}))
