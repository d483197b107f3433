"""A run of transformers' Trainer: what it trained on and evaluated, and how it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import penstock
from tests.integration.launching import join_group, run_main

if TYPE_CHECKING:
    import numpy as np
    from transformers import EvalPrediction, TrainerControl, TrainerState

    from penstock.batch import Batch

TRAIN = [{"id": number, "x": number / 100, "labels": number % 2} for number in range(19)]
EVALUATION = [{"id": number, "x": number / 100, "labels": number % 2} for number in range(11)]
FIELDS = {"id": "int64", "x": "float32", "labels": "int64"}
IGNORED = -100
"""The label of rows that do not count, as everywhere in transformers."""


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 2)

    def forward(
        self,
        x: torch.Tensor,
        labels: torch.Tensor,
        id: torch.Tensor,  # noqa: A002 (a field)
    ) -> dict[str, torch.Tensor]:
        logits = self.linear(x[:, None])
        loss = torch.nn.functional.cross_entropy(logits, labels)
        # The record's number comes out beside what a real model would say.
        return {"loss": loss, "logits": torch.cat([logits, id[:, None].float()], dim=1)}


class Feeding(Trainer):
    """Trains and evaluates on our loaders; writes down what each step got."""

    def __init__(
        self, train: penstock.DataLoader, evaluation: penstock.DataLoader, **options: Any
    ) -> None:
        # The data sets only say that there are any.
        super().__init__(
            model=Model(),
            compute_metrics=metrics,
            train_dataset=train.dataset,
            eval_dataset=evaluation.dataset,
            **options,
        )
        self._loaders = train, evaluation
        self.trained: list[list[int]] = []

    def get_train_dataloader(self) -> Any:
        return self._loaders[0]

    def get_eval_dataloader(self, eval_dataset: object = None) -> Any:
        return self._loaders[1]

    def training_step(self, model: Any, inputs: Batch, *rest: Any) -> torch.Tensor:
        assert inputs.ids is not None
        valid = torch.ones(len(inputs), dtype=torch.bool) if inputs.valid is None else inputs.valid
        self.trained.append(inputs.ids[valid].tolist())
        return super().training_step(model, inputs, *rest)

    def prediction_step(self, model: Any, inputs: Batch, *rest: Any, **options: Any) -> Any:
        loss, logits, labels = super().prediction_step(model, inputs, *rest, **options)
        if inputs.valid is not None:
            labels = labels.masked_fill(~inputs.valid, IGNORED)
        return loss, logits, labels


def metrics(prediction: EvalPrediction) -> dict[str, Any]:
    labels: np.ndarray[Any, Any] = prediction.label_ids
    counts = labels != IGNORED
    return {"ids": prediction.predictions[counts][:, 2].astype(int).tolist()}


class SaveLoader(TrainerCallback):
    """Keeps the loader's state in each checkpoint."""

    def __init__(self, loader: penstock.DataLoader) -> None:
        self.loader = loader

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            (folder / "loader.json").write_text(json.dumps(self.loader.state_dict()))


def run(output: Path, resume: Path | None) -> dict[str, Any]:
    options: dict[str, Any] = {"global_batch_size": 4, "num_workers": 0}
    train = penstock.DataLoader(TRAIN, FIELDS, shuffle=True, seed=3, **options)
    evaluation = penstock.DataLoader(EVALUATION, FIELDS, **options)
    if resume is not None:
        train.load_state_dict(json.loads((resume / "loader.json").read_text()))
    trainer = Feeding(
        train,
        evaluation,
        callbacks=[SaveLoader(train)],
        args=TrainingArguments(
            output_dir=str(output),
            use_cpu=True,
            num_train_epochs=3,
            per_device_train_batch_size=2,
            per_device_eval_batch_size=2,
            save_strategy="no" if resume else "steps",
            save_steps=1,
            eval_strategy="epoch",
            ignore_data_skip=True,
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        ),
    )
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    history = trainer.state.log_history
    return {
        "trained": trainer.trained,
        "steps": trainer.state.global_step,
        "examples": trainer.num_examples(train),
        "evaluated": [entry["eval_ids"] for entry in history if "eval_ids" in entry],
    }


def main(place: Path, plan: list[int]) -> dict[str, Any]:
    join_group(place)
    found: dict[str, Any] = {"whole": run(place / "run", None), "from": {}}
    for step in plan:
        found["from"][step] = run(place / "other", place / "run" / f"checkpoint-{step}")
    return found


if __name__ == "__main__":
    run_main(main)
