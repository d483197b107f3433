"""`collate`: a list of records in, anything out; and the words of torch's loader."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

import penstock
from penstock.errors import BadRecordsError, OptionError
from penstock.loading._options import TORCH_WORDS

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [{"x": float(number), "y": number % 3} for number in range(11)]


def pairs(records: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.tensor([record["x"] for record in records]),
        torch.tensor([record["y"] for record in records]),
    )


def named(records: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {"x": torch.tensor([record["x"] for record in records])}


@pytest.mark.parametrize(
    ("workers", "method"), [(0, None), ("auto", None), (2, "fork"), (2, "spawn")]
)
def test_the_function_gets_the_records_of_every_batch(workers: Any, method: str | None) -> None:
    loader = penstock.DataLoader(
        RECORDS, collate=pairs, batch_size=4, shuffle=True, num_workers=workers,
        multiprocessing_context=method,
    )  # fmt: skip
    plain = penstock.DataLoader(RECORDS, batch_size=4, shuffle=True)
    assert [[x.tolist(), y.tolist()] for x, y in loader] == [
        [[record["x"] for record in batch], [record["y"] for record in batch]] for batch in plain
    ]
    assert "pairs" in loader.explain()["batch"]


def test_a_dict_becomes_a_batch_with_ids_and_valid_over_ranks() -> None:
    seen: list[int] = []
    for rank in range(3):
        loader = penstock.DataLoader(
            RECORDS, collate=named, batch_size=2, rank=rank, world_size=3, num_workers=0
        )
        for batch in loader:
            valid = torch.ones(len(batch), dtype=torch.bool) if batch.valid is None else batch.valid
            assert batch["x"].tolist() == [float(number) for number in batch.ids]
            seen += batch.ids[valid].tolist()
    assert sorted(seen) == list(range(11))


def test_a_resume_goes_on_with_the_next_records() -> None:
    loader = penstock.DataLoader(RECORDS, collate=pairs, batch_size=2, shuffle=True)
    run = iter(loader)
    next(run)
    other = penstock.DataLoader(RECORDS, collate=pairs, batch_size=2, shuffle=True)
    other.load_state_dict(loader.state_dict())
    assert [x.tolist() for x, _ in other] == [x.tolist() for x, _ in run]


def test_a_bad_record_is_raised_or_masked(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n{oops\n{"x": 3}\n{oops\n')
    with pytest.raises(ValueError, match="record 1"):
        list(penstock.DataLoader(path, collate=named, batch_size=3))
    run = iter(penstock.DataLoader(path, collate=named, batch_size=3, on_error="mask"))
    batch = next(run)
    assert batch.valid.tolist() == [True, False, True]
    assert batch["x"].tolist() == [1, 0, 3]
    with pytest.raises(BadRecordsError, match="no record of a batch can be read"):
        next(run)


def test_what_contradicts_it_is_refused() -> None:
    for more in ({"encode": ["x"]}, {"output": "arrow"}):
        with pytest.raises(OptionError, match="leave encode and output out"):
            penstock.DataLoader(RECORDS, collate=named, batch_size=2, **more)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="a function from a list of records"):
        penstock.DataLoader(RECORDS, collate="x", batch_size=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("word", sorted(TORCH_WORDS))
def test_torchs_words_get_their_counterpart(word: str) -> None:
    with pytest.raises(TypeError, match=word):
        penstock.DataLoader(RECORDS, batch_size=2, **{word: None})  # type: ignore[arg-type]


def test_every_word_of_torch_is_an_argument_or_explained() -> None:
    theirs = set(signature(TorchLoader).parameters)
    ours = set(signature(penstock.DataLoader).parameters)
    assert theirs - ours == set(TORCH_WORDS)


def test_a_misspelt_argument_gets_the_nearest_name() -> None:
    with pytest.raises(TypeError, match="Did you mean 'batch_size'"):
        penstock.DataLoader(RECORDS, batchsize=2)  # type: ignore[call-arg]
