"""`Writer`: predictions into Parquet files, while they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.decode import inferred_batch
from penstock.errors import ObjectExistsError, OptionError
from penstock.lightning._batches import SplitBatches
from penstock.lightning._lightning import CombinedLoader, pl
from penstock.lightning._parts import PredictionParts, files_in, merge_parts, next_number
from penstock.lightning._predictions import PredictionTypes
from penstock.schema import Observations
from penstock.storage import join, locate

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import pyarrow as pa

_OVERWRITE = ("error", "replace", "append")


class Writer(pl.Callback):
    """Writes inputs and predictions of `Trainer.predict` to Parquet files, row by row.

    Each rank writes `rank-<rank>-<part>.parquet`, with the columns `inputs` (the record),
    `predictions` (by address and key), `source` and `row` (where the record comes from).

    Args:
        path: The folder, local or remote.
        flush_every_n_batches: Publish a part after so many batches; by default at the end.
        postprocessor: Called with a context and the predictions of a batch; it returns others, or
            changes them in place.
        write: Turns `predictions` of the output of `predict_step` into `{address: {key: values}}`,
            in place of the model's `write`.
        ordered: Merge the parts of all ranks into `predictions.parquet` at the end, in the order
            of `source` and `row`.
        overwrite: What becomes of files of earlier runs: "error" raises, "replace" removes them at
            the end of the run, "append" keeps them.
    """

    def __init__(  # noqa: PLR0913 (options by name)
        self,
        path: str | os.PathLike[str],
        flush_every_n_batches: int | None = None,
        postprocessor: Callable[[dict[str, Any], dict[str, Any]], Any] | None = None,
        *,
        write: Callable[[Any], Mapping[str, Any]] | None = None,
        ordered: bool = False,
        overwrite: str = "error",
    ) -> None:
        every = flush_every_n_batches
        if every is not None and (type(every) is not int or every < 1):
            raise OptionError(
                f"Writer: flush_every_n_batches={every!r}: expected a whole number, 1 or more."
            )
        for name, one in (("postprocessor", postprocessor), ("write", write)):
            if one is not None and not callable(one):
                raise TypeError(f"Writer: {name}={one!r}: expected a function.")
        if overwrite not in _OVERWRITE:
            known = ", ".join(map(repr, _OVERWRITE))
            raise OptionError(f"Writer: overwrite={overwrite!r}: expected one of {known}.")
        if ordered and overwrite == "append":
            raise OptionError(
                "Writer: ordered=True merges the parts of one run, and overwrite='append' adds to "
                "those of others. Leave one of them out, or write to another folder."
            )
        self._store, self._folder = locate(path)
        self._every = every
        self._postprocessor = postprocessor
        self._write = write
        self._is_ordered = ordered
        self._overwrite = overwrite
        self._old: list[str] = []
        """Files of earlier runs."""
        self._parts: PredictionParts | None = None
        self._batches = 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Look for files of earlier runs; rank 0 does so for all."""
        if stage != "predict":
            return
        old = files_in(self._store, self._folder) if trainer.is_global_zero else []
        self._old = trainer.strategy.broadcast(old)
        if self._old and self._overwrite == "error":
            place = self._store.path(self._folder)
            raise ObjectExistsError(
                f"{place} holds predictions of an earlier run, first {self._old[0]}.",
                remedy="Choose another folder, or overwrite='replace' or 'append'.",
                path=place,
            )
        hosts = (pl_module, trainer.datamodule)
        trees = (getattr(host, "hyperparameters", None) for host in hosts)
        self._types = PredictionTypes(next((one for one in trees if hasattr(one, "nodes")), None))
        number = next_number(self._old)
        rank = trainer.global_rank
        self._parts = PredictionParts(self._store, self._folder, rank, number, self._types)
        self._batches = 0

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Let Lightning keep no outputs: by default it holds those of all batches in memory."""
        trainer.predict_loop.return_predictions = False

    def on_predict_batch_end(  # noqa: PLR0913, PLR0917 (Lightning's)
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Add the rows of a batch."""
        assert self._parts is not None  # noqa: S101 (made by `setup`)
        metadata, ids = _metadata(batch), _array(getattr(batch, "ids", None))
        valid = _array(getattr(batch, "valid", None))
        payload = self._payload(pl_module, outputs)
        if self._postprocessor is not None:
            context = {
                "input": batch,
                "batch": batch,
                "metadata": metadata,
                "batch_indices": None if ids is None else ids.tolist(),
                "batch_idx": batch_idx,
                "dataloader_idx": dataloader_idx,
            }
            changed = self._postprocessor(context, payload)
            payload = payload if changed is None else _by_key(changed)
        numbers = np.arange(len(metadata)) if ids is None else ids
        columns = self._types.columns(payload, numbers)
        inputs, kept = _inputs(metadata, valid)
        if len(kept):
            columns = {at: array.take(kept) for at, array in columns.items()}
            chosen = None if ids is None else ids[kept]
            loaders = trainer.predict_dataloaders
            identity = _identity(loaders, dataloader_idx, chosen, len(kept))
            self._parts.add(inputs, columns, *identity)
        self._batches += 1
        if self._every is not None and self._batches % self._every == 0:
            self._parts.publish()

    def _payload(self, model: Any, outputs: Any) -> dict[str, Any]:
        is_named = isinstance(outputs, Mapping) and "predictions" in outputs
        predictions = outputs["predictions"] if is_named else outputs
        write = self._write or getattr(model, "write", None)
        return _by_key(predictions if write is None else write(predictions))

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Publish the last part; rank 0 merges and removes files.

        Lightning calls this on every rank, but `on_predict_end` only on those that have batches.
        """
        if self._parts is None:
            return
        self._parts.publish()
        self._parts = None
        trainer.strategy.barrier("penstock.Writer: all parts are published")
        if trainer.is_global_zero:
            self._finish()
        trainer.strategy.barrier("penstock.Writer: all files are in place")

    def _finish(self) -> None:
        store, folder = self._store, self._folder
        leaving = set(self._old) if self._overwrite == "replace" else set()
        new = [name for name in files_in(store, folder) if name not in self._old]
        if self._is_ordered and new:
            merged = merge_parts(store, folder, new)
            leaving = (leaving | {*new}) - {merged}
        for name in leaving:
            store.delete(join(folder, name))

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave nothing behind of rows that are not published."""
        if self._parts is not None:
            self._parts.discard()
            self._parts = None


