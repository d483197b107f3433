"""The base of the data modules that read a schema from a model."""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import (
    CorruptFileError,
    MalformedLineError,
    OptionError,
    SchemaMismatchError,
)
from penstock.lightning._batch_module import BatchModule
from penstock.lightning._batches import SplitBatches, SplitFacts
from penstock.lightning._model_reference import ModelReference
from penstock.lightning._options import EngineOptions, split_options
from penstock.lightning._preprocess import PreprocessorCall, check_options, resolved
from penstock.lightning._shares import FileRows, SharedRecords, steps_of
from penstock.lightning._trainer_ranks import TrainerRanks, loader_ranks, ranks_of
from penstock.lightning._units import CHUNK, UnitPlan, is_frame, spread_chunk
from penstock.loading import DataLoader
from penstock.schema import Strata

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.datasets import Source, Stream
    from penstock.lightning._batches import PositionExtras
    from penstock.lightning._options import OptionRule, SplitOptions
    from penstock.lightning._shares import SourcePart
    from penstock.schema import Schema

_log = logging.getLogger("penstock.lightning")


class SplitRecords(NamedTuple):
    """The raw records of a split, as readers share them."""

    stream: Stream
    extras: PositionExtras | None = None
    rows_of: FileRows | None = None


class SchemaModule(BatchModule):
    """Loaders of observations that a model's schema turns into tensors."""

    def __init__(self, given: Mapping[str, Any], rules: Mapping[str, OptionRule]) -> None:
        """Check all options.

        Args:
            given: The arguments of a data module's constructor, by name: its `locals()`.
            rules: What the options of splits may be.
        """
        super().__init__()
        self._reference = ModelReference(given["model"])
        self._preprocessor = resolved(given["preprocessor"])
        self._kwargs: Mapping[str, Any] = given["kwargs"]
        known = [name for name in given if name not in ("self", "kwargs", "__class__")]
        check_options(self._preprocessor, self._kwargs, known)
        engine = given["engine"]
        self.engine: EngineOptions = EngineOptions() if engine is None else engine
        if not isinstance(self.engine, EngineOptions):
            raise TypeError(f"engine={self.engine!r}: expected EngineOptions(…).")
        self._options = split_options({name: given[name] for name in rules}, rules)
        self._seed = self.engine.seed
        """Of all splits; None before the first loader."""

    # The model, live.

    @property
    def hyperparameters(self) -> Any:
        """The tree of the model; setting it lets go of the model."""
        return self._reference.look()["hyperparameters"]

    @hyperparameters.setter
    def hyperparameters(self, tree: Any) -> None:
        self._reference.hold("hyperparameters", tree)

    @property
    def batch_size(self) -> int:
        """Observations in a batch; setting it lets go of the model."""
        return int(self._reference.look()["batch_size"])

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        self._reference.hold("batch_size", size)

    @property
    def interprocess_encoding_context(self) -> Any:
        """The vocabularies of the model; setting them lets go of the model."""
        return self._reference.context

    @interprocess_encoding_context.setter
    def interprocess_encoding_context(self, context: Any) -> None:
        self._reference.hold("interprocess_encoding_context", context)

    # From records to batches.

    def _stream(
        self,
        strata: Strata,
        options: SplitOptions,
        ranks: TrainerRanks,
        position: Mapping[str, Any],
    ) -> SplitRecords | None:
        """Return the raw records of a split; None without one."""
        raise NotImplementedError  # abstract

    def _batches(self, strata: Strata, position: Mapping[str, Any] | None) -> SplitBatches | None:
        options, ranks = self._options[strata], ranks_of(self.trainer)
        is_training = strata is Strata.train
        if strata is Strata.predict:  # Every record once, in its order.
            options = options.in_order()
        workers = options.workers(ranks.local_world_size)
        options = options._replace(num_workers=workers)
        seed = self._agreed_seed(position)
        made = self._stream(strata, options, ranks, position or {})
        if made is None:
            return None
        if self.engine.epoch == "infinite" and is_training and not options.replacement:
            raise OptionError("epoch='infinite' draws with replacement: give replacement=True.")
        stream = self._observed(made.stream, strata, ranks)
        if options.sample_rate < 1:
            stream = stream.sample(options.sample_rate)
        equalize = "none" if strata is Strata.predict else self.engine.equalize
        stream = stream.changed(
            buffer=options.observation_buffer_size,
            wraps=equalize == "wrap",
            ends_together=equalize != "none",
            name=str(strata),
            split=str(strata),
        )
        is_endless = is_training and options.replacement and self.engine.epoch == "infinite"
        loader = DataLoader(
            stream,
            self._encoder(strata),
            batch_size=self.batch_size,
            shuffle=options.observation_buffer_size > 1,
            seed=seed,
            epochs=None if is_endless else 1,
            num_workers=workers,
            pin_memory=options.pin_memory,
            persistent_workers=options.persistent_workers,
            multiprocessing_context=self.engine.multiprocessing_context,
            **self._on_error(),
            **loader_ranks(ranks),
        )
        layout = [ranks.world_size, max(1, workers), self.batch_size]
        counts = None if is_endless else self._steps(stream, *layout)
        is_cut = equalize == "drop"
        if is_cut and counts is None and ranks.world_size > 1:
            raise OptionError(
                "equalize='drop' needs to know how many batches each rank has, and a generator, a "
                "sample, an infinite epoch or a dataset of its own do not say: use 'wrap'."
            )
        steps = None if counts is None else _equal(counts, ranks.rank, equalize)
        facts = SplitFacts(
            steps=steps,
            layout=layout,
            is_cut=is_cut,
            is_endless=is_endless,
            are_alike=options == options.in_order(),
            extras=made.extras,
            rows_of=made.rows_of,
            remedy=_remedy,
            resume_remedy=_RESUME_REMEDY,
            unread=stream.unread if isinstance(stream, SharedRecords) else None,
        )
        return SplitBatches(loader, facts)

    def _follow_the_trainer(self) -> None:
        super()._follow_the_trainer()
        self._reference.warn_of(self.trainer.lightning_module)  # type: ignore[union-attr]

    def _observed(self, stream: Stream, strata: Strata, ranks: TrainerRanks) -> Stream:
        if self._preprocessor is None:
            return stream
        context = self._reference.context
        call = PreprocessorCall(self._preprocessor, self._kwargs, strata, context, ranks)
        return stream.map(call)

    def training_records(self) -> tuple[Schema, Source | Iterator[Any]]:
        """Return the schema, and the observations of training, each once: for `fit_vocabulary`."""
        options = self._options[Strata.train].in_order()._replace(num_workers=0)
        alone = TrainerRanks(0, 1)
        made = self._stream(Strata.train, options, alone, {})
        if made is None:
            raise OptionError("fit_vocabulary: the data module has no train=.")
        stream = self._observed(made.stream, Strata.train, alone)
        schema = self._reference.schema()
        if stream.source is not None and not stream.is_mapped:
            return schema, stream.source
        loader = DataLoader(stream, batch_size=CHUNK, num_workers=0, rank=0, world_size=1)
        return schema, chain.from_iterable(loader)

    def _encoder(self, strata: Strata) -> Any:
        schema = self._reference.schema().for_split(strata)
        engine = self.engine
        schema.syncs_early = engine.equalize != "none"  # Ranks then have as many batches.
        schema.path, schema.null_semantics = engine.path, engine.null_semantics
        schema.mask_padding = engine.mask_padding
        return schema

    def _steps(
        self, stream: Stream, world_size: int, lanes: int, batch_size: int
    ) -> list[int] | None:
        """Return how many batches each rank has; None where only reading shows it."""
        if not isinstance(stream, SharedRecords) or not stream.has_known_length:
            return None
        return steps_of(stream.at(0), batch_size, world_size, lanes)  # type: ignore[arg-type]

    def _agreed_seed(self, position: Mapping[str, Any] | None) -> int:
        """Return the seed of all loaders: of a position, of the options, or torch's at first."""
        if position is not None:
            self._seed = int(position["state"]["seed"])
        if self._seed is None:
            import torch  # noqa: PLC0415 (it takes a second)

            self._seed = self.of_first_rank(lambda: torch.initial_seed() % 2**63)
        return self._seed

    def _on_error(self) -> dict[str, Any]:
        """Return what the loader does about records that cannot be read, or do not fit."""
        unread = (MalformedLineError, CorruptFileError) if self._skips_bad else ()
        misfits = (SchemaMismatchError,) if self.engine.bad_values == "mask" else ()
        return {"on_error": (*unread, *misfits), "max_bad": 2**62}

    @property
    def _skips_bad(self) -> bool:
        return self.engine.on_error == "skip"

    @property
    def _names_chunks(self) -> bool:
        """Whether json2vec names records by chunk and row, for assignment="hash"."""
        return False

    def _learner(self) -> Schema:
        return self._reference.schema()

    def _shared(
        self,
        source: Source,
        parts: Sequence[SourcePart],
        options: SplitOptions,
        ranks: TrainerRanks,
        position: Mapping[str, Any],
        **kept: Any,
    ) -> SplitRecords:
        """Return the records of a source, shared out; a position has what is `kept`."""
        readers = ranks.world_size * max(1, options.num_workers or 0)
        usual = spread_chunk(len(source), readers) if is_frame(parts) else CHUNK
        chunk = position.get("chunk") or options.chunk_batch_size or usual
        if options.replacement:
            if not len(source) and not self.engine.allow_empty:
                raise OptionError("there is no record to draw: replacement needs some.")
            _log.info("drawing with replacement, %s epochs", self.engine.epoch)
        begun = (position["state"]["epoch"], position["readers"]) if position else None
        plan = UnitPlan(
            tuple(parts),
            options.sharding,
            chunk,
            readers,
            self._agreed_seed(position or None),
            by_hash=self.engine.assignment == "hash",
            names_chunks=self._names_chunks,
            buffer=options.file_buffer_size,
            replacement=options.replacement,
            begun=None if begun is None or begun[1] == readers else begun,
        )
        # A shuffle reads back and forth, which a file that is read from its beginning cannot.
        is_held = options.observation_buffer_size > 1 and any(part.is_forward for part in parts)
        stream = SharedRecords(source, plan).changed(is_held=is_held, skips_bad=self._skips_bad)
        return SplitRecords(stream, partial(plan.kept, **kept), FileRows(parts))


_RESUME_REMEDY = (
    "Bring back the data, the seed, num_workers= and the options of the split that the run began "
    "with, or start a new run."
)


def _remedy(why: Exception) -> str:
    """Return what lets a run go on that met a bad record."""
    if isinstance(why, SchemaMismatchError):
        return (
            "To keep the rows of such records, with valid=False: "
            "engine=EngineOptions(bad_values='mask')."
        )
    return "To skip such records: engine=EngineOptions(on_error='skip')."


def _equal(counts: Sequence[int], rank: int, equalize: str) -> int:
    return {"wrap": max(counts), "drop": min(counts), "none": counts[rank]}[equalize]
