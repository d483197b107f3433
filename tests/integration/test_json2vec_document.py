"""Programs for json2vec run: all code of its page on data modules, with our import."""

from __future__ import annotations

import shutil
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning
import polars as pl
import pytest
import torch
from torch.utils.data import IterableDataset

import penstock.lightning as j2v
from tests.documents import fences
from tests.integration.launching import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.s3_server import S3Server

pytestmark = [
    # Lightning 2.6 uses a class that torch has marked as old.
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Total length of `list`:UserWarning"),
]

DOCUMENT = Path(__file__).with_name("json2vec_document.md")
LABELS = ("ok", "review")
COUNT = 40


class Model(j2v.SchemaMixin, lightning.LightningModule):
    """The least that a model is: a schema, a layer, and the steps of the loops."""

    def __init__(self) -> None:
        super().__init__()
        self.schema = j2v.SchemaModel(
            j2v.Number("amount", p_mask=0.1),
            j2v.Category("merchant"),
            j2v.Number("petal_length"),
            j2v.Category("label", max_vocab_size=4, target=True),
            j2v.Category("species", max_vocab_size=4, target=True),
            batch_size=8,
        )
        self.layer = torch.nn.Linear(2, 5)

    def forward(self, batch: Any) -> Any:
        numbers = [batch[f"record/{name}"].content for name in ("amount", "petal_length")]
        return self.layer(torch.cat(numbers, dim=1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        labels = batch["record/label"].targets["content"][:, 0]
        return torch.nn.functional.cross_entropy(self(batch), labels)

    validation_step = training_step

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return {"predictions": {"record/label": {"content": self(batch).argmax(1)}}}

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Shared(IterableDataset[Any]):
    def __init__(self, records: list[Any]) -> None:
        self.records = records

    def __iter__(self) -> Iterator[Any]:
        index, count = j2v.shard_info()
        yield from self.records[index::count]


def my_preprocessor(record: dict[str, Any], request_time: str) -> dict[str, Any]:
    return {**record, "merchant": f"{record['merchant']} {request_time}"}


def prepared(server: S3Server, folder: Path) -> dict[str, Any]:
    """Make the files that the page reads; return the names that it does not define."""
    shutil.copytree(ROOT / "docs" / "data", folder / "docs" / "data")
    records = [
        {"amount": number / 2, "merchant": f"m{number % 3}", "label": LABELS[number % 2]}
        for number in range(COUNT)
    ]
    frame = pl.DataFrame(records)
    with closing(server.client()) as client:
        client.create_bucket(Bucket="my-bucket")
        for split in ("train", "validate"):
            frame.write_parquet(folder / "one.parquet")
            body = (folder / "one.parquet").read_bytes()
            client.put_object(Bucket="my-bucket", Key=f"events/{split}/0.parquet", Body=body)
    for split in ("train", "validate", "predict"):
        place = folder / "data" / "events" / split
        place.mkdir(parents=True)
        for part in range(3):
            frame.write_ndjson(place / f"{part}.jsonl")
    frames = {f"{split}_frame": frame for split in ("train", "valid", "test")}
    datasets = {f"{split}_dataset": Shared(records) for split in ("train", "valid", "predict")}
    return {
        "j2v": j2v,
        "model": Model(),
        "trainer": trainer(),
        "predict_frame": frame.drop("label"),
        "records": frame,
        "my_preprocessor": my_preprocessor,
        **frames,
        **datasets,
    }


def trainer() -> lightning.Trainer:
    return lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def splits_of(text: str) -> set[str]:
    return {split for split in j2v.Strata if f" {split}=" in text or f'"{split}": ' in text}


def test_all_code_of_the_page_runs_and_gives_batches(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = prepared(s3_server, tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in s3_server.storage_options.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    for fence in fences(DOCUMENT):
        code = fence.text.replace("import json2vec as j2v", "import penstock.lightning as j2v")
        exec(compile("\n" * (fence.line - 1) + code, DOCUMENT, "exec"), names)
        model, module = names["model"], names["datamodule"]
        found = {}
        for split in j2v.Strata:
            batches = module.dataloader(split, required=False)
            found[split] = [] if batches is None else list(islice(batches, 2))
            for batch in found[split]:
                j2v.check_batch(model, batch, split)
        assert {split for split in found if found[split]} == splits_of(fence.text), fence.line
        if "docs/data" in code or "data/events" in code:
            trainer().fit(model, datamodule=module)
    merchants = model.interprocess_encoding_context["record/merchant"].snapshot()
    assert "m2 2026-05-31" in merchants
    names.clear()  # Its functions refer to it, and it to the last data module.
