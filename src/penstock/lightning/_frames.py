"""`PolarsDataModule` and `CustomDataModule`: observations of frames and of datasets."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import penstock
from penstock._lazy import imported
from penstock._words import counted
from penstock.datasets import as_stream
from penstock.errors import OptionError
from penstock.lightning._lightning import IterableDataset
from penstock.lightning._options import NUMBERED, SHARED, given_splits
from penstock.lightning._schema_module import SchemaModule, SplitRecords
from penstock.lightning._shares import SourcePart
from penstock.schema import Strata, split_named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.datasets import Source
    from penstock.lightning._options import EngineOptions, SplitOptions
    from penstock.lightning._trainer_ranks import TrainerRanks


class PolarsDataModule(SchemaModule):
    """Observations of data frames.

    Args:
        model: Supplies the schema, the batch size and the vocabularies: a `SchemaModel`, or a
            LightningModule with `SchemaMixin`.
        train: The records of training: a polars, pandas or Arrow frame. A `LazyFrame` is
            collected into a temporary file, which is mapped.
        validate: The records of validation.
        test: The records of the test.
        predict: The records of prediction.
        dataframe: One frame for all splits, or a mapping of splits to frames, in place of them.
        preprocessor: A function of a record, its registered name, or a `Preprocessor`.
        num_workers: Worker processes; by default up to 8, as the processors of this rank allow.
        persistent_workers: Keep the workers of a split from epoch to epoch; False starts them anew.
        pin_memory: Copy tensors to page-locked memory, where there is a GPU.
        observation_buffer_size: Observations that a shuffle draws from; 1 keeps their order.
        sample_rate: The share of observations that each epoch uses.
        chunk_batch_size: Records of a chunk; by default 4,096, less where workers would have none.
        sharding: What is assigned whole to a worker: "file" (the frame), "chunk" or "record".
        replacement: Draw records with replacement.
        engine: Everything else.
        kwargs: Options of the preprocessor.

    Options from `num_workers` to `replacement` take one value or a mapping by split.

    >>> import polars as pl
    >>> from penstock.schema import Number, SchemaModel
    >>> model = SchemaModel(Number("price"), batch_size=2)
    >>> frame = pl.DataFrame({"price": [1.0, 2.0, 3.0]})
    >>> module = PolarsDataModule(model=model, train=frame, num_workers=0)
    >>> [batch["record/price"].content.tolist() for batch in module.dataloader("train")]
    [[[1.0], [2.0]], [[3.0]]]
    """

    _WHAT = "dataframe"

    def __init__(  # noqa: PLR0913 (the options of json2vec)
        self,
        model: object,
        *,
        train: Any = None,
        validate: Any = None,
        test: Any = None,
        predict: Any = None,
        dataframe: Any = None,
        preprocessor: Any = None,
        num_workers: Any = None,
        persistent_workers: Any = True,
        pin_memory: Any = True,
        observation_buffer_size: Any = 1,
        sample_rate: Any = 1.0,
        chunk_batch_size: Any = None,
        sharding: Any = "chunk",
        replacement: Any = False,
        engine: EngineOptions | None = None,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(given, NUMBERED)
        frames = _by_split("dataframe", dataframe, given)
        self._given = {split: _source(split, frame) for split, frame in frames.items()}

    def _stream(
        self,
        strata: Strata,
        options: SplitOptions,
        ranks: TrainerRanks,
        position: Mapping[str, Any],
    ) -> SplitRecords | None:
        source = self._given.get(strata)
        if source is None:
            return None
        parts = [SourcePart("", ((0, len(source)),))] if len(source) else []
        return self._shared(source, parts, options, ranks, position)


def _by_split(name: str, whole: Any, given: Mapping[str, Any]) -> dict[Strata, Any]:
    """Return what each split was given, by name or in one argument for all."""
    found = given_splits(given)
    if whole is None:
        if not found:
            raise OptionError(
                f"at least one of train, validate, test and predict is needed, or {name}=."
            )
        return found
    if found:
        raise OptionError(f"give {name}= or {min(found)}=, not both.")
    if isinstance(whole, Mapping):
        if not whole:
            raise OptionError(f"{name}= has no split: give at least one.")
        return {split_named(split): one for split, one in whole.items()}
    return dict.fromkeys(Strata, whole)


def _source(split: Strata, frame: Any) -> Source:
    polars: Any = imported("polars")
    if polars is not None and isinstance(frame, polars.LazyFrame):
        frame = _collected(split, frame, polars)
    is_arrow = hasattr(frame, "__arrow_c_stream__") or type(frame).__module__.startswith("pandas")
    if not is_arrow or not (hasattr(frame, "columns") or hasattr(frame, "schema")):
        raise TypeError(
            f"{split}={type(frame).__qualname__}: expected a polars, pandas or Arrow frame. Of "
            "dicts, polars.DataFrame(records) makes one; StreamingDataModule reads files."
        )
    source: Source = penstock.open(frame)
    return source


def _collected(split: Strata, frame: Any, polars: Any) -> pa.Table:
    """Return the rows of a `LazyFrame`, which go to a file part by part, and are mapped there."""
    try:
        with TemporaryDirectory(prefix="penstock-frame-") as folder:
            path = f"{folder}/frame.arrow"
            # Of string views rows could be taken only after a copy into memory.
            frame.sink_ipc(path, compat_level=polars.CompatLevel.oldest())
            with pa.memory_map(path) as file:
                # The mapping outlives the name.
                return pa.ipc.open_file(file).read_all()
    except OSError as why:
        why.add_note(
            f"{split}=: a LazyFrame is collected into a temporary file. If that lacks room, name "
            "another folder by TMPDIR, or give frame.collect()."
        )
        raise


class CustomDataModule(SchemaModule):
    """Observations of torch `IterableDataset`s that yield dicts.

    A dataset runs in every worker of every rank, each of which reads all of it: one that should be
    shared out looks at `shard_info()`, or at torch's `get_worker_info()` and the rank.

    Args:
        model: Supplies the schema, the batch size and the vocabularies.
        train: The dataset of training.
        validate: The dataset of validation.
        test: The dataset of the test.
        predict: The dataset of prediction.
        datasets: A mapping of splits to datasets, in place of these four.
        preprocessor: A function of a record, its registered name, or a `Preprocessor`.
        num_workers: Worker processes; by default up to 8, as the processors of this rank allow.
        persistent_workers: Accepted; workers start anew for each epoch, because a dataset may count
            its epochs itself, and a resume could not bring that back.
        pin_memory: Copy tensors to page-locked memory, where there is a GPU.
        observation_buffer_size: Observations that a shuffle draws from; 1 keeps their order.
        sample_rate: The share of observations that each epoch uses.
        engine: Everything else.
        kwargs: Options of the preprocessor.

    Options from `num_workers` to `sample_rate` take one value or a mapping by split.
    """

    _WHAT = "dataset"

    def __init__(  # noqa: PLR0913 (the options of json2vec)
        self,
        model: object,
        *,
        train: Any = None,
        validate: Any = None,
        test: Any = None,
        predict: Any = None,
        datasets: Any = None,
        preprocessor: Any = None,
        num_workers: Any = None,
        persistent_workers: Any = True,
        pin_memory: Any = True,
        observation_buffer_size: Any = 1,
        sample_rate: Any = 1.0,
        engine: EngineOptions | None = None,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(given, SHARED)
        self._warned: set[Strata] = set()
        self._given = _by_split("datasets", datasets, given)
        for split, one in self._given.items():
            if not isinstance(one, IterableDataset):
                raise TypeError(
                    f"{split}={type(one).__qualname__}: expected a torch IterableDataset. Records "
                    "that have numbers go to DataModule(…, encode=model.schema)."
                )

    def _stream(
        self,
        strata: Strata,
        options: SplitOptions,
        ranks: TrainerRanks,
        position: Mapping[str, Any],
    ) -> SplitRecords | None:
        del position
        dataset = self._given.get(strata)
        if dataset is None:
            return None
        readers = ranks.world_size * max(1, options.num_workers or 0)
        shares = _shares_itself(dataset, over_ranks=ranks.world_size > 1)
        if readers > 1 and strata not in self._warned and not shares:
            self._warned.add(strata)
            warnings.warn(
                f"{type(dataset).__qualname__} is read by {counted(readers, 'worker')} of "
                f"{counted(ranks.world_size, 'rank')}, and does not seem to share its records "
                f"between them: each record comes {readers} times. Let it use "
                "penstock.lightning.shard_info(), or set shards_itself = True on it.",
                stacklevel=5,
            )
        stream = as_stream(_Dicts(dataset, strata, ranks))
        assert stream is not None  # noqa: S101 (an IterableDataset is one)
        return SplitRecords(stream)


class _Dicts(IterableDataset[dict[str, Any]]):
    """The records of a dataset, each checked to be a dict."""

    def __init__(self, dataset: Any, strata: Strata, ranks: TrainerRanks) -> None:
        self._dataset, self._strata, self._ranks = dataset, strata, ranks

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._ranks.enter()
        for number, record in enumerate(self._dataset):
            if not isinstance(record, dict):
                raise TypeError(
                    f"record {number:,} of the dataset {self._strata}= is a "
                    f"{type(record).__qualname__}: expected a dict."
                )
            yield record


def _shares_itself(dataset: Any, *, over_ranks: bool) -> bool:
    """Whether a dataset says that it shares its records, or asks which worker, and rank, it is."""
    code = getattr(type(dataset).__iter__, "__code__", None)
    names = set() if code is None else {*code.co_names}
    if getattr(dataset, "shards_itself", False) or "shard_info" in names:
        return True
    return "get_worker_info" in names and (not over_ranks or not names.isdisjoint(_OF_RANKS))


_OF_RANKS = {"get_rank", "get_world_size", "rank", "world_size", "global_rank", "environ", "getenv"}
"""Names in a dataset that looks at its rank."""