def _metadata(batch: Any) -> Sequence[Any]:
    if isinstance(batch, Mapping) and "metadata" in batch:
        found: Sequence[Any] = batch["metadata"]
        return found
    raise OptionError(
        "Writer: the batch has no 'metadata', so there are no inputs to write.",
        remedy="Predict with a data module, or with a schema's for_split('predict').",
    )


def _inputs(metadata: Sequence[Any], valid: Any) -> tuple[pa.RecordBatch, Any]:
    """Return the records that count, and their rows, int64."""
    counts = np.ones(len(metadata), np.bool_) if valid is None else valid
    if isinstance(metadata, Observations):
        return metadata.arrow(), np.flatnonzero(counts)
    kept = np.flatnonzero(counts & [one is not None for one in metadata])
    rows = [metadata[row] for row in kept.tolist()]
    return inferred_batch([one[0] if isinstance(one, list) else one for one in rows]), kept


def _by_key(predictions: Any) -> dict[str, Any]:
    """Return predictions as values by address and key; those without a key are the content."""
    if predictions is None:
        return {}
    if not isinstance(predictions, Mapping):
        raise OptionError(
            f"Writer: predictions are {type(predictions).__name__}, and are written as "
            "{address: {key: values}}.",
            remedy="Return that from predict_step, or give Writer(write=…) that makes it.",
        )
    return {
        address: dict(parts) if isinstance(parts, Mapping) else {"content": parts}
        for address, parts in predictions.items()
    }


def _array(values: Any) -> Any:
    return None if values is None else values.cpu().numpy()


def _identity(
    loaders: Any, number: int, ids: Any, rows: int
) -> tuple[Sequence[str | None], Sequence[int | None]]:
    """Return source and row of each record, as the loader that made the batch knows them."""
    if ids is None:
        return [None] * rows, [None] * rows
    loader = CombinedLoader(loaders).flattened[number]
    rows_of = loader.facts.rows_of if isinstance(loader, SplitBatches) else None
    return ([None] * rows, ids.tolist()) if rows_of is None else rows_of(ids)
